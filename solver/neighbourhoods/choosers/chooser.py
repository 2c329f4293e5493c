"""What a chooser is, and what choosers share."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from coplace.solver.neighbourhoods.incumbent import Incumbent
from coplace.solver.neighbourhoods.neighbourhood import Neighbourhood


class Chooser(Protocol):
    """Chooses what may change; draws from nothing but the generator it is given."""

    def __call__(self, incumbent: Incumbent, size: int, draw: random.Random) -> Neighbourhood | None:
        """A neighbourhood of about *size* nodes, None if there is none of this kind."""
        ...


def some_waiting(incumbent: Incumbent, nodes: Sequence[int], draw: random.Random) -> list[int]:
    """About half as many waiting jobs as *nodes*, which some of these could host; valuable ones more often."""
    inside = set(nodes)
    waiting = [j for j in incumbent.waiting() if not inside.isdisjoint(incumbent.hosts(j))]
    return weighted(waiting, [incumbent.best_values[j] for j in waiting], 2 + len(nodes) // 2, draw)


def weighted(items: Sequence[int], weights: Sequence[float], number: int, draw: random.Random) -> list[int]:
    """At most *number* of *items*, each more likely the greater its weight ≥ 0, without repetition.

    Keys u^(1/weight), largest first (Efraimidis, Spirakis, IPL 97, 2006).
    """
    keyed = []
    for item, weight in zip(items, weights, strict=True):
        u = draw.random()
        keyed.append((u ** (1.0 / weight) if weight > 0 else u - 1.0, item))
    return [item for _, item in sorted(keyed, reverse=True)[:number]]
