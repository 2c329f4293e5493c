"""Rules between the parts of an instance, checked once when it is built."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from coplace.instances.cluster import NO_GPU, RESOURCES, Node
from coplace.instances.demand import task_demand
from coplace.instances.errors import Problem, plain, shorten
from coplace.instances.job import Job
from coplace.instances.plan import ROLES, WORKER
from coplace.instances.quantities import format_cpu, format_memory
from coplace.instances.speed import (
    AllReduceSpeed,
    PsAsyncSpeed,
    PsSyncSpeed,
    TableSpeed,
    speed_types,
)

if TYPE_CHECKING:
    from coplace.instances.instance import Instance


SHORTEST_STEP = 1e-12
"""Smallest a + b of a speed in seconds: a step that takes no time has no speed."""

MOST = 21
"""Contradictions that are looked for at most: a wrong list of nodes would yield one, with advice, per running job."""


def inconsistencies(instance: Instance) -> list[Problem]:
    """What contradicts itself in *instance*, the first :data:`MOST` of it; empty if it is sound."""
    nodes = {node.name: node for node in instance.nodes}
    return list(itertools.islice(_parts(instance, nodes), MOST)) or list(
        itertools.islice(_occupancy(instance, nodes), MOST)
    )


def _parts(instance: Instance, nodes: dict[str, Node]) -> Iterator[Problem]:
    twice = list(_duplicates("nodes", (node.name for node in instance.nodes)))
    if twice:
        yield from twice
        return  # whatever else is said about one of two nodes might be meant of the other
    yield from _duplicates("jobs", (job.name for job in instance.jobs))
    yield from _ladder(instance.pressure_levels)
    said = None
    for node in instance.nodes:
        alike = (node.gpu_type, node.capacity, node.used, node.lost)
        if alike != said:  # a counted group is wrong once, not once per member
            yield from _node(node)
        said = alike
    cluster_types = {node.gpu_type for node in nodes.values()}
    for index, job in enumerate(instance.jobs):
        place = f"jobs[{index}]"
        yield from _counts(place, job)
        yield from _speed(place, job)
        yield from _types(place, job, cluster_types)
        yield from _current(place, job, nodes)


def near(word: str, known: Iterable[str]) -> str:
    """Advice that names the nearest known word, whatever its case; empty if none is near."""
    words = {each.casefold(): each for each in known}
    close = difflib.get_close_matches(word.casefold(), words, n=1)
    return f"did you mean {words[close[0]]}?" if close else ""


def nearest(word: str, known: Iterable[str]) -> str:
    """Advice that names the nearest known word, or some of them."""
    words = list(known)
    some = ", ".join(words[:6]) + (", …" if len(words) > 6 else "")
    return near(word, words) or (f"known: {some}" if words else "")


def _duplicates(place: str, names: Iterable[str]) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            where = f"{place}[{index}].name" if place == "jobs" else place
            yield Problem(where, "names must be unique", repr(name), "rename one of the two")
        seen.add(name)


def _ladder(levels: tuple[float, ...]) -> Iterator[Problem]:
    if any(low >= high for low, high in itertools.pairwise(levels)):
        yield Problem("pressure_levels", "must ascend", shorten(levels))


def _node(node: Node) -> Iterator[Problem]:
    place = f"node {node.name}"
    if (node.gpu > 0) == (node.gpu_type == NO_GPU):
        found = f"gpu_type {node.gpu_type} with gpu {node.gpu}"
        yield Problem(place, "a node has both a gpu_type and gpu ≥ 1, or neither", found)
    lost = (0, 0, 0) if node.lost == "all" else node.lost.vector
    for resource, has, gone, used in zip(RESOURCES, node.capacity, lost, node.used.vector, strict=True):
        for word, amount in (("lost", gone), ("used", used)):
            if amount > has:
                found = f"{_amount(resource, amount)} {word} of {_amount(resource, has)}"
                yield Problem(f"{place}: {word}.{resource}", "must not exceed the capacity", found)


def _counts(place: str, job: Job) -> Iterator[Problem]:
    if (job.architecture == "ps") != (job.ps is not None):
        rule = "architecture ps needs a ps role, architecture allreduce has none"
        found = f"{job.architecture} {'with' if job.ps else 'without'} ps"
        yield Problem(f"{place}.architecture", rule, found)
    for role in job.roles:
        spec = job.role(role)
        if spec is not None and spec.min > spec.max:
            yield Problem(f"{place}.{role}.min", "must not exceed max", f"min {spec.min}, max {spec.max}")
    if job.requested is not None:
        if not job.worker.min <= job.requested.workers <= job.worker.max:
            found = f"{job.requested.workers} of {job.worker.min} to {job.worker.max}"
            yield Problem(f"{place}.requested.workers", "must lie between the role's min and max", found)
        if not job.min_servers <= job.requested.servers <= job.max_servers:
            found = f"{job.requested.servers} of {job.min_servers} to {job.max_servers}"
            yield Problem(f"{place}.requested.servers", "must lie between the role's min and max", found)
        if job.requested.gpu_type is not None and job.requested.gpu_type not in job.types:
            found = repr(job.requested.gpu_type)
            mend = nearest(job.requested.gpu_type, job.types)
            yield Problem(f"{place}.requested.gpu_type", "must be a type that the job allows", found, mend)


def _speed(place: str, job: Job) -> Iterator[Problem]:
    fits = {"ps-sync": "ps", "ps-async": "ps", "allreduce": "allreduce", "table": job.architecture}
    if fits[job.speed.form] != job.architecture:
        found = f"{job.speed.form} with {job.architecture}"
        yield Problem(f"{place}.speed.form", "must suit the architecture", found)
    if isinstance(job.speed, TableSpeed):
        points = [(point.gpu_type, point.workers, point.servers) for point in job.speed.points]
        if len(points) != len(set(points)):
            yield Problem(f"{place}.speed.points", "each (gpu_type, workers, servers) stands once")
        if job.architecture == "ps" and any(servers == 0 for _, _, servers in points):
            yield Problem(f"{place}.speed.points", "points of a ps job have servers ≥ 1")
    elif isinstance(job.speed, PsSyncSpeed | PsAsyncSpeed | AllReduceSpeed):
        for gpu_type, coefficients in job.speed.types.items():
            if coefficients.a + coefficients.b < SHORTEST_STEP:
                rule = f"a + b must be at least {plain(SHORTEST_STEP)} (a step takes time)"
                yield Problem(f"{place}.speed.types.{gpu_type}", rule, f"{coefficients.a + coefficients.b:g}")
    if isinstance(job.speed, AllReduceSpeed):
        for gpu_type, ring in job.speed.types.items():
            if ring.latency_inter < ring.latency_intra or ring.transfer_inter < ring.transfer_intra:
                rule = "inter-node coefficients must not be below the intra-node ones"
                yield Problem(f"{place}.speed.types.{gpu_type}", rule)


def _types(place: str, job: Job, cluster_types: set[str]) -> Iterator[Problem]:
    known = speed_types(job.speed)
    for index, gpu_type in enumerate(job.gpu_types or ()):
        if gpu_type not in known:
            rule = "must be a GPU type with a speed in speed.types or speed.points"
            yield Problem(f"{place}.gpu_types[{index}]", rule, repr(gpu_type), nearest(gpu_type, known))
    if job.types and not cluster_types.intersection(job.types):
        rule = "at least one GPU type of a job must exist in the cluster"
        found = ", ".join(job.types)
        yield Problem(
            place + (".gpu_types" if job.gpu_types else ".speed"), rule, found, nearest(found, sorted(cluster_types))
        )


def _current(place: str, job: Job, nodes: dict[str, Node]) -> Iterator[Problem]:
    if job.current is None:
        if job.pinned:
            yield Problem(
                f"{place}.pinned", "only a running job can be pinned", "no current", "give current or unpin it"
            )
        return
    for role, placed in job.current.tasks.items():
        for name in placed:
            if name not in nodes:
                where = f"{place}.current.tasks.{role}"
                rule = "must name nodes of the cluster (one that failed stays in the list, with lost: all)"
                yield Problem(where, rule, repr(name), nearest(name, nodes))
    for role in ROLES:
        spec = job.role(role)
        if spec is None and job.current.count(role):
            yield Problem(f"{place}.current.tasks.{role}", f"the job has no role {role}")
        if spec is not None and job.current.count(role) == 0:
            yield Problem(f"{place}.current.tasks", f"a running job has tasks in every role; {role} is missing")
        if spec is not None and job.current.profile(role) >= len(spec.profiles):
            rule = f"must be an index into the {len(spec.profiles)} profiles of the role"
            yield Problem(f"{place}.current.profiles.{role}", rule, str(job.current.profile(role)))
    on = {nodes[name].gpu_type for name in job.current.tasks.get(WORKER, {}) if name in nodes}
    if len(on) > 1:
        found = ", ".join(sorted(on))
        yield Problem(f"{place}.current.tasks.worker", "all workers of a job run on one GPU type", found)


def _occupancy(instance: Instance, nodes: dict[str, Node]) -> Iterator[Problem]:
    """Running tasks and foreign use fit the node's capacity, failed parts included; otherwise the file is wrong."""
    load = {name: list(node.used.vector) for name, node in nodes.items()}
    for job in instance.jobs:
        if job.current is None:
            continue
        for role, placed in job.current.tasks.items():
            demand = task_demand(job, role, job.current)
            for name, tasks in placed.items():
                for r, amount in enumerate(demand):
                    load[name][r] += amount * tasks
    for name, amounts in load.items():
        for resource, has, amount in zip(RESOURCES, nodes[name].capacity, amounts, strict=True):
            if amount > has:
                rule = f"running tasks and used {resource} must fit the node"
                found = f"{_amount(resource, amount)} on {_amount(resource, has)}"
                mend = "capacity that failed is given as lost, not taken off"
                yield Problem(f"node {name}", rule, found, mend)


def _amount(resource: str, amount: int) -> str:
    if resource == "cpu":
        return f"{format_cpu(amount)} cpu"
    return f"{format_memory(amount)} memory" if resource == "memory" else f"{amount} gpu"
