"""Waiting jobs that would be worth most for what they take, and the nodes that earn least of those that could host."""

from __future__ import annotations

import random

import numpy as np

from coplace.solver.neighbourhoods.choosers.chooser import weighted
from coplace.solver.neighbourhoods.incumbent import Incumbent
from coplace.solver.neighbourhoods.neighbourhood import Neighbourhood, enclose


def starved(incumbent: Incumbent, size: int, draw: random.Random) -> Neighbourhood | None:
    """Some waiting jobs, dense ones more often, and *size* nodes that could host them, poor ones more often."""
    waiting = incumbent.waiting()
    if not waiting:
        return None
    density = [_density(incumbent, j) for j in waiting]
    most = max(density)
    chosen = weighted(waiting, [0.05 + d / most if most > 0 else 1.0 for d in density], 2 + size // 2, draw)
    hosts = sorted({n for j in chosen for n in incumbent.hosts(j)})
    if not hosts:
        return None
    earned = _earned(incumbent)
    highest = max(earned[n] for n in hosts)
    weights = [1.1 - earned[n] / highest if highest > 0 else 1.0 for n in hosts]
    return enclose(incumbent, weighted(hosts, weights, size, draw), chosen)


def _density(incumbent: Incumbent, j: int) -> float:
    """The greatest value per GPU of any choice, per task where it has none."""
    choices = incumbent.columns.jobs[j]
    each = max(1, choices.job.worker.gpu)
    best = 0.0
    if choices.columns:
        rows = np.array([(column.value, column.workers) for column in choices.columns])
        best = float((rows[:, 0] / (rows[:, 1] * each)).max())
    for line in choices.lines:
        best = max(best, max(v / (w * each) for w, v in zip(line.curve.xs, line.curve.vs, strict=True)))
    return best


def _earned(incumbent: Incumbent) -> list[float]:
    """By [node], the values of its jobs, shared equally among the nodes that they use."""
    earned = [0.0] * len(incumbent.state.level)
    for j, placement in enumerate(incumbent.state.placements):
        if placement is not None:
            for n in placement.nodes:
                earned[n] += incumbent.state.values[j] / placement.span
    return earned
