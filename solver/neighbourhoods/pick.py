"""Which columns of the free jobs a sub-problem gets: those that could matter most, within a number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.columns import JobColumns
from coplace.solver.neighbourhoods.incumbent import Incumbent
from coplace.solver.neighbourhoods.neighbourhood import Neighbourhood

Floats = NDArray[np.float64]

Worth = Callable[[int], Floats]
"""What each column of a job is worth above the price of what it uses, by [column]; larger is better."""

LEAST_PER_JOB = 8
"""Columns that every job has, however little they are worth."""


class Picker:
    """Chooses by how much a column falls short of the best that its job could do, running nothing included.

    Attributes:
        most: columns of a sub-problem, beside the least of each job and those of its present shape.
    """

    def __init__(self, worth: Worth, most: int) -> None:
        self.most = most
        self._worth = worth
        self._known: dict[int, tuple[Floats, NDArray[np.int64]]] = {}

    def pick(self, incumbent: Incumbent, neighbourhood: Neighbourhood) -> dict[int, list[int]]:
        """Positions of the chosen columns by job, ascending."""
        nodes = incumbent.state.nodes
        present = np.zeros(len(incumbent.instance.gpu_types), dtype=bool)
        present[nodes.gpu_type[list(neighbourhood.nodes)]] = True
        shortfalls, own = {}, {}
        for j in neighbourhood.jobs:
            choices = incumbent.columns.jobs[j]
            worth, shapes = self._columns(j, choices)
            fits = present[shapes[:, 0]]
            best = max(0.0, float(worth[fits].max(initial=0.0)))
            shortfalls[j] = np.where(fits, best - worth, np.inf)
            placement = incumbent.state.placements[j]
            own[j] = fits & (shapes == (placement.shape if placement is not None else (-1,) * 5)).all(axis=1)
        threshold = _smallest(np.concatenate([*shortfalls.values(), np.zeros(0)]), self.most)
        picked = {}
        for j, shortfall in shortfalls.items():
            within = max(threshold, _smallest(shortfall, LEAST_PER_JOB))
            picked[j] = np.flatnonzero(((shortfall <= within) & np.isfinite(shortfall)) | own[j]).tolist()
        return picked

    def _columns(self, j: int, choices: JobColumns) -> tuple[Floats, NDArray[np.int64]]:
        """Worth by [column] and shape (type, counts, profiles) by [column, 5]."""
        known = self._known.get(j)
        if known is None:
            shapes = np.array([column[:5] for column in choices.columns], dtype=np.int64).reshape(-1, 5)
            known = self._known[j] = np.asarray(self._worth(j), dtype=float), shapes
        return known


def _smallest(values: Floats, number: int) -> float:
    """The value that about *number* of them stay within."""
    return float(np.partition(values, number)[number]) if number < values.size else float("inf")


def by_density(incumbent: Incumbent) -> Worth:
    """Worth where nobody knows prices: every share of the cluster costs what the plan earns with such a share.

    A job's share is that of its dominant resource (Ghodsi et al., NSDI 2011).
    """
    total = np.maximum(incumbent.state.nodes.free.sum(axis=0), 1).astype(float)
    used = 0.0
    for j, placement in enumerate(incumbent.state.placements):
        if placement is not None:
            used += float((incumbent.state.total_demand(j, placement.shape) / total).max())
    price = incumbent.state.objective / used if used else 0.0

    def worth(j: int) -> Floats:
        choices = incumbent.columns.jobs[j]
        job, rows = choices.job, np.array(choices.columns, dtype=float).reshape(-1, 9)
        workers, servers, value = rows[:, 1], rows[:, 2], rows[:, 8]
        profiles = np.array([(profile.cpu, profile.memory) for profile in job.worker.profiles], dtype=float)
        each = profiles[rows[:, 3].astype(np.int64)]
        server_cpu = np.array([profile.cpu for profile in job.ps.profiles] if job.ps else [0], dtype=float)
        use = np.stack(
            [
                workers * job.worker.gpu,
                workers * each[:, 0] + servers * server_cpu[rows[:, 4].astype(np.int64)],
                workers * each[:, 1] + servers * rows[:, 7],
            ],
            axis=1,
        )
        return np.asarray(value - price * (use / total).max(axis=1, initial=0.0))

    return worth
