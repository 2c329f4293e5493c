"""Another request of the waiting job itself: selector, GPU types, counts, profiles, weight."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coplace.instances.cluster import Vector
from coplace.instances.job import Job, Profile, RoleSpec
from coplace.instances.plan import PS, ROLES, WORKER, Role
from coplace.instances.quantities import format_cpu, format_memory
from coplace.instances.speed import TableSpeed, speed_types
from coplace.solver.explain.case import Case
from coplace.solver.explain.changes.change import Change
from coplace.solver.packing import ANY_TYPE
from coplace.solver.placement import Shape

MOST_TRIES = 6
"""Changes of a kind that are tried."""

MOST_PROFILES = 64
"""Profiles that a role may have."""


def selector(case: Case) -> Iterator[Change]:
    """One label that is no longer asked for, or all of them."""
    labels = case.job.node_selector
    for key, value in labels.items() if len(labels) > 1 else ():
        rest = {other: wanted for other, wanted in labels.items() if other != key}
        instance = case.with_job(case.job.model_copy(update={"node_selector": rest}))
        yield Change("selector", f"a node selector without {key}={value}", 0.0, instance, case.plan)
    if labels:
        gone = ", ".join(f"{key}={value}" for key, value in labels.items())
        words = f"a node selector without {gone}" if len(labels) > 1 else f"no node selector {gone}"
        yield Change(
            "selector", words, 0.0, case.with_job(case.job.model_copy(update={"node_selector": {}})), case.plan
        )


def gpu_type(case: Case) -> Iterator[Change]:
    """One more GPU type, of those for which the job's speed is known."""
    allowed = case.job.types
    for other in speed_types(case.job.speed):
        if other in allowed or other not in case.instance.gpu_types:
            continue
        job = case.job.model_copy(update={"gpu_types": (*(case.job.gpu_types or ()), other)})
        yield Change("gpu-type", f"{other} as a GPU type that it may use", 0.0, case.with_job(job), case.plan)


def counts(case: Case) -> Iterator[Change]:
    """Counts for which a speed was measured, where none of those allowed has one."""
    job = case.job
    if case.scoring.reference[case.j] > 0 or not isinstance(job.speed, TableSpeed):
        return
    types = set(case.instance.gpu_types) & set(job.types)
    points = {(point.workers, point.servers) for point in job.speed.points if point.gpu_type in types}
    found = []
    for workers, servers in points:
        wider = _widened(job, workers, servers)
        away = _away(job.worker, workers) + (_away(job.ps, servers) if job.ps else 0)
        if wider is not None:
            found.append((away, workers, servers, wider))
    found.sort(key=lambda entry: entry[:3])
    for _, workers, servers, wider in found[:MOST_TRIES]:
        tasks = _tasks(workers, WORKER) + (f" and {_tasks(servers, PS)}" if job.ps else "")
        yield Change("counts", f"{tasks} among its counts, for which a speed is known", 0.0,
                     case.with_job(wider), case.plan)  # fmt: skip


def _away(role: RoleSpec, count: int) -> int:
    return max(role.min - count, count - role.max, 0)


def _widened(job: Job, workers: int, servers: int) -> Job | None:
    """*job* with ranges that hold these counts."""
    update: dict[str, RoleSpec] = {"worker": _holding(job.worker, workers)}
    if job.ps is not None:
        if servers < 1:
            return None
        update["ps"] = _holding(job.ps, servers)
    return job.model_copy(update=update)


def _holding(role: RoleSpec, count: int) -> RoleSpec:
    return role.model_copy(update={"min": min(role.min, count), "max": max(role.max, count)})


def weight(case: Case) -> Iterator[Change]:
    """The least own weight at which starting a job that fits gains: λ is proportional to it."""
    if case.at_best is None:
        return
    effects = [case.at_best[0]]
    own, loss = effects[0].values[case.j], effects[0].values[case.j] - effects[0].gain
    if own <= 0 or loss < own:
        return
    factor = _rounded_up(loss / own * (1 + 1e-6))
    raised = case.job.weight * factor
    words = f"a weight of {raised:.6g} instead of {case.job.weight:g}, {factor:g} times as much"
    job = case.job.model_copy(update={"weight": raised})
    yield Change("weight", words, 0.0, case.with_job(job), case.plan)


