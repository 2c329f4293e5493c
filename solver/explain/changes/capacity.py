"""More to run on: free capacity on a node that is there, a cordoned node opened, more nodes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.pressure import level_capacities
from coplace.formulations.rules import format_amount
from coplace.instances.cluster import RESOURCES, Node, Resources, Vector
from coplace.instances.instance import Instance
from coplace.instances.job import Job
from coplace.solver.explain.case import Case
from coplace.solver.explain.changes.change import Change
from coplace.solver.packing import ANY_TYPE
from coplace.solver.placement import Shape

MOST_PLACES = 4
"""Nodes, or numbers of new nodes, that are tried; the first is nearly always right, since rooms are counted exactly."""


class _Extra(NamedTuple):
    """What one node would have to have free beside what it has: amounts by resource, and intensity."""

    share: float
    node: int
    amounts: Vector
    pressure: int


def capacity(case: Case) -> Iterator[Change]:
    """The least more that one named node would have to have free: by what it has, or by what others leave."""
    found = sorted({extra for shape in case.shapes for extra in _extras(case, shape)})
    for extra in found[:MOST_PLACES]:
        node = case.instance.nodes[extra.node]
        parts = [format_amount(r, amount) for r, amount in zip(RESOURCES, extra.amounts, strict=True) if amount]
        if extra.pressure:
            parts.append(f"{extra.pressure} pressure capacity")
        words = f"{', '.join(parts)} more on node {node.name}"
        yield Change("capacity", words, extra.share, case.with_node(_roomier(node, extra)), case.plan)


def _extras(case: Case, shape: Shape) -> Iterator[_Extra]:
    """For each open node, what it lacks for the workers that fit nowhere else, and for servers.

    Servers go elsewhere, all on the node, or only those that fit nowhere else; which of these the others leave room
    for, the placement tells.
    """
    hosts, room = case.worker_room(shape)
    room = np.minimum(room, shape.workers)
    fitting = int(room.sum())
    any_hosts, server_room = _server_room(case, shape)
    for n, here in zip(hosts.tolist(), room.tolist(), strict=True):
        workers = max(0, shape.workers - (fitting - here))
        for servers in {0, shape.servers}:
            yield from _extra(case, shape, n, workers, servers)
    if fitting >= shape.workers and shape.servers:
        held = int(server_room.sum())
        for n, here in zip(any_hosts.tolist(), server_room.tolist(), strict=True):
            for servers in {shape.servers, max(1, shape.servers - (held - here))}:
                yield from _extra(case, shape, n, 0, servers)


def _server_room(case: Case, shape: Shape) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    hosts = case.packer.hosts(case.j, ANY_TYPE)
    room = case.room(hosts, case.state.demands(case.j, shape)[1], case.state.intensities(case.j)[1])
    return hosts, np.minimum(room, shape.servers)


def _extra(case: Case, shape: Shape, n: int, workers: int, servers: int) -> Iterator[_Extra]:
    """What node *n* lacks for so many tasks; nothing if it lacks nothing, or could never hold them."""
    state, node = case.state, case.instance.nodes[n]
    most = case.instance.rules.max_tasks_per_node
    if most is not None and workers + servers > most:
        return
    worker, server = state.demands(case.j, shape)
    free = state.free[n].tolist()
    gpu, cpu, memory = (max(0, workers * a + servers * b - has) for a, b, has in zip(worker, server, free, strict=True))
    intensities = state.intensities(case.j)
    load = state.load_of[n] + workers * intensities[0] + servers * intensities[1]
    pressure = _lacking_pressure(case, node, load)
    if (gpu and not node.gpu) or not (gpu or cpu or memory or pressure):
        return
    share = max(case.share((gpu, cpu, memory)), pressure / case.total_pressure)
    yield _Extra(share, n, (gpu, cpu, memory), pressure)


def _lacking_pressure(case: Case, node: Node, load: int) -> int:
    """How much more pressure capacity *node* needs to bear *load* at the highest level."""
    if load <= level_capacities(case.instance, node)[-1]:
        return 0
    wanted = math.ceil(load / case.scoring.levels[-1])
    while level_capacities(case.instance, node.model_copy(update={"pressure_capacity": wanted}))[-1] < load:
        wanted += 1
    return wanted - node.pressure_capacity


def _roomier(node: Node, extra: _Extra) -> Node:
    """*node* with so much more capacity that this much more is free, whatever is lost and used."""
    lost = (0, 0, 0) if isinstance(node.lost, str) else node.lost.vector
    capacity = {
        resource: gone + used + free + more if more else has
        for resource, has, gone, used, free, more in zip(
            RESOURCES, node.capacity, lost, node.used.vector, node.free, extra.amounts, strict=True
        )
    }
    return node.model_copy(update=capacity | {"pressure_capacity": node.pressure_capacity + extra.pressure})


def uncordon(case: Case) -> Iterator[Change]:
    """Opening a cordoned node, that with the least free first."""
    closed = [
        (case.share(case.state.free[n]), n)
        for n in case.state.nodes.selected(case.job).tolist()
        if not case.state.nodes.open[n] and any(_helps(case, shape, n) for shape in case.shapes)
    ]
    for share, n in sorted(closed)[:MOST_PLACES]:
        node = case.instance.nodes[n]
        yield Change("uncordon", f"uncordon node {node.name}", share,
                     case.with_node(node.model_copy(update={"cordoned": False})), case.plan)  # fmt: skip


def _helps(case: Case, shape: Shape, n: int) -> bool:
    """Whether node *n*, opened, would make room for all workers, or at least for a server where these have room."""
    _, room = case.worker_room(shape)
    worker, server = case.state.demands(case.j, shape)
    intensities = case.state.intensities(case.j)
    here = np.array([n], dtype=np.intp)
    missing = shape.workers - int(np.minimum(room, shape.workers).sum())
    if missing > 0:
        of_type = int(case.state.nodes.gpu_type[n]) == shape.gpu_type
        return of_type and int(case.room(here, worker, intensities[0])[0]) >= missing
    return shape.servers > 0 and int(case.room(here, server, intensities[1])[0]) > 0


def node(case: Case) -> Iterator[Change]:
    """More nodes like one that is there, the fewest that hold what finds no room."""
    wanted = []
    for number, like in enumerate(_distinct(case.instance, case.job)):
        fewest = [k for shape in case.shapes if (k := _fewest_new(case, shape, like))]
        if fewest:
            each = case.share(like.capacity)
            wanted += [(k * each, number, k, like) for k in range(min(fewest), min(fewest) + MOST_PLACES)]
    wanted.sort(key=lambda entry: entry[:3])
    for share, _, k, like in wanted[: 2 * MOST_PLACES]:
        new = tuple(like.model_copy(update={"name": name}) for name in _new_names(case.instance, k))
        instance = case.instance.model_copy(update={"nodes": case.instance.nodes + new})
        more = "1 more node" if k == 1 else f"{k} more nodes"
        yield Change("node", f"{more} like {like.name}", share, instance, case.plan)


def _distinct(instance: Instance, job: Job) -> Iterator[Node]:
    """One node of each sort that the job may use, without what others use of it or what it lost."""
    seen = set()
    for node in instance.nodes:
        sort = (node.gpu_type, node.capacity, node.pressure_capacity, tuple(sorted(node.labels.items())))
        if sort not in seen and node.matches(job.node_selector):
            seen.add(sort)
            yield node.model_copy(update={"used": Resources(), "lost": Resources(), "cordoned": False})


def _fewest_new(case: Case, shape: Shape, like: Node) -> int:
    """How many new nodes the missing workers need, at least 1; 0 if such nodes are no use to the shape."""
    worker, server = case.state.demands(case.j, shape)
    intensities = case.state.intensities(case.j)
    _, room = case.worker_room(shape)
    missing = shape.workers - int(np.minimum(room, shape.workers).sum())
    if like.gpu_type != case.instance.gpu_types[shape.gpu_type]:
        return int(missing <= 0 and shape.servers > 0 and _tasks_on(case, like, server, intensities[1]) > 0)
    each = _tasks_on(case, like, worker, intensities[0])
    return max(1, -(-missing // each)) if each else 0


def _tasks_on(case: Case, node: Node, demand: Vector, intensity: int) -> int:
    """Tasks of that demand on an empty node."""
    room = [has // need for has, need in zip(node.capacity, demand, strict=True) if need]
    if intensity:
        room.append(level_capacities(case.instance, node)[-1] // intensity)
    if case.instance.rules.max_tasks_per_node is not None:
        room.append(case.instance.rules.max_tasks_per_node)
    return min(room, default=_ANY_NUMBER)


_ANY_NUMBER = 1_000_000
"""More tasks than a job can have."""


def _new_names(instance: Instance, count: int) -> list[str]:
    """Names that no node has."""
    names: list[str] = []
    number = 0
    while len(names) < count:
        if f"new-{number}" not in instance.node:
            names.append(f"new-{number}")
        number += 1
    return names
