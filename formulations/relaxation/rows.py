"""Rows of demand ≤ supply: what a price is the price of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.relaxation.choices import Choices
from coplace.formulations.relaxation.classes import Classes
from coplace.instances.cluster import RESOURCES
from coplace.instances.instance import Instance

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

POOLED = (*RESOURCES, "intensity")
"""Resources of pools, in the order of a demand."""

GPU, CPU, MEMORY, INTENSITY = range(4)

MOST_PARTS = 8
"""Sizes of intensity are just above the k-th part of a level's capacity, k = 2, 3, … up to this, so that a node holds
k − 1 such pieces though it offers nearly k."""


class Row(NamedTuple):
    """A row of the relaxation, the same in every round that has it.

    * ``pool``: of the nodes of a GPU type (None = of all nodes) that run at a level or below, and tasks of choices that
      tolerate no higher one: pieces of ``size`` that tasks take ≤ pieces that the nodes offer. Both are rounded down,
      the former by task or, for a job on one node, in total. With size 1 these are the amounts themselves.
    * ``quota``: of a tenant and a resource.
    * ``moves``: the move budget.

    Attributes:
        kind: which of these.
        resource: gpu, cpu, memory or intensity (pools only).
        gpu_type: by name.
        level: position in the ladder of pressure levels.
        size: GPUs, milli-cores, MiB or units of intensity.
        tenant: of a quota.
    """

    kind: Literal["pool", "quota", "moves"]
    resource: str | None = None
    gpu_type: str | None = None
    level: int = 0
    size: int = 1
    tenant: str | None = None

    def key(self) -> dict[str, Any]:
        """What identifies the row within its kind, as in a result."""
        if self.kind == "pool":
            return {"resource": self.resource, "type": self.gpu_type, "level": self.level, "size": self.size}
        return {"tenant": self.tenant, "resource": self.resource} if self.kind == "quota" else {}

    def order(self) -> tuple[Any, ...]:
        """Sorts rows: pools, quotas, moves; then by key, all nodes before the types."""
        kind = ("pool", "quota", "moves").index(self.kind)
        resource = -1 if self.resource is None else POOLED.index(self.resource)
        return (kind, self.tenant or "", resource, self.gpu_type or "", self.level, self.size)


class PricedRow(NamedTuple):
    """A row and its price, in the unit of the objective for each unit of the row."""

    row: Row
    price: float


def rows_of(instance: Instance, choices: Choices, classes: Classes, thresholds: bool) -> list[Row]:
    """The rows that can bind: pools, then quotas, then the move budget.

    Of GPUs there is a row for each number that some worker asks for; *thresholds* adds rows of intensity by pieces.
    """
    rows = list(_pools(instance, choices, classes, thresholds))
    for tenant, quota in instance.rules.quotas.items():
        limits = zip(RESOURCES, quota.vector, strict=True)
        rows += [Row("quota", resource, tenant=tenant) for resource, limit in limits if limit is not None]
    if instance.rules.move_budget is not None:
        rows.append(Row("moves"))
    return rows


def _pools(instance: Instance, choices: Choices, classes: Classes, thresholds: bool) -> Iterator[Row]:
    kinds, levels = len(instance.gpu_types), classes.levels
    taken = np.bincount(choices.gpu_type * np.int64(levels) + choices.level, minlength=kinds * levels)
    taken = taken.reshape(kinds, levels).cumsum(axis=1)
    sizes = sorted({job.worker.gpu for job in instance.jobs if job.worker.gpu})
    for level in range(levels):
        for t, gpu_type in [(None, None), *enumerate(instance.gpu_types)]:
            here = slice(None) if t is None else classes.gpu_type == t
            if not taken[slice(None) if t is None else t, level].any():
                continue
            yield from (Row("pool", resource, gpu_type, level) for resource in ("cpu", "memory"))
            if instance.pressure_levels:
                yield Row("pool", "intensity", gpu_type, level)
                capacities = classes.offers[here, : level + 1, INTENSITY] if thresholds else ()
                yield from (Row("pool", "intensity", gpu_type, level, size) for size in _thresholds(capacities))
            if t is not None:
                yield from (Row("pool", "gpu", gpu_type, level, size) for size in sizes)


def _thresholds(capacities: Ints | tuple[()]) -> list[int]:
    """Sizes just above a part of a capacity."""
    distinct = np.unique(capacities).astype(np.int64)
    return sorted({int(cap) // k + 1 for cap in distinct if cap for k in range(2, MOST_PARTS + 1)} - {1})


class Groups:
    """Pool rows by resource and size, which share coefficients: what a task takes depends on nothing else.

    Attributes:
        resource, size: by [group].
        of_row: the group of each row, −1 for quotas and moves.
        place: position of each row within [type, level], all nodes behind the types.
    """

    def __init__(self, instance: Instance, rows: list[Row]) -> None:
        self.types, self.levels = len(instance.gpu_types), len(instance.pressure_levels) or 1
        types: Mapping[str | None, int] = {name: t for t, name in enumerate((*instance.gpu_types, None))}
        found: dict[tuple[int, int], int] = {}
        self.of_row = np.full(len(rows), -1)
        self.place = np.zeros(len(rows), dtype=np.int64)
        for i, row in enumerate(rows):
            if row.kind == "pool":
                group = POOLED.index(str(row.resource)), row.size
                self.of_row[i] = found.setdefault(group, len(found))
                self.place[i] = types[row.gpu_type] * self.levels + row.level
        self.resource = [resource for resource, _ in found]
        self.size = [size for _, size in found]

    def charges(self, prices: Floats) -> Floats:
        """What a choice at a level is charged for a piece, by [group, type, level]; by rows of all nodes at type −1."""
        table = np.zeros((len(self.size), (self.types + 1) * self.levels))
        pools = self.of_row >= 0
        np.add.at(table, (self.of_row[pools], self.place[pools]), prices[pools])
        by_level = table.reshape(len(self.size), self.types + 1, self.levels)
        return np.asarray(by_level[:, :, ::-1].cumsum(axis=2)[:, :, ::-1])  # a row counts at its level and below


def supplies(instance: Instance, classes: Classes, rows: list[Row]) -> Floats:
    """What one node of a class offers when it runs at a level, by [row, class, level]."""
    table = np.zeros((len(rows), len(classes), classes.levels))
    types = {name: t for t, name in enumerate(instance.gpu_types)}
    for i, row in enumerate(rows):
        if row.kind == "pool":
            offers = classes.offers[:, : row.level + 1, POOLED.index(str(row.resource))] // row.size
            here = True if row.gpu_type is None else (classes.gpu_type == types[row.gpu_type])[:, None]
            table[i, :, : row.level + 1] = offers * here
    return table


def fixed_supplies(instance: Instance, choices: Choices, rows: list[Row]) -> Floats:
    """What a row offers beside the nodes, by [row]: quotas, and the budget less the jobs that would count as moved."""
    table = np.zeros(len(rows))
    for i, row in enumerate(rows):
        if row.kind == "quota":
            table[i] = instance.rules.quotas[str(row.tenant)].vector[RESOURCES.index(str(row.resource))] or 0
        elif row.kind == "moves":
            # moves ≤ budget, with moves = counted jobs − kept ones
            table[i] = (instance.rules.move_budget or 0) - int(choices.jobs.counts_as_move.sum())
    return table
