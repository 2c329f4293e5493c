"""The potentials of the nodes: from prices, typical tasks, and which resource beside GPUs is scarcest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.hosts import NodeArrays
from coplace.formulations.relaxation import Prices, Relaxation
from coplace.formulations.relaxation.demands import task_demands
from coplace.solver.kernel.board import CPU, GPU, INTENSITY, MEMORY
from coplace.solver.kernel.potential import CELLS, MOST_GPUS, by_ceiling, fill

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

GENEROSITY = 1.7
"""By how much a typical worker is thought to take more of the scarce resource than the mean one: room that is kept for
workers with more keeps GPUs from being stranded."""


class Valuation(NamedTuple):
    """See the attributes of the same names of :class:`~coplace.solver.kernel.board.Board`."""

    kind: Ints
    potential: Floats
    base: Ints
    scarce: Ints


def valuation(nodes: NodeArrays, relaxation: Relaxation, prices: Floats, guide: Prices) -> Valuation:
    """Potentials of *nodes* at *prices*, by [row], whose bound is *guide*."""
    scarce = _scarcest(relaxation, prices)
    types, levels = len(relaxation.instance.gpu_types), nodes.capacities.shape[1]
    most_gpus = max(int(nodes.free[:, GPU].max(initial=0)), 1)
    gpu_unit = -(-most_gpus // MOST_GPUS)
    offered = nodes.capacities if scarce == INTENSITY else nodes.free[:, scarce : scarce + 1]
    # without a ladder capacities are unlimited, and intensity is never scarce
    unit = max(1, -(-int(offered.max(initial=0)) // CELLS))
    cells = max(1, -(-int(offered.max(initial=0)) // unit))
    filled = [
        np.stack(
            [
                fill(most_gpus // gpu_unit, cells, *items)
                for items in _typical(relaxation, prices, guide, t, scarce, unit, gpu_unit)
            ]
        )
        for t in range(types)
    ]
    kind = np.zeros(len(nodes.names), dtype=np.int64)
    tables: list[Floats] = []
    known: dict[tuple[int, tuple[int, ...]], int] = {}
    for n, t in enumerate(nodes.gpu_type.tolist()):
        capacity = tuple((nodes.capacities[n] // unit).tolist()) if scarce == INTENSITY else (cells,) * levels
        number = known.setdefault((t, capacity), len(known))
        if number == len(tables):
            tables.append(by_ceiling(filled[t], np.array(capacity, dtype=np.int64), cells))
        kind[n] = number
    # a node with less of the scarce resource than the most is one of which the rest is in use
    base = np.zeros(len(kind), dtype=np.int64)
    if scarce != INTENSITY:
        base[:] = unit * cells
    table = np.stack(tables) if tables else np.zeros((0, levels, most_gpus // gpu_unit + 1, cells + 1))
    return Valuation(kind, table, base, np.array([scarce, unit, gpu_unit], dtype=np.int64))


def _scarcest(relaxation: Relaxation, prices: Floats) -> int:
    """The resource beside GPUs of which all that the nodes offer is worth most."""
    of = {"cpu": CPU, "memory": MEMORY, "intensity": INTENSITY}
    worth = dict.fromkeys(of.values(), 0.0)
    nodes = relaxation.classes.size.repeat(relaxation.levels)
    for i, row in enumerate(relaxation.rows):
        if row.kind == "pool" and row.resource in of and prices[i] > 0:
            worth[of[row.resource]] += prices[i] * float((relaxation.supply[i] * nodes).max(initial=0.0))
    if not relaxation.instance.pressure_levels:
        worth.pop(INTENSITY)
    return max(worth, key=lambda resource: worth[resource])


def _typical(
    relaxation: Relaxation, prices: Floats, guide: Prices, gpu_type: int, scarce: int, unit: int, gpu_unit: int
) -> list[tuple[Ints, Ints, Floats]]:
    """By level, what typical tasks take on a node of a type and what prices charge for them: GPUs, units, value."""
    choices = relaxation.choices
    wanted = _wanted(guide)
    if not len(wanted):
        none = np.zeros(0, dtype=np.int64)
        return [(none, none, np.zeros(0))] * relaxation.levels
    worker, server = relaxation.task_charges(prices, wanted)  # by [choice, level]
    of_worker, of_server = task_demands(choices, scarce, wanted)
    gpus = choices.jobs.worker_gpu[choices.job[wanted]]
    count = choices.workers[wanted].astype(float)
    here = choices.gpu_type[wanted] == gpu_type
    rows: list[tuple[int, int, Floats]] = []
    for each in np.unique(gpus[here]).tolist():
        alike = here & (gpus == each)
        share = count[alike] / count[alike].sum()
        takes = int(np.ceil(GENEROSITY * (share @ of_worker[alike]) / unit))
        rows.append((-(-each // gpu_unit), takes, share @ worker[alike]))
    with_servers = choices.servers[wanted] > 0
    units = -(-of_server[with_servers] // unit)
    rows += [(0, takes, server[with_servers][units == takes].max(axis=0)) for takes in np.unique(units).tolist()]
    rows = [row for row in rows if row[0] or row[1]]
    by_level = []
    for level in range(relaxation.levels):
        some = [(g, u, float(value[level])) for g, u, value in rows if value[level] > 0]
        by_level.append(
            (
                np.array([g for g, _, _ in some], dtype=np.int64),
                np.array([u for _, u, _ in some], dtype=np.int64),
                np.array([value for _, _, value in some], dtype=float),
            )
        )
    return by_level


def _wanted(guide: Prices) -> Ints:
    """The best choice of each job that is worth more than its price."""
    choices = guide.choices
    best = np.flatnonzero((guide.reduced >= guide.surplus[choices.job]) & (guide.reduced > 0))
    first = np.ones(len(best), dtype=bool)
    first[1:] = np.diff(choices.job[best]) > 0
    return np.asarray(best[first])
