"""Which nodes can host a job at all, and how many of its tasks one of them can hold."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.pressure import level_capacities
from coplace.instances.instance import Instance
from coplace.instances.job import Job


class NodeArrays:
    """The nodes of an instance as arrays, in its order.

    Attributes:
        names: node names.
        free: free amounts by [node, resource] (GPUs, milli-cores, MiB).
        gpu_type: index into the instance's ``gpu_types``.
        capacities: intensity that each pressure level allows, by [node, level].
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
        self.capacities: NDArray[np.int64] = np.array(capacities, dtype=np.int64).reshape(len(nodes), -1)
        self.open = np.array([node.available and not node.cordoned for node in nodes], dtype=bool)
        self._by_selector: dict[tuple[tuple[str, str], ...], NDArray[np.bool_]] = {}
        self._limits: dict[tuple[tuple[str, str], ...], list[HostLimits]] = {}

    def selected(self, job: Job) -> NDArray[np.bool_]:
        """Nodes whose labels match the job's selector, by [node]."""
        key = tuple(sorted(job.node_selector.items()))
        mask = self._by_selector.get(key)
        if mask is None:
            nodes = self.instance.nodes
            found = np.array([node.available and node.matches(job.node_selector) for node in nodes], dtype=bool)
            mask = self._by_selector[key] = found
        return mask

    def limits(self, job: Job) -> list[HostLimits]:
        """The most that any one node offers the job, by GPU type of the instance."""
        key = tuple(sorted(job.node_selector.items()))
        limits = self._limits.get(key)
        if limits is None:
            selected = self.selected(job)
            types = range(len(self.instance.gpu_types))
            limits = self._limits[key] = [self._limit(selected & (self.gpu_type == t)) for t in types]
        return limits

    def _limit(self, mask: NDArray[np.bool_]) -> HostLimits:
        if not mask.any():
            return HostLimits(0, np.zeros(3, dtype=np.int64), np.zeros(self.capacities.shape[1], dtype=np.int64))
        return HostLimits(int(mask.sum()), self.free[mask].max(axis=0), self.capacities[mask].max(axis=0))


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