def _rounded_up(factor: float) -> float:
    """To three digits."""
    unit = 10.0 ** (math.floor(math.log10(factor)) - 2)
    return round(math.ceil(factor / unit) * unit, 12)


def minimum(case: Case) -> Iterator[Change]:
    """The largest smaller minimum of workers, of servers, or of both, for which there may be room."""
    job = case.job
    found: dict[tuple[int, int], float] = {}
    least_servers = job.min_servers
    for shape in case.shapes:
        _, room = case.worker_room(shape)
        worker = case.state.demands(case.j, shape)[0]
        most = min([int(room.sum()), job.worker.min, *_within(case.quota_left(), worker)])
        tries = {most, most - 1, most // 2, 1} if most < job.worker.min else {most}
        for workers in tries:
            for servers in {least_servers, least_servers - 1, 1} if least_servers > 1 else {least_servers}:
                smaller = workers < job.worker.min or servers < least_servers
                if workers >= 1 and smaller and servers >= min(1, least_servers):
                    share = case.share(_given_up(case, shape, workers, servers))
                    found[workers, servers] = min(share, found.get((workers, servers), math.inf))
    for (workers, servers), share in sorted(found.items(), key=lambda entry: (entry[1], entry[0]))[:MOST_TRIES]:
        parts = []
        if workers < job.worker.min:
            parts.append(f"{_tasks(workers, WORKER)} instead of {job.worker.min}")
        if servers < least_servers:
            parts.append(f"{_tasks(servers, PS)} instead of {least_servers}")
        update: dict[str, RoleSpec] = {"worker": job.worker.model_copy(update={"min": workers})}
        if job.ps is not None:
            update["ps"] = job.ps.model_copy(update={"min": servers})
        words = f"a minimum of {' and '.join(parts)}"
        yield Change("minimum", words, share, case.with_job(job.model_copy(update=update)), case.plan)


def _tasks(count: int, role: Role) -> str:
    noun = "worker" if role == WORKER else "server"
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _within(left: Vector, worker: Vector) -> list[int]:
    """Workers that the quota still allows, by resource."""
    return [max(0, has) // need for has, need in zip(left, worker, strict=True) if need]


def _given_up(case: Case, shape: Shape, workers: int, servers: int) -> Vector:
    """What the job asks for less with fewer tasks."""
    before = case.state.total(case.j, shape)
    after = case.state.total(case.j, shape._replace(workers=workers, servers=servers))
    gpu, cpu, memory = (max(0, a - b) for a, b in zip(before, after, strict=True))
    return gpu, cpu, memory


def profile(case: Case) -> Iterator[Change]:
    """The largest smaller request of a worker or a server that would fit; assumed to be no slower."""
    found: dict[tuple[Role, int, int], tuple[float, Profile]] = {}
    for shape in case.shapes:
        for asking in _asking(case, shape):
            for cpu, memory in asking.smaller():
                less = (0, asking.count * (asking.cpu - cpu), asking.count * (asking.memory - memory))
                found.setdefault((asking.role, cpu, memory), (case.share(less), asking.profile))
    ranked = sorted(found.items(), key=lambda entry: (entry[1][0], entry[0]))
    for (role, cpu, memory), (share, base) in ranked[:MOST_TRIES]:
        job = _with_profile(case.job, role, base.model_copy(update={"cpu": cpu, "memory": min(memory, base.memory)}))
        parts = []
        if cpu < base.cpu:
            parts.append(f"{format_cpu(cpu)} instead of {format_cpu(base.cpu)} CPU")
        if memory < base.memory:
            parts.append(f"{format_memory(memory)} instead of {format_memory(base.memory)} memory")
        each = "worker" if role == WORKER else "server"
        words = f"a request of {' and '.join(parts)} for each {each}, if that is no slower"
        yield Change("profile", words, share, case.with_job(job), case.plan)


def _with_profile(job: Job, role: Role, added: Profile) -> Job:
    """*job* with one more profile to choose from in *role*."""
    spec = job.role(role)
    assert spec is not None
    profiles = (*spec.profiles[: MOST_PROFILES - 1], added)
    return job.model_copy(update={role: spec.model_copy(update={"profiles": profiles})})


@dataclass(frozen=True, slots=True)
class _Asking:
    """The tasks of one role that a shape asks room for.

    Attributes:
        profile: that they have; ``cpu`` and ``memory`` of one, the latter by the memory model where there is one.
        hosts: the nodes that may get them.
        free, load: what is free on each, by [host, resource], and the intensity there, by [host].
        spare: what the quota leaves beside them, by resource.
    """

    case: Case
    role: Role
    profile: Profile
    gpu: int
    cpu: int
    memory: int
    count: int
    intensity: int
    hosts: NDArray[np.intp]
    free: NDArray[np.int64]
    load: NDArray[np.int64]
    spare: Vector

    def fits(self, cpu: int, memory: int) -> bool:
        """Whether there is room for all if each asks for that."""
        request = (self.gpu, cpu, memory)
        if any(self.count * each > spare for each, spare in zip(request, self.spare, strict=True)):
            return False
        case = self.case
        room = case.packer.room(self.hosts, case.top, request, self.intensity, self.free, self.load)
        return int(np.minimum(room, self.count).sum()) >= self.count

    def smaller(self) -> Iterator[tuple[int, int]]:
        """The largest requests that fit with less CPU, with less memory, or with less of both; none if they fit."""
        cpu, memory = self.cpu, self.memory
        if self.fits(cpu, memory):
            return
        less_cpu = _largest(cpu - 1, lambda c: self.fits(c, memory))
        less_memory = _largest(memory - 1, lambda m: self.fits(cpu, m))
        thousandths = _largest(999, lambda s: self.fits(cpu * s // 1000, memory * s // 1000))
        if less_cpu:
            yield less_cpu, memory
        if less_memory:
            yield cpu, less_memory
        if thousandths and not less_cpu and not less_memory:
            yield max(1, cpu * thousandths // 1000), memory * thousandths // 1000


def _asking(case: Case, shape: Shape) -> Iterator[_Asking]:
    """Workers, then servers: first as if these had all that is free, then with the workers put down before them."""
    state = case.state
    demands, intensities = state.demands(case.j, shape), state.intensities(case.j)
    total, left = state.total(case.j, shape), case.quota_left()
    for role, count, demand, intensity in zip(ROLES, (shape.workers, shape.servers), demands, intensities, strict=True):
        spec = case.job.role(role)
        if spec is None:
            continue
        index, group = (shape.worker_profile, shape.gpu_type) if role == WORKER else (shape.ps_profile, ANY_TYPE)
        gpu, cpu, memory = (
            has - (all_tasks - count * each) for has, all_tasks, each in zip(left, total, demand, strict=True)
        )
        hosts = case.packer.hosts(case.j, group)
        free, load = state.free[hosts], state.load[hosts]
        tasks = [np.zeros(len(hosts), dtype=np.int64)]
        if role == PS:
            tasks.append(_workers_on(case, shape, hosts))
        for workers in tasks:
            yield _Asking(
                case, role, spec.profiles[index], *demand, count, intensity, hosts,
                free - workers[:, None] * np.array(demands[0]), load + workers * intensities[0], (gpu, cpu, memory),
            )  # fmt: skip


def _workers_on(case: Case, shape: Shape, hosts: NDArray[np.intp]) -> NDArray[np.int64]:
    """Workers on each of *hosts* (ascending, of any type) if the roomiest nodes take them, by [host]."""
    on, room = case.worker_room(shape)
    tasks = np.zeros(len(hosts), dtype=np.int64)
    left = shape.workers
    for n in np.argsort(-room, kind="stable").tolist():
        take = min(left, int(room[n]))
        tasks[int(np.searchsorted(hosts, on[n]))] += take
        left -= take
    return tasks


def _largest(most: int, fits: Callable[[int], bool]) -> int | None:
    """The largest whole number from 1 to *most* that fits, where all below one that fits do too; None if none does."""
    if most < 1 or not fits(1):
        return None
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
