"""Which nodes can host a job at all, and how many of its tasks they can hold."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.pressure import level_capacities, levels
from coplace.instances.cluster import Vector
from coplace.instances.instance import Instance
from coplace.instances.job import Job

Selector = tuple[tuple[str, str], ...]
"""A node selector, sorted."""


class NodeArrays:
    """The nodes of an instance as arrays, in its order.

    Attributes:
        names: node names.
        free: free amounts by [node, resource] (GPUs, milli-cores, MiB).
        gpu_type: index into the instance's ``gpu_types``.
        capacities: intensity that each pressure level allows, by [node, level].
        available: whether anything of the node is left.
        open: whether new tasks may come: neither lost nor cordoned.
    """

    def __init__(self, instance: Instance) -> None:
        nodes = instance.nodes
        self.instance = instance
        self.names = [node.name for node in nodes]
        self.position = {name: n for n, name in enumerate(self.names)}
        self.free: NDArray[np.int64] = np.array([node.free for node in nodes], dtype=np.int64).reshape(-1, 3)
        types = {gpu_type: t for t, gpu_type in enumerate(instance.gpu_types)}
        self.gpu_type = np.array([types[node.gpu_type] for node in nodes], dtype=np.intp)
        capacities = [level_capacities(instance, node) for node in nodes]
        shape = (len(nodes), len(levels(instance)))
        self.capacities: NDArray[np.int64] = np.array(capacities, dtype=np.int64).reshape(shape)
        self.available = np.array([node.available for node in nodes], dtype=bool)
        self.open = self.available & ~np.array([node.cordoned for node in nodes], dtype=bool)
        self._by_selector: dict[Selector, NDArray[np.intp]] = {(): np.flatnonzero(self.available)}
        self._limits: dict[Selector, Limits] = {}
        self._kinds: dict[tuple[Selector, int | None], tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def selected(self, job: Job) -> NDArray[np.intp]:
        """Positions, ascending, of the nodes that are not lost and whose labels match the job's selector."""
        key = _selector(job)
        found = self._by_selector.get(key)
        if found is None:
            found = self._by_selector[()]
            for label in key:
                found = np.intersect1d(found, self._labelled.get(label, _NOWHERE), assume_unique=True)
            self._by_selector[key] = found
        return found

    def limits(self, job: Job) -> Limits:
        """The most that any one node offers the job, by GPU type of the instance."""
        key = _selector(job)
        limits = self._limits.get(key)
        if limits is None:
            limits = self._limits[key] = Limits(self, self.selected(job))
        return limits

    def most_tasks(self, job: Job, gpu_type: int | None, demand: Vector) -> int:
        """How many tasks of that demand the open nodes of a GPU type (None = any) hold if the job has them alone.

        A task that asks for nothing is limited by ``max_tasks_per_node`` alone.
        """
        rows, count = self._open_kinds(job, gpu_type)
        room = np.full(len(rows), self.instance.rules.max_tasks_per_node or _ANY_NUMBER, dtype=np.int64)
        for r, amount in enumerate(demand):
            if amount:
                np.minimum(room, rows[:, r] // amount, out=room)
        return int(room @ count)

    @cached_property
    def _labelled(self) -> dict[tuple[str, str], NDArray[np.intp]]:
        """Positions, ascending, of the nodes that carry a label."""
        positions: dict[tuple[str, str], list[int]] = {}
        for n, node in enumerate(self.instance.nodes):
            for label in node.labels.items():
                positions.setdefault(label, []).append(n)
        return {label: np.array(found, dtype=np.intp) for label, found in positions.items()}

    def _open_kinds(self, job: Job, gpu_type: int | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Distinct free amounts, by [kind, resource], of the open nodes that a job selects, and how many have them."""
        key = _selector(job), gpu_type
        kinds = self._kinds.get(key)
        if kinds is None:
            nodes = self.selected(job)
            nodes = nodes[self.open[nodes]]
            if gpu_type is not None:
                nodes = nodes[self.gpu_type[nodes] == gpu_type]
            kinds = self._kinds[key] = np.unique(self.free[nodes], axis=0, return_counts=True)
        return kinds


_ANY_NUMBER = 1_000_000
"""More tasks than a job can have."""

_NOWHERE = np.zeros(0, dtype=np.intp)

_NEXT_TO_NOTHING = 1e-9
"""An amount to divide by where there is nothing."""


def _selector(job: Job) -> Selector:
    return tuple(sorted(job.node_selector.items())) if job.node_selector else ()


class HostLimits(NamedTuple):
    """The most that any node of a set offers.

    Attributes:
        nodes: number of nodes.
        free: largest free amount of each resource (not all on one node).
        capacities: largest intensity capacity of each pressure level.
    """

    nodes: int
    free: NDArray[np.int64]
    capacities: NDArray[np.int64]


class Offers(NamedTuple):
    """The limits of some GPU types as arrays.

    Attributes:
        nodes: number of nodes, by [type].
        free: largest free amounts, by [type, resource].
        capacities: largest intensity capacities, by [type, level].
        pooled: CPU, memory and intensity, by [resource, type, level], next to nothing in place of 0.
        limited: whether there is a ladder of pressure levels.
    """

    nodes: NDArray[np.int64]
    free: NDArray[np.float64]
    capacities: NDArray[np.float64]
    pooled: NDArray[np.float64]
    limited: bool


class Limits:
    """The limits of some nodes by GPU type: those of one type by indexing; iterating gives the types with nodes.

    Attributes:
        largest: the limits of all these nodes together.
    """

    def __init__(self, arrays: NodeArrays, nodes: NDArray[np.intp]) -> None:
        order = nodes[np.argsort(arrays.gpu_type[nodes], kind="stable")]
        types, starts, counts = np.unique(arrays.gpu_type[order], return_index=True, return_counts=True)
        self._by_type: dict[int, HostLimits] = {}
        self._limited = bool(arrays.instance.pressure_levels)
        self._offers: dict[tuple[int, ...], Offers] = {}
        if len(types):
            free = np.maximum.reduceat(arrays.free[order], starts, axis=0)
            capacities = np.maximum.reduceat(arrays.capacities[order], starts, axis=0)
            for t, *limits in zip(types.tolist(), counts.tolist(), free, capacities, strict=True):
                self._by_type[t] = HostLimits(*limits)
        self._none = HostLimits(0, np.zeros(3, np.int64), np.zeros(arrays.capacities.shape[1], np.int64))
        self.largest = HostLimits(
            len(nodes), arrays.free[nodes].max(axis=0, initial=0), arrays.capacities[nodes].max(axis=0, initial=0)
        )

    def __getitem__(self, gpu_type: int) -> HostLimits:
        return self._by_type.get(gpu_type, self._none)

    @cached_property
    def fingerprint(self) -> tuple[tuple[int, ...], ...]:
        """All of these numbers: equal for equal limits."""
        return tuple(
            (t, limit.nodes, *limit.free.tolist(), *limit.capacities.tolist()) for t, limit in self._by_type.items()
        )

    def offers(self, types: tuple[int, ...]) -> Offers:
        """The limits of *types*, in that order."""
        found = self._offers.get(types)
        if found is None:
            limits = [self[t] for t in types]
            free = np.array([limit.free for limit in limits], dtype=float).reshape(-1, 3)
            capacities = np.array([limit.capacities for limit in limits], dtype=float).reshape(len(types), -1)
            pooled = np.stack([*(np.broadcast_to(free[:, [r]], capacities.shape) for r in (1, 2)), capacities])
            found = self._offers[types] = Offers(
                nodes=np.array([limit.nodes for limit in limits], dtype=np.int64),
                free=free,
                capacities=capacities,
                pooled=np.maximum(pooled, _NEXT_TO_NOTHING),
                limited=self._limited,
            )
        return found

    def __iter__(self) -> Iterator[HostLimits]:
        return iter(self._by_type.values())
