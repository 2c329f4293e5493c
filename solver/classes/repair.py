"""From a packing that left some jobs out to a plan: they take the best column that still fits, then greedy fills up."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from coplace.formulations.columns import ColumnSet
from coplace.formulations.relaxation import Prices
from coplace.formulations.scoring import Scoring
from coplace.instances.plan import Plan
from coplace.solver.greedy import greedy
from coplace.solver.packing import Packer
from coplace.solver.placement import Placement, Shape
from coplace.solver.state import State

TRIES = 60
"""Columns of a job that are tried before it is left to the greedy method."""


def orders(columns: ColumnSet, left: Sequence[int], seed: int) -> Iterator[list[int]]:
    """Orders of jobs that are worth a try: the most valuable first, the largest first, then by value and chance."""
    value = {j: max((column.value for column in columns.jobs[j].columns), default=0.0) for j in left}
    size = {j: columns.jobs[j].job.worker.gpu * (1 + columns.jobs[j].job.worker.intensity) for j in left}
    yield sorted(left, key=lambda j: -value[j])
    yield sorted(left, key=lambda j: -size[j])
    draw = random.Random(seed)
    while True:
        shaken = {j: value[j] * draw.uniform(0.0, 1.0) for j in left}
        yield sorted(left, key=lambda j: -shaken[j])


def completed(
    scoring: Scoring, plan: Plan, columns: ColumnSet, prices: Prices, order: Sequence[int], stopped: Callable[[], bool]
) -> Plan:
    """*plan* with the jobs *order*, one after the other, each at the column with the least shortfall that fits."""
    state = State(scoring, plan)
    packer = Packer(state)
    for j in order:
        if stopped():
            break
        placement = _first_that_fits(packer, columns, prices, j)
        if placement is not None and state.effect(j, placement).gain > 0:
            state.put(j, placement)
    state.spend_moves()
    greedy(state, stopped)
    return state.plan()


def _first_that_fits(packer: Packer, columns: ColumnSet, prices: Prices, j: int) -> Placement | None:
    shortfall = prices.shortfall[j]
    for k in np.argsort(shortfall, kind="stable")[:TRIES].tolist():
        column = columns.jobs[j].columns[k]
        shape = Shape(column.gpu_type, column.workers, column.servers, column.worker_profile, column.ps_profile)
        placement = packer.place(j, shape, column.level)
        if isinstance(placement, Placement) and placement.span <= column.span:
            return placement
    return None
