"""Price-guided construction: every job takes the column that prices say is worth most and that still fits.

Prices make the jobs agree on who should have what without seeing each other; placing the large pieces first leaves the
small ones to fill the gaps. What is left over is then given away by the greedy method.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coplace.formulations.columns import ColumnSet
from coplace.formulations.relaxation import Prices
from coplace.formulations.scoring import Scoring
from coplace.instances.plan import Plan
from coplace.solver.greedy import greedy
from coplace.solver.packing import Packer
from coplace.solver.placement import Placement, Shape
from coplace.solver.state import State

TRIES = 40
"""Columns of a job that are tried before it is left to the greedy method."""


def guided(scoring: Scoring, columns: ColumnSet, prices: Prices, stopped: Callable[[], bool]) -> Plan:
    """A feasible plan near what the relaxation would like.

    Jobs that had best go on as they are stay; the others are placed by falling size of their largest piece, each at
    the column with the least shortfall that fits within the column's span and level.
    """
    state = State(scoring, Plan())
    packer = Packer(state)
    stays, changes = _split(state, columns, prices)
    for j in stays:
        kept = state.kept_placements[j]
        assert kept is not None
        state.put(j, kept)
    changes.sort(key=lambda j: (prices.surplus[j] > 0, *_largest_piece(columns, prices, j)), reverse=True)
    for j in changes:
        if stopped():
            break
        placement = _first_that_fits(state, packer, columns, prices, j)
        if placement is not None:
            state.put(j, placement)
    state.spend_moves()
    greedy(state, stopped)
    return state.plan()


def _split(state: State, columns: ColumnSet, prices: Prices) -> tuple[list[int], list[int]]:
    """Jobs that stay as they are, and jobs that start or change, as far as the move budget goes."""
    stays, changes = [], []
    wishes: list[tuple[float, int]] = []
    for j, choices in enumerate(columns.jobs):
        if state.kept_placements[j] is None:
            if choices.columns:
                changes.append(j)
            continue
        kept = float(prices.kept_shortfall[j].min(initial=np.inf))
        moved = float(prices.shortfall[j].min(initial=np.inf))
        if choices.must_keep or kept <= moved:
            stays.append(j)
        else:
            wishes.append((moved - kept, j))
    budget = len(wishes) if state.moves_left is None else state.moves_left
    wishes.sort()
    changes += [j for _, j in wishes[:budget]]
    stays += [j for _, j in wishes[budget:]]
    return stays, changes


def _largest_piece(columns: ColumnSet, prices: Prices, j: int) -> tuple[int, int]:
    """GPUs, then CPU, that the job's best column needs on one node at least."""
    choices = columns.jobs[j]
    column = choices.columns[int(np.argmin(prices.shortfall[j]))]
    piece = -(-column.workers // column.span)
    cpu = choices.job.worker.profiles[column.worker_profile].cpu * piece
    if column.span == 1 and choices.job.ps is not None:
        cpu += choices.job.ps.profiles[column.ps_profile].cpu * column.servers
    return piece * choices.job.worker.gpu, cpu


def _first_that_fits(state: State, packer: Packer, columns: ColumnSet, prices: Prices, j: int) -> Placement | None:
    shortfall = prices.shortfall[j]
    enough = prices.surplus[j] + 1e-9 * abs(prices.bound)  # beyond it, running nothing is better
    for k in np.argsort(shortfall, kind="stable")[:TRIES].tolist():
        if shortfall[k] > enough:
            return None
        column = columns.jobs[j].columns[k]
        shape = Shape(column.gpu_type, column.workers, column.servers, column.worker_profile, column.ps_profile)
        placement = packer.place(j, shape, column.level)
        if isinstance(placement, Placement) and placement.span <= column.span:
            return placement
    return None
