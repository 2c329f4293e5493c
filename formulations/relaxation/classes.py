"""Nodes pooled by class: those that offer the same count as one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.pressure import level_capacities, levels
from coplace.instances.instance import Instance

Ints = NDArray[np.int64]


class Classes:
    """Classes of nodes with equal type, free amounts and level capacities, in the order of their first nodes.

    Attributes:
        of_node: the class of each node.
        gpu_type: index into the instance's ``gpu_types``, by [class].
        offers: what one node offers at a level, by [class, level, resource]: GPUs, milli-cores, MiB, intensity.
        size: number of nodes, by [class].
        levels: number of pressure levels.
    """

    def __init__(self, instance: Instance) -> None:
        found: dict[tuple[int, tuple[int, ...], tuple[int, ...]], int] = {}
        types = {gpu_type: t for t, gpu_type in enumerate(instance.gpu_types)}
        of_node = []
        self.levels = len(levels(instance))
        for node in instance.nodes:
            # nothing runs on a node that is lost
            capacities = level_capacities(instance, node) if node.available else (0,) * self.levels
            key = types[node.gpu_type], node.free, capacities
            of_node.append(found.setdefault(key, len(found)))
        self.of_node: Ints = np.array(of_node, dtype=np.int64)
        self.gpu_type: Ints = np.array([key[0] for key in found], dtype=np.int64)
        self.size = np.bincount(self.of_node, minlength=len(found)).astype(float)
        self.offers: Ints = np.zeros((len(found), self.levels, 4), dtype=np.int64)
        for c, (_, free, capacities) in enumerate(found):
            self.offers[c, :, :3] = free
            self.offers[c, :, 3] = capacities

    def __len__(self) -> int:
        return len(self.size)
