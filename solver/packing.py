"""Where the tasks of one job go: few nodes, tightly filled, under a chosen pressure level."""

from __future__ import annotations

from enum import Enum

import numpy as np
from numpy.typing import NDArray

from coplace.instances.cluster import Vector
from coplace.solver.placement import Placement, Shape
from coplace.solver.state import State

ANY_TYPE, WITHOUT_GPU = -1, -2
"""Groups of nodes beside those of a GPU type."""


class Shortage(Enum):
    """What there is no room for."""

    QUOTA = "quota"
    WORKERS = "workers"
    SERVERS = "servers"


class Packer:
    """Finds placements for jobs among what is free in a :class:`State`."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._no_gpu = np.array([node.gpu == 0 for node in state.instance.nodes], dtype=bool)
        self._host_cache: dict[tuple[int, int], NDArray[np.intp]] = {}
        self._most = state.instance.rules.max_tasks_per_node or 10**9

    def place(self, j: int, shape: Shape, level: int) -> Placement | Shortage:
        """A placement of job *j*, which runs nothing, that leaves every node it uses at *level* or lower.

        One node that holds the whole job is preferred, the tightest first; then the fewest nodes for the workers, with
        servers beside them as far as there is room, and elsewhere on nodes without GPUs before others.
        If this way of packing finds none, what it lacks room for.
        """
        if not self.state.within_quota(j, shape):
            return Shortage.QUOTA
        worker, server = self.state.demands(j, shape)
        return self._on_one_node(j, shape, level, worker, server) or self._on_several(j, shape, level, worker, server)

    def hosts(self, j: int, gpu_type: int) -> NDArray[np.intp]:
        """Positions, ascending, of the nodes of a type (or ANY_TYPE, WITHOUT_GPU) that may get tasks of job *j*."""
        job = self.state.instance.jobs[j]
        selected = self.state.nodes.selected(job)
        key = (id(selected), gpu_type)
        found = self._host_cache.get(key)
        if found is None:
            found = self._host_cache[key] = selected[self._in_group(selected, gpu_type)]
        return found

    def _in_group(self, nodes: NDArray[np.intp], gpu_type: int) -> NDArray[np.bool_]:
        arrays = self.state.nodes
        of_type = {ANY_TYPE: True, WITHOUT_GPU: self._no_gpu[nodes]}.get(gpu_type, arrays.gpu_type[nodes] == gpu_type)
        return np.asarray(arrays.open[nodes] & of_type)

    def _with_gpus(self, j: int, gpu_type: int, gpus: int) -> NDArray[np.intp]:
        """The nodes of a type that have so many GPUs free; in a full cluster these are few."""
        hosts = self.hosts(j, gpu_type)
        return hosts[self.state.free_gpus[hosts] >= gpus] if gpus else hosts

    def _on_one_node(self, j: int, shape: Shape, level: int, worker: Vector, server: Vector) -> Placement | None:
        state = self.state
        w, p = shape.workers, shape.servers
        need = tuple(w * a + p * b for a, b in zip(worker, server, strict=True))
        largest = state.nodes.limits(state.instance.jobs[j])[shape.gpu_type].free
        if w + p > self._most or need[0] > largest[0] or need[1] > largest[1] or need[2] > largest[2]:
            return None
        hosts = self._with_gpus(j, shape.gpu_type, need[0])
        free = state.free[hosts]
        fits = free[:, 1] >= need[1]  # GPUs have been looked at
        fits &= free[:, 2] >= need[2]
        intensities = state.intensities(j)
        added = w * intensities[0] + p * intensities[1]
        fits &= state.load[hosts] + added <= state.nodes.capacities[hosts, level]
        places = np.flatnonzero(fits)
        if not places.size:
            return None
        # tightest: fewest GPUs left over, then least CPU
        left = free[places, 0] * 10**9 + free[places, 1]
        n = int(hosts[places[np.argmin(left)]])
        return Placement(shape, {n: w}, {n: p} if p else {})

    def _on_several(self, j: int, shape: Shape, level: int, worker: Vector, server: Vector) -> Placement | Shortage:
        state = self.state
        hosts = self._with_gpus(j, shape.gpu_type, worker[0])
        intensities = state.intensities(j)
        room = self.room(hosts, level, worker, intensities[0], state.free[hosts], state.load[hosts])
        workers = _fewest(hosts, room, shape.workers)
        if workers is None:
            return Shortage.WORKERS
        if not shape.servers:
            return Placement(shape, workers)
        servers = self._servers_beside(j, shape, level, workers)
        if servers is not None:
            return Placement(shape, workers, servers)
        # The workers may have taken the only nodes that can hold the servers: the other way round.
        servers = self._servers(j, level, server, intensities[1], shape.servers)
        if servers is None:
            return Shortage.SERVERS
        free, load, room = self._after(hosts, servers, server, intensities[1])
        workers = _fewest(
            hosts, np.minimum(room, self.room(hosts, level, worker, intensities[0], free, load)), shape.workers
        )
        return Shortage.SERVERS if workers is None else Placement(shape, workers, servers)

    def _servers_beside(self, j: int, shape: Shape, level: int, workers: dict[int, int]) -> dict[int, int] | None:
        """Servers beside the workers as far as there is room, the others elsewhere; None if they do not fit."""
        worker, server = self.state.demands(j, shape)
        intensities = self.state.intensities(j)
        beside = np.sort(np.fromiter(workers, dtype=np.intp))
        free, load, room = self._after(beside, workers, worker, intensities[0])
        room = np.minimum(room, self.room(beside, level, server, intensities[1], free, load))
        left = shape.servers
        servers: dict[int, int] = {}
        for n, space in zip(beside.tolist(), room.tolist(), strict=True):
            take = min(left, space)
            if take > 0:
                servers[n] = take
                left -= take
        if not left:
            return servers
        elsewhere = self._servers(j, level, server, intensities[1], left, beside)
        return None if elsewhere is None else servers | elsewhere

    def _servers(
        self, j: int, level: int, server: Vector, intensity: int, count: int, aside: NDArray[np.intp] | None = None
    ) -> dict[int, int] | None:
        """*count* servers on nodes without GPUs if these can hold all, else on any; none on the nodes *aside*."""
        for hosts in (self.hosts(j, WITHOUT_GPU), self.hosts(j, ANY_TYPE)):
            room = self.room(hosts, level, server, intensity, self.state.free[hosts], self.state.load[hosts])
            if aside is not None and len(hosts):
                at = np.minimum(np.searchsorted(hosts, aside), len(hosts) - 1)
                room[at[hosts[at] == aside]] = 0
            placed = _fewest(hosts, room, count)
            if placed is not None:
                return placed
        return None

    def _after(
        self, hosts: NDArray[np.intp], placed: dict[int, int], demand: Vector, intensity: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """What *hosts* (ascending) have once the tasks *placed* are down: free amounts, load, tasks still allowed."""
        free, load = self.state.free[hosts], self.state.load[hosts]
        tasks = np.zeros(len(hosts), dtype=np.int64)
        nodes = np.fromiter(placed, dtype=np.intp)
        at = np.searchsorted(hosts, nodes)
        here = (at < len(hosts)) & (hosts[np.minimum(at, len(hosts) - 1)] == nodes)
        tasks[at[here]] = np.fromiter(placed.values(), dtype=np.int64)[here]
        return free - tasks[:, None] * np.array(demand), load + tasks * intensity, self._most - tasks

    def room(
        self,
        hosts: NDArray[np.intp],
        level: int,
        demand: Vector,
        intensity: int,
        free: NDArray[np.int64],
        load: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """How many tasks each of *hosts* can take, by [host]."""
        room = np.full(len(hosts), self._most, dtype=np.int64)
        for r in range(3):
            if demand[r]:
                np.minimum(room, free[:, r] // demand[r], out=room)
        bears = self.state.nodes.capacities[hosts, level] - load
        if intensity:
            np.minimum(room, bears // intensity, out=room)
        else:  # a task without intensity still feels the node's level
            room[bears < 0] = 0
        return np.maximum(room, 0, out=room)


def _fewest(hosts: NDArray[np.intp], room: NDArray[np.int64], count: int) -> dict[int, int] | None:
    """*count* tasks on as few hosts as possible: the roomiest first, the rest on the tightest that holds it."""
    if not len(hosts) or int(np.minimum(room, count).sum()) < count:
        return None
    if int(room.max()) >= count:
        enough = np.flatnonzero(room >= count)
        return {int(hosts[enough[np.argmin(room[enough])]]): count}
    order = np.argsort(-room, kind="stable")
    falling = room[order]
    placed: dict[int, int] = {}
    left = count
    for i, n in enumerate(order):
        space = int(falling[i])
        if space >= left:
            tightest = order[len(order) - 1 - int(np.searchsorted(falling[::-1], left))]
            placed[int(hosts[tightest])] = left
            return placed
        placed[int(hosts[n])] = space
        left -= space
    return None
