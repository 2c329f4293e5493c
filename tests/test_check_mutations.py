"""Every rule: a valid plan is broken in one known place, and `check` says where and by how much."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from coplace.instances import (
    Allocation,
    AllReduceCoefficients,
    AllReduceSpeed,
    Instance,
    Interference,
    Job,
    Node,
    Plan,
    Profile,
    PsAsyncSpeed,
    PsCoefficients,
    PsMemory,
    PsSpec,
    PsSyncSpeed,
    Quota,
    Resources,
    SiteRules,
    SpeedPoint,
    Spread,
    TableSpeed,
    WorkerSpec,
)
from coplace.instances.quantities import format_cpu, format_memory
from coplace.solver import check
from tests.oracle.scoring import Oracle, demand, form, known_types, profile_of, spec_of, tasks_of, total

Tasks = dict[str, dict[str, int]]
RESOURCES = ("gpu", "cpu", "memory")


# --- two sites with every rule on, and a valid plan of each ---------------------------------------------------------

STRETCH = {"interference": Interference(slope=0.8, onset=0.3), "spread": Spread(slope=0.5)}
CPU_CHOICE = (Profile(cpu=2000, memory=4000), Profile(cpu=1000, memory=3000, slowdown={"V100": 1.5}))


def node(name: str, gpu_type: str, gpu: int, cpu: int, memory: int, **more: Any) -> Node:
    return Node(name=name, gpu_type=gpu_type, gpu=gpu, cpu=cpu, memory=memory, **({"labels": {"zone": "a"}} | more))


def ring(**more: Any) -> AllReduceSpeed:
    kind = AllReduceCoefficients(a=0.01, b=0.02, latency_intra=0.001, latency_inter=0.004, transfer_inter=0.05)
    return AllReduceSpeed(form="allreduce", batch=64, types={"V100": kind, "K80": kind}, **STRETCH, **more)


def servers(least: int, most: int, intensity: int = 5) -> PsSpec:
    memory = PsMemory(model=2000, copies=2.5, base=200, receive_buffer=100, imbalance=1.1)
    profiles = (Profile(cpu=1500), Profile(cpu=800, slowdown=1.3))
    return PsSpec(profiles=profiles, min=least, max=most, intensity=intensity, memory_model=memory)


def stated(form: str, *types: str) -> PsSyncSpeed | PsAsyncSpeed:
    kinds = {gpu_type: PsCoefficients(a=0.01, b=0.02, c=0.02, d=0.001, e=0.002) for gpu_type in types}
    if form == "ps-sync":
        return PsSyncSpeed(form="ps-sync", batch=128, types=kinds, **STRETCH)
    return PsAsyncSpeed(form="ps-async", batch=32, types=kinds, staleness_cost=0.05, **STRETCH)


def table(*points: tuple[str, int, int, float]) -> TableSpeed:
    measured = tuple(SpeedPoint(gpu_type=t, workers=w, servers=p, speed=v) for t, w, p, v in points)
    return TableSpeed(form="table", points=measured, communication_share=0.3, **STRETCH)


def on(worker: dict[str, int], ps: dict[str, int] | None = None, profiles: dict[str, int] | None = None) -> Allocation:
    return Allocation.model_validate(
        {"tasks": {"worker": worker} | ({"ps": ps} if ps else {}), "profiles": profiles or {}}
    )


def mixed_site() -> tuple[Instance, Plan]:
    """Eight nodes: V100 and K80, a cordoned node, a failed one, servers on a node without GPUs."""
    nodes = (
        *(node(f"v{i}", "V100", 4, 16000, 64000) for i in range(3)),
        node("v3", "V100", 4, 16000, 64000, cordoned=True, used=Resources(gpu=1, cpu=2000)),
        node("k0", "K80", 4, 8000, 32000, labels={"zone": "b"}),
        node("k1", "K80", 4, 8000, 32000, lost=Resources(gpu=1)),
        node("c0", "none", 0, 32000, 128000, pressure_capacity=60),
        node("x0", "V100", 4, 16000, 64000, lost="all"),
    )
    worker = WorkerSpec(profiles=CPU_CHOICE, max=4, intensity=12)
    held = on({"v0": 2}, {"v0": 1})
    kept = on({"v1": 2}, {"c0": 1})
    staying = on({"v3": 2}, profiles={"worker": 1})
    roaming = on({"v2": 1}, {"v2": 1})
    gone = on({"x0": 2})
    ps: dict[str, Any] = {"architecture": "ps", "worker": worker}
    rings: dict[str, Any] = {"architecture": "allreduce", "worker": worker}
    zone = {"zone": "a"}
    jobs = (
        Job(name="held", **ps, ps=servers(1, 2), speed=stated("ps-sync", "V100", "K80"), pinned=True, current=held,
            node_selector=zone, tenant="red", remaining=1e6),
        Job(name="kept", **ps, ps=servers(1, 3), speed=stated("ps-async", "V100", "K80"), current=kept,
            node_selector=zone, tenant="red", remaining=1e5),
        Job(name="staying", **rings, speed=ring(), current=staying, tenant="blue", remaining=2e6),
        Job(name="roaming", **ps, ps=servers(1, 2), speed=stated("ps-sync", "V100"), current=roaming, tenant="blue"),
        Job(name="gone", **rings, speed=ring(), current=gone, tenant="blue", remaining=5e5),
        Job(name="new", **ps, ps=servers(1, 2), tenant="blue", remaining=1e5,
            speed=table(("K80", 1, 1, 40.0), ("K80", 2, 1, 70.0), ("K80", 4, 2, 120.0), ("V100", 1, 1, 90.0))),
    )  # fmt: skip
    rules = SiteRules(
        quotas={
            "red": Quota(gpu=8, cpu=20000, memory=60000),
            "blue": Quota(gpu=12, cpu=40000, memory=90000),
        },
        max_tasks_per_node=4,
        move_budget=1,
    )
    instance = Instance(nodes=nodes, jobs=jobs, rules=rules, pressure_levels=(0.3, 0.6, 1.0))
    allocations = {
        "held": held,
        "kept": kept,
        "staying": staying,
        "roaming": on({"v2": 2}, {"v2": 1}),
        "gone": on({"k0": 1}, profiles={"worker": 1}),
        "new": on({"k1": 2}, {"c0": 1}),
    }
    return instance, Plan(allocations=allocations)


def narrow_site() -> tuple[Instance, Plan]:
    """Five nodes, jobs spread over several of them, servers of their own intensity."""
    nodes = (
        node("a", "V100", 2, 9000, 24000),
        node("b", "V100", 2, 9000, 24000, cordoned=True),
        node("c", "V100", 2, 9000, 24000, labels={"zone": "a", "disk": "ssd"}),
        node("d", "K80", 2, 9000, 24000, used=Resources(memory=2000)),
        node("e", "none", 0, 12000, 48000),
    )
    worker = WorkerSpec(profiles=CPU_CHOICE, min=1, max=3, intensity=20)
    pinned = on({"a": 1, "b": 1}, {"e": 1})
    moving = on({"a": 1}, {"a": 1}, {"worker": 1, "ps": 1})
    stays = on({"b": 1}, {"e": 1}, {"worker": 1})
    jobs = (
        Job(name="pinned", architecture="ps", worker=worker, ps=servers(1, 2), speed=stated("ps-sync", "V100", "K80"),
            pinned=True, current=pinned, tenant="x", node_selector={"zone": "a"}, remaining=1e6),
        Job(name="moving", architecture="ps", worker=worker, ps=servers(1, 2), current=moving, tenant="y",
            speed=table(("V100", 1, 1, 50.0), ("V100", 3, 1, 120.0), ("V100", 2, 2, 100.0), ("K80", 1, 1, 20.0)),
            remaining=1e4),
        Job(name="stays", architecture="ps", worker=worker, ps=servers(1, 1), speed=stated("ps-async", "V100", "K80"),
            current=stays, tenant="y", remaining=1e5),
        Job(name="ring", architecture="allreduce", worker=worker, speed=ring(), tenant="x", remaining=1e5),
    )  # fmt: skip
    quotas = {"x": Quota(gpu=5, cpu=14000, memory=40000), "y": Quota(gpu=4, cpu=9000, memory=45000)}
    rules = SiteRules(quotas=quotas, max_tasks_per_node=3, move_budget=1)
    instance = Instance(nodes=nodes, jobs=jobs, rules=rules, pressure_levels=(0.5, 0.9), goal="fairness")
    plan = Plan(
        allocations={
            "pinned": pinned,
            "moving": on({"c": 2}, {"c": 1}),
            "stays": stays,
            "ring": on({"d": 1}, profiles={"worker": 1}),
        }
    )
    return instance, plan


SITES = {"mixed": mixed_site, "narrow": narrow_site}


# --- mutations ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Broken:
    """A mutated instance and plan, and what must be said of it.

    Attributes:
        rule: the rule that is reported.
        job, node, resource, amount, limit: fields of the violation; None = not looked at.
        words: what the message contains besides.
    """

    instance: Instance
    plan: Plan
    rule: str
    job: str | None = None
    node: str | None = None
    resource: str | None = None
    amount: int | None = None
    limit: int | None = None
    words: tuple[str, ...] = ()


Mutation = Callable[[Instance, Plan, random.Random], Iterator[Broken]]
"""Yields one mutated case, or none where the site has no place for it."""

MUTATIONS: list[Mutation] = []


def mutation(function: Mutation) -> Mutation:
    MUTATIONS.append(function)
    return function


def changed(instance: Instance, **changes: Any) -> Instance:
    """The instance built anew, so that it is validated: ``node`` and ``job`` replace the one of that name."""
    nodes, jobs = instance.nodes, instance.jobs
    if "node" in changes:
        new = changes.pop("node")
        nodes = tuple(new if old.name == new.name else old for old in nodes)
    if "job" in changes:
        new = changes.pop("job")
        jobs = tuple(new if old.name == new.name else old for old in jobs)
    rest = {"rules": instance.rules, "goal": instance.goal, "pressure_levels": instance.pressure_levels}
    return Instance(nodes=nodes, jobs=jobs, **(rest | changes))


def with_rules(instance: Instance, **changes: Any) -> Instance:
    return changed(instance, rules=SiteRules.model_validate(dict(instance.rules) | changes))


def planned(plan: Plan, **changes: Allocation | None) -> Plan:
    allocations = dict(plan.allocations) | changes
    return Plan(allocations={job: allocation for job, allocation in allocations.items() if allocation is not None})


def edited(allocation: Allocation, edit: Callable[[Tasks, dict[str, int]], None]) -> Allocation:
    tasks: Tasks = {role: tasks_of(allocation, role) for role in ("worker", "ps") if tasks_of(allocation, role)}
    profiles = {role: profile_of(allocation, role) for role in tasks}
    edit(tasks, profiles)
    kept = {role: {node: count for node, count in placed.items() if count > 0} for role, placed in tasks.items()}
    return Allocation.model_validate(
        {
            "tasks": {role: placed for role, placed in kept.items() if placed},
            "profiles": {role: profile for role, profile in profiles.items() if kept.get(role)},
        }
    )


def used(instance: Instance, plan: Plan) -> dict[str, list[int]]:
    """Node → GPUs, milli-cores, MiB in use by the plan."""
    sums: dict[str, list[int]] = {node.name: [0, 0, 0] for node in instance.nodes}
    for name, allocation in plan.allocations.items():
        w, p = total(allocation, "worker"), total(allocation, "ps")
        for role in ("worker", "ps"):
            for at, count in tasks_of(allocation, role).items():
                one = demand(instance.job[name], role, profile_of(allocation, role), w, p)
                sums[at] = [have + count * more for have, more in zip(sums[at], one, strict=True)]
    return sums


def pick(draw: random.Random, plan: Plan, test: Callable[[str, Allocation], bool]) -> tuple[str, Allocation]:
    return draw.choice(sorted((name, a) for name, a in plan.allocations.items() if test(name, a)))


def amount_of(resource: str, amount: int) -> str:
    return {"gpu": str(amount), "cpu": format_cpu(amount), "memory": format_memory(amount)}[resource]


def overfill(r: int) -> Mutation:
    """One unit less of a resource than a node's tasks use."""

    def mutate(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
        loads = used(instance, plan)
        name = draw.choice([name for name, load in loads.items() if load[r]])
        victim, load = instance.node[name], loads[name][r]
        gone = victim.capacity[r] - victim.used.vector[r] - load + 1
        lost = Resources(**{RESOURCES[r]: gone})
        yield Broken(
            changed(instance, node=victim.model_copy(update={"lost": lost})),
            plan,
            "capacity",
            node=name,
            resource=RESOURCES[r],
            amount=load,
            limit=load - 1,
            words=(amount_of(RESOURCES[r], load), amount_of(RESOURCES[r], load - 1)),
        )

    mutate.__name__ = f"overfill_{RESOURCES[r]}"
    return mutate


def exceed_quota(r: int) -> Mutation:
    """One unit less of a quota than the tenant's tasks use."""

    def mutate(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
        tenant = draw.choice(sorted(instance.rules.quotas))
        own = {name: a for name, a in plan.allocations.items() if instance.job[name].tenant == tenant}
        amount = sum(load[r] for load in used(instance, Plan(allocations=own)).values())
        quotas = dict(instance.rules.quotas) | {tenant: Quota(**{RESOURCES[r]: amount - 1})}
        yield Broken(
            with_rules(instance, quotas=quotas),
            plan,
            "quota",
            resource=RESOURCES[r],
            amount=amount,
            limit=amount - 1,
            words=(tenant, amount_of(RESOURCES[r], amount), amount_of(RESOURCES[r], amount - 1)),
        )

    mutate.__name__ = f"exceed_{RESOURCES[r]}_quota"
    return mutate


MUTATIONS += [overfill(r) for r in range(3)] + [exceed_quota(r) for r in range(3)]


@mutation
def crowd_a_node(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
    """More workers on a node than it has GPUs."""
    name, allocation = pick(draw, plan, lambda name, a: not instance.job[name].pinned)
    at = draw.choice(sorted(tasks_of(allocation, "worker")))
    more = instance.node[at].free[0] - used(instance, plan)[at][0] + 1

    def edit(tasks: Tasks, _: dict[str, int]) -> None:
        tasks["worker"][at] += more

    after = planned(plan, **{name: edited(allocation, edit)})
    amount, limit = instance.node[at].free[0] + 1, instance.node[at].free[0]
    yield Broken(instance, after, "capacity", None, at, "gpu", amount, limit, (f"{amount} GPU", f"{limit} GPU"))


@mutation
def use_a_failed_node(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
    at = draw.choice(sorted({at for a in plan.allocations.values() for role in a.tasks for at in a.tasks[role]}))
    yield Broken(
        changed(instance, node=instance.node[at].model_copy(update={"lost": "all"})), plan, "capacity", node=at
    )


@mutation
def stay_on_a_failed_node(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
    for job in instance.jobs:
        for at in tasks_of(job.current, "worker"):
            if instance.node[at].lost == "all":
                yield Broken(instance, planned(plan, **{job.name: job.current}), "capacity", node=at)


@mutation
def spread_over_two_gpu_types(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
    name, allocation = pick(draw, plan, lambda name, a: not instance.job[name].pinned)
    ours = instance.node[min(tasks_of(allocation, "worker"))].gpu_type
    other = draw.choice([node.name for node in instance.nodes if node.gpu and node.gpu_type != ours])

    def edit(tasks: Tasks, _: dict[str, int]) -> None:
        tasks["worker"][other] = 1

    after = planned(plan, **{name: edited(allocation, edit)})
    yield Broken(instance, after, "gpu-type", job=name, words=("V100", "K80"))


@mutation
def use_a_gpu_type_that_the_job_does_not_allow(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
    name, allocation = pick(draw, plan, lambda name, a: len(known_types(instance.job[name])) > 1)
    ours = instance.node[min(tasks_of(allocation, "worker"))].gpu_type
    allowed = tuple(sorted(known_types(instance.job[name]) - {ours}))
    job = instance.job[name].model_copy(update={"gpu_types": allowed})
    yield Broken(changed(instance, job=fresh(job)), plan, "gpu-type", job=name, words=(ours, *allowed))


def fresh(job: Job) -> Job:
    """The job without what it may have computed from its earlier fields."""
    return Job(**{field: getattr(job, field) for field in Job.model_fields})


def wrong_profile(role: str) -> Mutation:
    def mutate(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
        name, allocation = pick(draw, plan, lambda _, a: bool(tasks_of(a, role)))
        spec = spec_of(instance.job[name], role)
        assert spec is not None
        wrong = len(spec.profiles) + draw.choice((0, 5))

        def edit(_: Tasks, profiles: dict[str, int]) -> None:
            profiles[role] = wrong

        after = planned(plan, **{name: edited(allocation, edit)})
        yield Broken(instance, after, "profile", job=name, words=(role, str(wrong), str(len(spec.profiles))))

    mutate.__name__ = f"use_a_{role}_profile_that_does_not_exist"
    return mutate


MUTATIONS += [wrong_profile(role) for role in ("worker", "ps")]


@mutation
def leave_the_selected_nodes(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
    name, allocation = pick(draw, plan, lambda *_: True)
    at = draw.choice(sorted({at for role in allocation.tasks for at in allocation.tasks[role]}))
    labels = dict(instance.node[at].labels)
    labels["zone"] = "elsewhere"
    wanted = instance.job[name].model_copy(update={"node_selector": {"zone": instance.node[at].labels["zone"]}})
    mutated = changed(instance, job=wanted, node=instance.node[at].model_copy(update={"labels": labels}))
    yield Broken(mutated, plan, "selector", job=name, node=at, words=("zone",))


def gang(role: str, end: str) -> Mutation:
    """One task less than the least, or one more than the most."""

    def mutate(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
        name, allocation = pick(draw, plan, lambda _, a: total(a, role) > (1 if end == "max" else 0))
        job, count = instance.job[name], total(allocation, role)
        spec = spec_of(job, role)
        assert spec is not None
        limits = {"min": 1, "max": count - 1} if end == "max" else {"min": count + 1, "max": count + 2}
        new = job.model_copy(update={role: spec.model_copy(update=limits)})
        limit = limits[end]
        words = (role, str(count), str(limits["min"]), str(limits["max"]))
        yield Broken(changed(instance, job=new), plan, "gang", job=name, amount=count, limit=limit, words=words)

    mutate.__name__ = f"{'too_many' if end == 'max' else 'too_few'}_{role}_tasks"
    return mutate


MUTATIONS += [gang("worker", "max"), gang("worker", "min"), gang("ps", "min")]


@mutation
def one_server_too_many(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
    name, allocation = pick(draw, plan, lambda _, a: total(a, "ps") > 0)
    spec = instance.job[name].ps
    assert spec is not None
    at = draw.choice(sorted(tasks_of(allocation, "ps")))

    def edit(tasks: Tasks, _: dict[str, int]) -> None:
        tasks["ps"][at] = spec.max + 1

    after = planned(plan, **{name: edited(allocation, edit)})
    yield Broken(
        instance, after, "gang", job=name, amount=spec.max + 1, limit=spec.max, words=("ps", str(spec.max + 1))
    )


def missing(role: str) -> Mutation:
    def mutate(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
        name, allocation = pick(draw, plan, lambda _, a: len(a.tasks) == 2)
        after = planned(plan, **{name: edited(allocation, lambda tasks, _: tasks.pop(role) and None)})
        yield Broken(instance, after, "gang", job=name, amount=0, limit=1, words=(role, "0"))

    mutate.__name__ = f"run_without_{role}_tasks"
    return mutate


MUTATIONS += [missing(role) for role in ("worker", "ps")]


@mutation
def start_on_a_cordoned_node(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
    name, allocation = pick(draw, plan, lambda name, _: instance.job[name].current is None)
    at, count = draw.choice(sorted(tasks_of(allocation, "worker").items()))
    mutated = changed(instance, node=instance.node[at].model_copy(update={"cordoned": True}))
    yield Broken(mutated, plan, "cordon", job=name, node=at, amount=count, limit=0, words=(str(count), "0"))


def cordoned(instance: Instance, job: Job) -> list[tuple[str, int]]:
    if job.pinned:
        return []
    return [(at, n) for at, n in tasks_of(job.current, "worker").items() if instance.node[at].cordoned]


@mutation
def grow_on_a_cordoned_node(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
    name, allocation = pick(draw, plan, lambda name, _: bool(cordoned(instance, instance.job[name])))
    at, had = draw.choice(cordoned(instance, instance.job[name]))

    def edit(tasks: Tasks, _: dict[str, int]) -> None:
        tasks["worker"][at] += 1

    after = planned(plan, **{name: edited(allocation, edit)})
    yield Broken(instance, after, "cordon", name, at, None, had + 1, had, (str(had + 1), str(had)))


@mutation
def change_the_profile_on_a_cordoned_node(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
    name, allocation = pick(draw, plan, lambda name, _: bool(cordoned(instance, instance.job[name])))
    at, had = draw.choice(cordoned(instance, instance.job[name]))

    def edit(_: Tasks, profiles: dict[str, int]) -> None:
        profiles["worker"] = 1 - profiles["worker"]

    after = planned(plan, **{name: edited(allocation, edit)})
    yield Broken(instance, after, "cordon", job=name, node=at, amount=had)


def change_pinned(how: str) -> Mutation:
    def mutate(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
        name, allocation = pick(draw, plan, lambda name, _: instance.job[name].pinned)
        at = draw.choice(sorted(tasks_of(allocation, "worker")))
        same = instance.node[at].gpu_type
        other = next(n.name for n in instance.nodes if n.gpu_type == same and n.name not in allocation.nodes)

        def edit(tasks: Tasks, profiles: dict[str, int]) -> None:
            if how == "moved":
                tasks["worker"][at] -= 1
                tasks["worker"][other] = 1
            elif how == "resized":
                tasks["worker"][at] += 1
            elif how == "shrunk":
                tasks["worker"][at] -= 1
            else:
                profiles["ps"] = 1

        after = planned(plan, **{name: None if how == "stopped" else edited(allocation, edit)})
        yield Broken(instance, after, "pinned", job=name)

    mutate.__name__ = f"pinned_job_is_{how}"
    return mutate


MUTATIONS += [change_pinned(how) for how in ("moved", "resized", "shrunk", "given_another_profile", "stopped")]


@mutation
def spend_more_than_the_move_budget(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
    stopped, _ = pick(draw, plan, lambda name, a: form(a) == form(instance.job[name].current))
    after = planned(plan, **{stopped: None})
    moving = sorted(Oracle(instance).moved(after.allocations))
    assert len(moving) == 2
    yield Broken(instance, after, "move-budget", amount=2, limit=1, words=("2", "1", *moving))


@mutation
def move_without_a_budget(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
    yield Broken(with_rules(instance, move_budget=0), plan, "move-budget", amount=1, limit=0, words=("1", "0"))


@mutation
def load_a_node_above_the_top(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
    loads = Oracle(instance).loads(plan.allocations)
    at = max(loads, key=lambda name: (loads[name] / instance.node[name].pressure_capacity, name))
    top = (loads[at] - 0.5) / instance.node[at].pressure_capacity
    mutated = changed(instance, pressure_levels=(top / 2, top))
    words = (str(loads[at]), str(loads[at] - 1))
    yield Broken(mutated, plan, "pressure", node=at, amount=loads[at], limit=loads[at] - 1, words=words)


@mutation
def pack_a_node_too_closely(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
    counts = [
        (tasks_of(a, "worker").get(at, 0) + tasks_of(a, "ps").get(at, 0), name, at)
        for name, a in plan.allocations.items()
        for at in sorted({*tasks_of(a, "worker"), *tasks_of(a, "ps")})
    ]
    most = max(counts)[0]
    count, name, at = draw.choice([entry for entry in counts if entry[0] == most])
    mutated = with_rules(instance, max_tasks_per_node=most - 1)
    yield Broken(mutated, plan, "tasks-per-node", name, at, None, count, most - 1, (str(count), str(most - 1)))


@mutation
def run_an_unknown_job(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
    at = draw.choice(instance.nodes).name
    yield Broken(instance, planned(plan, stranger=on({at: 1})), "unknown", job="stranger")


def unknown_node(role: str) -> Mutation:
    def mutate(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
        name, allocation = pick(draw, plan, lambda _, a: total(a, role) > 0)

        def edit(tasks: Tasks, _: dict[str, int]) -> None:
            tasks[role]["nowhere"] = 1

        after = planned(plan, **{name: edited(allocation, edit)})
        yield Broken(instance, after, "unknown", job=name, node="nowhere")

    mutate.__name__ = f"put_a_{role}_on_an_unknown_node"
    return mutate


MUTATIONS += [unknown_node(role) for role in ("worker", "ps")]


@mutation
def give_servers_to_a_job_without_that_role(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
    name, allocation = pick(draw, plan, lambda name, _: instance.job[name].ps is None)
    at = min(tasks_of(allocation, "worker"))
    after = planned(plan, **{name: on({at: 1}, {at: 1})})
    yield Broken(instance, after, "unknown", job=name, words=("ps",))


@mutation
def run_at_counts_without_a_speed(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
    name, allocation = pick(draw, plan, lambda name, _: isinstance(instance.job[name].speed, TableSpeed))
    w, p = total(allocation, "worker"), total(allocation, "ps")
    gpu_type = instance.node[min(tasks_of(allocation, "worker"))].gpu_type
    job = instance.job[name].model_copy(update={"speed": table((gpu_type, w, p + 1, 80.0), (gpu_type, w + 1, p, 80.0))})
    yield Broken(changed(instance, job=fresh(job)), plan, "speed", job=name, words=(str(w), str(p)))


@mutation
def run_a_table_in_its_hole(instance: Instance, plan: Plan, draw: random.Random) -> Iterator[Broken]:
    """More servers than were measured, in the plan itself."""
    name, allocation = pick(draw, plan, lambda name, _: isinstance(instance.job[name].speed, TableSpeed))
    at = min(tasks_of(allocation, "worker"))
    after = on({at: 1}, {at: 2})
    yield Broken(instance, planned(plan, **{name: after}), "speed", job=name, words=("1", "2"))


# --- the test -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("site", SITES)
def test_the_plans_are_valid(site: str) -> None:
    instance, plan = SITES[site]()
    assert Oracle(instance).judge(plan).feasible
    report = check(instance, plan)
    assert report.violations == ()
    assert report.feasible
    assert report.objective > 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
@pytest.mark.parametrize("site", SITES)
def test_check_says_what_was_broken(site: str, mutate: Mutation, seed: int) -> None:
    instance, plan = SITES[site]()
    for case in mutate(instance, plan, random.Random(f"{site} {seed}")):
        verdict = Oracle(case.instance).judge(case.plan)
        assert case.rule in verdict.broken, "the mutation misses its aim"
        report = check(case.instance, case.plan)
        assert not report.feasible
        assert {v.rule for v in report.violations} - verdict.unclear == verdict.broken
        expected = {"job": case.job, "node": case.node, "resource": case.resource}
        expected = {field: value for field, value in expected.items() if value is not None}
        fitting = [
            v
            for v in report.violations
            if v.rule == case.rule and all(getattr(v, field) == value for field, value in expected.items())
        ]
        if case.amount is not None:
            fitting = [v for v in fitting if v.amount == case.amount]
        if case.limit is not None:
            fitting = [v for v in fitting if v.limit == case.limit]
        assert fitting, [str(violation) for violation in report.violations]
        message = fitting[0].message
        for word in (*expected.values(), *case.words):
            assert word in message
        if case.rule == "speed":
            assert "speed" in message


def test_the_mutations_break_every_rule() -> None:
    broken = {
        case.rule for make in SITES.values() for mutate in MUTATIONS for case in mutate(*make(), random.Random(0))
    }
    assert broken == {
        "unknown", "gang", "profile", "gpu-type", "selector", "speed", "capacity", "tasks-per-node", "pressure",
        "quota", "cordon", "pinned", "move-budget",
    }  # fmt: skip
