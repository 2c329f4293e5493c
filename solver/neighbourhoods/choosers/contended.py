"""The nodes where most is at stake: of the GPU type that is used most, or that loses most to pressure."""

from __future__ import annotations

import random
from collections import defaultdict

from coplace.solver.neighbourhoods.choosers.chooser import some_waiting, weighted
from coplace.solver.neighbourhoods.incumbent import Incumbent
from coplace.solver.neighbourhoods.neighbourhood import Neighbourhood, enclose


def contended(incumbent: Incumbent, size: int, draw: random.Random) -> Neighbourhood | None:
    """*size* nodes of one GPU type, types and nodes more likely the more value is earned there or lost to pressure."""
    usable = incumbent.usable.tolist()
    if not usable:
        return None
    stake = _stakes(incumbent)
    by_type: dict[int, list[int]] = defaultdict(list)
    for n in usable:
        by_type[int(incumbent.state.nodes.gpu_type[n])].append(n)
    types = sorted(by_type)
    mean = [sum(stake[n] for n in by_type[t]) / len(by_type[t]) for t in types]
    [chosen_type] = weighted(types, [_relative(m, mean) for m in mean], 1, draw)
    nodes = by_type[chosen_type]
    weights = [_relative(stake[n], [stake[m] for m in nodes]) for n in nodes]
    chosen = weighted(nodes, weights, size, draw)
    return enclose(incumbent, chosen, some_waiting(incumbent, chosen, draw))


def _relative(amount: float, amounts: list[float]) -> float:
    """An amount over the largest, and a little, so that nothing is left out for good."""
    return 0.1 + amount / max(*amounts, 1e-12) if len(amounts) > 1 else 1.0


def _stakes(incumbent: Incumbent) -> list[float]:
    """By [node], its jobs' share of the values they have and of those they lose to pressure, the latter twice."""
    state, scoring = incumbent.state, incumbent.scoring
    stake = [0.0] * len(state.level)
    for j, placement in enumerate(state.placements):
        if placement is None:
            continue
        calm = float(scoring.value(j, state.speed(j, placement.shape, placement.span, 0), kept=False))
        lost = max(0.0, calm - state.values[j])
        felt = max(state.level[n] for n in placement.nodes)
        guilty = [n for n in placement.nodes if state.level[n] == felt]
        for n in placement.nodes:
            stake[n] += state.values[j] / placement.span
        for n in guilty:
            stake[n] += 2.0 * lost / len(guilty)
    return stake
