"""Random plans of an instance: lawful ones, slightly wrong ones and nonsense."""

from __future__ import annotations

import random
from collections.abc import Iterator

from coplace.instances import Allocation, Instance, Job, Plan
from tests.oracle.scoring import Oracle, known_types, profile_of, tasks_of

Tasks = dict[str, dict[str, int]]


def sample_plans(oracle: Oracle, draw: random.Random, number: int) -> Iterator[Plan]:
    """Nothing, what runs now, keep-current, and *number* random plans, many of which break a rule or more."""
    instance = oracle.instance
    now = {job.name: job.current for job in instance.jobs if job.current is not None}
    yield Plan()
    yield Plan(allocations=now)
    yield oracle.keep_current()
    for _ in range(number):
        allocations = dict(oracle.kept) if draw.random() < 0.5 else {}
        for job in draw.sample(instance.jobs, draw.randint(1, len(instance.jobs))):
            kind = draw.random()
            if kind < 0.15:
                allocations.pop(job.name, None)
            elif kind < 0.45 and job.current is not None:
                allocations[job.name] = nudged(instance, draw, job, job.current)
            else:
                allocations[job.name] = somewhere(instance, draw, job)
        if draw.random() < 0.12:
            nonsense(draw, instance, allocations)
        yield Plan(allocations=allocations)


def somewhere(instance: Instance, draw: random.Random, job: Job) -> Allocation:
    """About the right counts on random nodes, usually of one GPU type."""
    names = [node.name for node in instance.nodes]
    there = [node.name for node in instance.nodes if node.gpu_type in known_types(job)]
    if there and draw.random() < 0.95:
        gpu_type = instance.node[draw.choice(there)].gpu_type
        there = [node.name for node in instance.nodes if node.gpu_type == gpu_type]
    else:
        there = names
    tasks: Tasks = {"worker": scattered(draw, there, draw.randint(job.worker.min, job.worker.max))}
    profiles = {"worker": draw.randrange(len(job.worker.profiles))}
    if job.ps is not None:
        tasks["ps"] = scattered(draw, names, draw.randint(job.ps.min, job.ps.max))
        profiles["ps"] = draw.randrange(len(job.ps.profiles))
    allocation = Allocation(tasks=tasks, profiles=profiles)
    return nudged(instance, draw, job, allocation) if draw.random() < 0.15 else allocation


def scattered(draw: random.Random, nodes: list[str], count: int) -> dict[str, int]:
    chosen = draw.choices(draw.sample(nodes, draw.randint(1, len(nodes))), k=count)
    return {node: chosen.count(node) for node in chosen}


def nudged(instance: Instance, draw: random.Random, job: Job, allocation: Allocation) -> Allocation:
    """One task more, less or elsewhere, or another profile; sometimes nothing changes."""
    tasks: Tasks = {role: tasks_of(allocation, role) for role in ("worker", "ps")}
    profiles = {role: profile_of(allocation, role) for role in ("worker", "ps")}
    role = draw.choice([role for role in ("worker", "ps") if tasks[role]])
    kind = draw.choice(("more", "less", "elsewhere", "profile", "same", "less of all"))
    node = draw.choice(sorted(tasks[role]))
    if kind in ("less", "elsewhere"):
        tasks[role][node] -= 1
    if kind in ("more", "elsewhere"):
        other = draw.choice(instance.nodes).name
        tasks[role][other] = tasks[role].get(other, 0) + 1
    if kind == "less of all":
        tasks = {role: {node: min(count, 1) for node, count in on.items()} for role, on in tasks.items()}
    if kind == "profile":
        spec = job.worker if role == "worker" else job.ps
        assert spec is not None
        profiles[role] = draw.randrange(len(spec.profiles))
    kept = {role: {node: count for node, count in on.items() if count} for role, on in tasks.items()}
    kept = {role: on for role, on in kept.items() if on}
    return Allocation(tasks=kept, profiles={role: profile for role, profile in profiles.items() if role in kept})


def nonsense(draw: random.Random, instance: Instance, allocations: dict[str, Allocation]) -> None:
    """Something that does not exist, or nothing at great length."""
    kind = draw.choice(("job", "node", "profile", "role", "empty"))
    job = draw.choice(instance.jobs)
    if kind == "job":
        allocations["stranger"] = Allocation(tasks={"worker": {instance.nodes[0].name: 1}})
    elif kind == "empty":
        allocations[job.name] = Allocation(tasks=draw.choice(({}, {"worker": {}})))
    elif kind == "role" and job.ps is None:
        node = draw.choice(instance.nodes).name
        allocations[job.name] = Allocation(tasks={"worker": {node: job.worker.min}, "ps": {node: 1}})
    elif job.name in allocations and tasks_of(allocations[job.name], "worker"):
        tasks = {role: tasks_of(allocations[job.name], role) for role in ("worker", "ps")}
        profiles = {role: profile_of(allocations[job.name], role) for role in ("worker", "ps")}
        if kind == "node":
            tasks["worker"]["nowhere"] = 1
        else:
            profiles["worker"] = len(job.worker.profiles)
        tasks = {role: on for role, on in tasks.items() if on}
        allocations[job.name] = Allocation(tasks=tasks, profiles={role: profiles[role] for role in tasks})
