"""Starts some of the jobs of a generated instance: real placements that keep every rule."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from coplace.instances.cluster import Node, Vector
from coplace.instances.demand import demand
from coplace.instances.generation.drawing import lognormal
from coplace.instances.generation.speeds import rough_speed
from coplace.instances.job import Job
from coplace.instances.plan import PS, WORKER, Allocation, Role
from coplace.instances.speed import TableSpeed

LOOK = 256
"""Nodes looked at for one job: keeps large clusters linear, and places jobs near each other."""

PATIENCE = 200
"""Jobs in a row that may fail to fit before the cluster counts as full."""


class Room:
    """What is left of the nodes, by index."""

    def __init__(self, nodes: Sequence[Node], top_level: float | None) -> None:
        self.nodes = nodes
        self.free = [list(node.free) for node in nodes]
        self.load_left = [
            None if top_level is None else int(top_level * node.pressure_capacity + 1e-9) for node in nodes
        ]
        self.by_type: dict[str, list[int]] = {}
        for index, node in enumerate(nodes):
            self.by_type.setdefault(node.gpu_type, []).append(index)
        self.all = list(range(len(nodes)))
        self.gpus_left = {t: sum(self.free[i][0] for i in members) for t, members in self.by_type.items()}

    def fits(self, index: int, need: Vector, intensity: int) -> int:
        """Tasks that fit on a node."""
        if self.free[index][0] < need[0]:
            return 0
        counts = [has // asks for has, asks in zip(self.free[index], need, strict=True) if asks]
        load = self.load_left[index]
        if load is not None and intensity:
            counts.append(load // intensity)
        return min(counts, default=0)

    def take(self, index: int, need: Vector, intensity: int, tasks: int) -> None:
        """Occupy a node with *tasks*; negative gives back."""
        for r, asks in enumerate(need):
            self.free[index][r] -= asks * tasks
        self.gpus_left[self.nodes[index].gpu_type] -= need[0] * tasks
        load = self.load_left[index]
        if load is not None:
            self.load_left[index] = load - intensity * tasks

    def put(self, candidates: Iterable[int], count: int, need: Vector, intensity: int) -> dict[int, int] | None:
        """Put *count* tasks on the first *candidates* with room: index → tasks; None, and nothing taken, if too few."""
        placed: dict[int, int] = {}
        left = count
        for index in candidates:
            tasks = min(left, self.fits(index, need, intensity))
            if tasks:
                self.take(index, need, intensity, tasks)
                placed[index] = placed.get(index, 0) + tasks
                left -= tasks
            if not left:
                return placed
        self.give_back(placed, need, intensity)
        return None

    def forget_full(self, gpu_type: str, indices: Iterable[int]) -> None:
        """Look no more for GPUs on those of the nodes that have none left."""
        for index in indices:
            if not self.free[index][0]:
                self.by_type[gpu_type].remove(index)

    def give_back(self, placed: dict[int, int], need: Vector, intensity: int) -> None:
        """Undo a :meth:`put`."""
        for index, tasks in placed.items():
            self.take(index, need, intensity, -tasks)


def start_jobs(
    jobs: Sequence[Job], nodes: Sequence[Node], share: float, top_level: float | None, rng: random.Random
) -> list[Job]:
    """*jobs* with about *share* of them running, as many as fit; each at its requested counts or its smallest."""
    room = Room(nodes, top_level)
    order, failures = list(range(len(jobs))), 0
    rng.shuffle(order)
    started = list(jobs)
    wanted = -int(-share * len(jobs) // 1)
    for i in order:
        if not wanted or failures == PATIENCE:
            break
        found = _place(jobs[i], room, rng)
        if found is not None:
            started[i] = _running(jobs[i], *found, rng)
            wanted, failures = wanted - 1, 0
        else:
            failures += 1
    return started


def _place(job: Job, room: Room, rng: random.Random) -> tuple[Allocation, str] | None:
    """What the job is to run, and on which GPU type; None if it does not fit."""
    assert job.requested is not None
    types = [t for t in job.types if t in room.by_type]
    rng.shuffle(types)
    profile = rng.randrange(len(job.worker.profiles))
    for workers, servers in ((job.requested.workers, job.requested.servers), (job.worker.min, job.min_servers)):
        for gpu_type in types:
            found = _place_on(job, room, gpu_type, workers, servers, profile, rng)
            if found is not None:
                return found, gpu_type
    return None


def _place_on(
    job: Job, room: Room, gpu_type: str, workers: int, servers: int, profile: int, rng: random.Random
) -> Allocation | None:
    members = room.by_type[gpu_type]
    if room.gpus_left[gpu_type] < workers * job.worker.gpu or not members:
        return None
    need, intensity = demand(job, WORKER, workers, servers, profile), job.worker.intensity
    placed = room.put(_window(members, rng), workers, need, intensity)
    if placed is None:
        return None
    tasks: dict[Role, dict[str, int]] = {WORKER: _names(room, placed)}
    if job.ps is not None:
        server_need = demand(job, PS, workers, servers, 0)
        near = (*placed, *_window(room.all, rng))
        servers_on = room.put(near, servers, server_need, job.ps.intensity)
        if servers_on is None:
            room.give_back(placed, need, intensity)
            return None
        tasks[PS] = _names(room, servers_on)
    room.forget_full(gpu_type, placed)
    return Allocation(tasks=tasks, profiles={WORKER: profile} if profile else {})


def _window(members: Sequence[int], rng: random.Random) -> list[int]:
    """Up to :data:`LOOK` neighbouring entries from a random start, each once."""
    start = rng.randrange(len(members))
    count = min(LOOK, len(members))
    return [members[(start + step) % len(members)] for step in range(count)]


def _names(room: Room, placed: dict[int, int]) -> dict[str, int]:
    return {room.nodes[index].name: placed[index] for index in sorted(placed)}


def _running(job: Job, allocation: Allocation, gpu_type: str, rng: random.Random) -> Job:
    """The job with the history of one that has run for a while with these counts."""
    assert not isinstance(job.speed, TableSpeed)
    seconds = lognormal(rng, 1800.0, 1.2, 60.0, 5 * 86400.0)
    gpus = allocation.workers * job.worker.gpu
    speed = rough_speed(job.speed, gpu_type, allocation.workers, allocation.servers)
    return job.model_copy(
        update={
            "current": allocation,
            "progress": job.progress + float(max(1, round(speed * seconds))),
            "attained_gpu_seconds": job.attained_gpu_seconds + float(round(gpus * seconds)),
            "age_seconds": job.age_seconds + float(round(seconds)),
            "restarts": job.restarts + rng.choice((0, 0, 1, 2)),
        }
    )
