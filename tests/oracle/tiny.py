"""Seeded tiny instances that together use every feature of the model, with constraints that bind."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import combinations as combinations_of
from itertools import islice
from typing import Any

from coplace.instances import (
    GOALS,
    Allocation,
    AllReduceCoefficients,
    AllReduceSpeed,
    InputError,
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
from tests.oracle.enumerate import Search, allocations
from tests.oracle.scoring import Oracle, demand, form, known_types, nodes_of, profile_of, tasks_of, total

Speed = PsSyncSpeed | PsAsyncSpeed | AllReduceSpeed | TableSpeed

LADDERS: tuple[tuple[float, ...], ...] = (
    (),
    (),
    (1.0,),
    (0.57,),
    (0.5, 1.0),
    (0.29, 0.7, 1.1),
    (0.4, 0.8),
    (0.25, 0.5, 0.75, 1.0),
    (0.07, 0.3, 0.58, 1.15),
)
LABELS: tuple[dict[str, str], ...] = ({"zone": "a"}, {"zone": "a", "disk": "ssd"}, {}, {"zone": "b"})
MOST_PLANS = 300_000
"""An instance whose jobs have more combinations of allocations is drawn again."""


def tiny_instance(seed: int) -> Instance:
    """A small instance, all of whose plans can be gone through; the same for the same seed."""
    return _tiny(seed).instance


@cache
def best_of_tiny(seed: int) -> tuple[float, Plan]:
    """What ``best_plan`` finds in the tiny instance of a seed; gone through once, whoever asks."""
    return _tiny(seed).best()


@cache
def _tiny(seed: int) -> Search:
    """A search of the instance, not begun."""
    for attempt in range(1000):
        draw = random.Random(f"tiny-{seed}-{attempt}")
        least = draw.choice((1, 4, 4, 12, 40))  # now and then almost nothing can be done
        try:
            instance = _instance(draw, seed)
        except InputError:
            continue  # what runs does not fit the machines
        if combinations(instance) > MOST_PLANS:
            continue
        oracle = Oracle(instance)
        search = Search(oracle)
        if len(list(islice(search.all(), least))) == least:
            return Search(oracle, search.lists)
    raise AssertionError(f"no instance from seed {seed}")


@cache
def wide_instance(seed: int) -> Instance:
    """An instance whose jobs may have many tasks: too many plans to go through."""
    for attempt in range(1000):
        try:
            return _instance(random.Random(f"wide-{seed}-{attempt}"), seed, wide=True)
        except InputError:
            continue
    raise AssertionError(f"no instance from seed {seed}")


def combinations(instance: Instance) -> int:
    """A bound on the plans of an instance: the product of all that each job could do on an empty cluster."""
    product = 1
    for job in instance.jobs:
        product *= 1 + sum(1 for _ in allocations(instance, job))
    return product


# --- parts ----------------------------------------------------------------------------------------------------------


def _instance(draw: random.Random, seed: int, *, wide: bool = False) -> Instance:
    nodes = _nodes(draw)
    types = sorted({node.gpu_type for node in nodes if node.gpu})
    jobs = [_job(draw, index, nodes, types, wide) for index in range(draw.choice((2, 3)) + 2 * wide)]
    if draw.random() < 0.15:  # twins, whose order decides
        jobs[1] = jobs[0].model_copy(update={"name": jobs[1].name})
    calm = draw.random() < 0.4  # no damage, and few rules
    jobs, nodes = _run(draw, jobs, nodes, calm)
    return Instance(
        name=f"tiny-{seed}",
        nodes=tuple(nodes),
        jobs=tuple(jobs),
        rules=_rules(draw, calm),
        goal=GOALS[seed % len(GOALS)],
        pressure_levels=draw.choice(LADDERS),
        horizon_seconds=draw.choice((None, None, 120.0, 900.0, 3600.0)),
    )


def _nodes(draw: random.Random) -> list[Node]:
    second = draw.choice(("V100", "V100", "K80", "K80", "none"))
    kinds = ["V100", second, draw.choice(("V100", "K80", "none"))][: draw.choice((2, 3))]
    nodes = []
    room = draw.choice((0, 1))  # little of it, or more than all jobs need
    for index, kind in enumerate(kinds):
        gpu = 0 if kind == "none" else draw.choice((1, 2, 2, 3, 4, 4)) + room
        cpu = draw.choice((3000, 4500, 6000, 8000, 9500)) + 6000 * room
        memory = draw.choice((5000, 7500, 10000, 16000)) + 8000 * room
        used = Resources()
        if draw.random() < 0.25:
            used = Resources(
                gpu=min(gpu, draw.choice((0, 0, 1))), cpu=draw.choice((0, 500, 1000)), memory=draw.choice((0, 900))
            )
        nodes.append(
            Node(
                name=f"n{index}",
                gpu_type=kind,
                gpu=gpu,
                cpu=cpu,
                memory=memory,
                pressure_capacity=draw.choice((50, 100, 130, 200)),
                labels=draw.choice(LABELS[:2] if room else LABELS),
                used=used,
                cordoned=draw.random() < 0.12,
            )
        )
    draw.shuffle(nodes)
    return nodes


def _profiles(draw: random.Random, types: list[str], memory: tuple[int, ...]) -> tuple[Profile, ...]:
    generous = Profile(cpu=draw.choice((1000, 1500, 2000)), memory=draw.choice(memory))
    if draw.random() < 0.6:
        return (generous,)
    slow: float | dict[str, float] = draw.choice((1.1, 1.4, 2.5))
    if draw.random() < 0.5:
        slow = {draw.choice(types): slow}
    frugal = Profile(cpu=draw.choice((0, 300, 600)), memory=draw.choice((0, *memory)), slowdown=slow)
    return (generous, frugal) if draw.random() < 0.7 else (frugal, generous)


def _job(draw: random.Random, index: int, nodes: list[Node], types: list[str], wide: bool) -> Job:
    ps = draw.random() < 0.6
    form = draw.choice(("ps-sync", "ps-sync", "ps-async", "table")) if ps else draw.choice(("allreduce", "table"))
    gpu = draw.choice((1, 1, 1, 1, 1, 2, 0))
    known = sorted({*types[: draw.choice((1, 2, 2))], *(["none"] if gpu == 0 and draw.random() < 0.7 else [])})
    known += draw.choice(([], [], [], ["H100"]))  # a type that the cluster does not have
    most = draw.choice((4, 6, 9, 17) if wide else (1, 2, 3, 3, 3))
    worker = WorkerSpec(
        gpu=gpu,
        profiles=_profiles(draw, types, (500, 1500, 2500)),
        intensity=draw.choice((0, 7, 20, 29, 35)),
        min=draw.choice((1, 1, 1, min(2, most), min(3, most) if wide else 1)),
        max=most,
    )
    servers = None
    if ps:
        most_servers = draw.choice((2, 3, 5) if wide else (1, 1, 2, 2))
        memory = None
        if draw.random() < 0.6:
            memory = PsMemory(
                model=draw.choice((400, 1000, 1501, 2300)),
                copies=draw.choice((1.0, 2.0, 2.3, 3.0)),
                base=draw.choice((0, 64)),
                receive_buffer=draw.choice((0, 100, 555)),
                imbalance=draw.choice((1.0, 1.1, 1.15)),
            )
        servers = PsSpec(
            profiles=_profiles(draw, types, (0, 300, 1200)),
            intensity=draw.choice((0, 10, 29, 40)),
            min=draw.choice((1, 1, most_servers - 1 or 1, most_servers)),
            max=most_servers,
            memory_model=memory,
        )
    allowed = None
    if draw.random() < 0.25:
        allowed = tuple(draw.sample(known, draw.randint(1, len(known))))
    return Job(
        name=f"j{index}",
        architecture="ps" if ps else "allreduce",
        worker=worker,
        ps=servers,
        gpu_types=allowed,
        node_selector=draw.choice(({},) * 8 + ({"zone": "a"}, {"zone": "a"}, {"zone": "a", "disk": "ssd"})),
        speed=_speed(draw, form, known, worker, servers),
        remaining=draw.choice((None, 2e3, 3e4, 3e4, 4e5, 1e7)),
        attained_gpu_seconds=draw.choice((0.0, 300.0, 9000.0)),
        age_seconds=draw.choice((0.0, 600.0, 20000.0)),
        restarts=draw.choice((0, 0, 1, 4)),
        weight=draw.choice((1.0, 1.0, 1.0, 0.5, 2.0, 3.0)),
        tenant=draw.choice(("a", "a", "b")),
        restart_seconds=draw.choice((0.0, 5.0, 20.0, 60.0, 400.0)),
        deadline_seconds=draw.choice((None, -50.0, 0.0, 60.0, 400.0, 5000.0)),
    )


def _speed(draw: random.Random, form: str, known: list[str], worker: WorkerSpec, servers: PsSpec | None) -> Speed:
    common: dict[str, Any] = {
        "interference": Interference(slope=draw.choice((0.0, 0.6, 2.0)), onset=draw.choice((0.0, 0.3, 0.5))),
        "spread": Spread(slope=draw.choice((0.0, 0.5, 1.5))),
    }
    if form == "table":
        share = draw.choice((0.0, 0.25, 0.6, 1.0))
        points = tuple(_points(draw, known, worker, servers))
        return TableSpeed(form="table", points=points, communication_share=share, **common)
    fast = {gpu_type: draw.choice((0.004, 0.008, 0.02)) for gpu_type in known}
    batch = draw.choice((32.0, 64.0, 100.0))
    if form == "allreduce":
        ring = {}
        for gpu_type in known:
            latency, transfer = draw.choice((0.0, 0.004)), draw.choice((0.0, 0.03))
            ring[gpu_type] = AllReduceCoefficients(
                a=fast[gpu_type],
                b=draw.choice((0.0, 0.05)),
                latency_intra=latency,
                latency_inter=latency + draw.choice((0.0, 0.01)),
                transfer_intra=transfer,
                transfer_inter=transfer + draw.choice((0.0, 0.05, 0.3)),
            )
        return AllReduceSpeed(form="allreduce", batch=batch, types=ring, **common)
    coefficients = {
        gpu_type: PsCoefficients(
            a=fast[gpu_type],
            b=draw.choice((0.0, 0.05)),
            c=draw.choice((0.0, 0.02, 0.1)),
            d=draw.choice((0.0, 0.005)),
            e=draw.choice((0.0, 0.01, 0.05)),
        )
        for gpu_type in known
    }
    if form == "ps-sync":
        return PsSyncSpeed(form="ps-sync", batch=batch, types=coefficients, **common)
    cost = draw.choice((0.0, 0.1, 0.6))
    return PsAsyncSpeed(form="ps-async", batch=batch / 2, types=coefficients, staleness_cost=cost, **common)


def _points(draw: random.Random, known: list[str], worker: WorkerSpec, servers: PsSpec | None) -> list[SpeedPoint]:
    """A table with holes: inside, at the edges, and now and then everywhere that the job may run."""
    counts = range(worker.min, worker.max + 1)
    at = range(servers.min, servers.max + 1) if servers else range(1)
    if draw.random() < 0.06:
        counts = range(worker.max + 1, worker.max + 3)
    points = []
    for gpu_type in known:
        base = draw.choice((60.0, 110.0))
        grid = [(w, p) for w in counts for p in at]
        for w, p in draw.sample(grid, max(1, len(grid) - draw.choice((0, 0, 1, 2, len(grid) // 2)))):
            speed = base * w ** draw.choice((0.5, 0.9)) * (1 + 0.2 * p) * draw.choice((1.0, 1.1))
            points.append(SpeedPoint(gpu_type=gpu_type, workers=w, servers=p, speed=speed))
        if draw.random() < 0.4:  # a point beyond the range, to interpolate towards
            w = counts[-1] + 1
            points.append(SpeedPoint(gpu_type=gpu_type, workers=w, servers=draw.choice(at), speed=base * w**0.8))
    return points


# --- what runs now, and what went wrong since -----------------------------------------------------------------------


def _run(draw: random.Random, jobs: list[Job], nodes: list[Node], calm: bool) -> tuple[list[Job], list[Node]]:
    """Let some jobs run, then lose capacity and tighten their rules."""
    left = {n.name: [n.gpu - n.used.gpu, n.cpu - n.used.cpu, n.memory - n.used.memory] for n in nodes}
    started = []
    for job in jobs:
        current = _start(draw, job, nodes, left) if draw.random() < 0.75 else None
        if current is not None:
            job = job.model_copy(update={"current": current, "pinned": draw.random() < 0.2})
            job = job if calm else _tightened(draw, job, current)
        started.append(job)
    return started, nodes if calm else [_damaged(draw, node) for node in nodes]


def _start(draw: random.Random, job: Job, nodes: list[Node], left: dict[str, list[int]]) -> Allocation | None:
    """Some allocation that the machines hold; it may break every rule that is no law of nature."""
    lawful = draw.random() < 0.8
    wanted = job.node_selector.items() if lawful else ()
    nodes = [node for node in nodes if all(node.labels.get(key) == value for key, value in wanted)]
    types = {node.gpu_type for node in nodes} & (known_types(job) if lawful else {"V100", "K80", "none"})
    for _ in range(12 if types else 0):
        gpu_type = draw.choice(sorted(types))
        there = [node.name for node in nodes if node.gpu_type == gpu_type]
        more = 0 if lawful else draw.choice((0, 1))
        tasks = {"worker": Counter(draw.choices(there, k=draw.randint(job.worker.min, job.worker.max + more)))}
        profiles = {"worker": draw.randrange(len(job.worker.profiles))}
        if job.ps is not None:
            everywhere = [node.name for node in nodes]
            tasks["ps"] = Counter(draw.choices(everywhere, k=draw.randint(job.ps.min, job.ps.max)))
            profiles["ps"] = draw.randrange(len(job.ps.profiles))
        current = Allocation(tasks={role: dict(on) for role, on in tasks.items()}, profiles=profiles)
        need = _need(job, current)
        if all(amount <= left[node][r] for node, amounts in need.items() for r, amount in enumerate(amounts)):
            for node, amounts in need.items():
                for r, amount in enumerate(amounts):
                    left[node][r] -= amount
            return current
    return None


def _need(job: Job, allocation: Allocation) -> dict[str, list[int]]:
    need: dict[str, list[int]] = {}
    w, p = total(allocation, "worker"), total(allocation, "ps")
    for role in ("worker", "ps"):
        for node, count in tasks_of(allocation, role).items():
            sums = need.setdefault(node, [0, 0, 0])
            for r, amount in enumerate(demand(job, role, profile_of(allocation, role), w, p)):
                sums[r] += amount * count
    return need


def _tightened(draw: random.Random, job: Job, current: Allocation) -> Job:
    w, p = total(current, "worker"), total(current, "ps")
    kind = draw.random()
    if kind < 0.08 and w > 1:
        return job.model_copy(update={"worker": job.worker.model_copy(update={"min": 1, "max": w - 1})})
    if kind < 0.13 and w < 3:
        return job.model_copy(update={"worker": job.worker.model_copy(update={"min": w + 1, "max": w + 1})})
    if kind < 0.2 and job.ps is not None and p > 1:
        return job.model_copy(update={"ps": job.ps.model_copy(update={"min": 1, "max": p - 1})})
    return job


def _damaged(draw: random.Random, node: Node) -> Node:
    kind = draw.random()
    lost: Resources | str
    if kind < 0.1:
        lost = "all"
    elif kind < 0.2 and node.gpu:
        lost = Resources(gpu=1)
    elif kind < 0.3:
        lost = Resources(cpu=draw.choice((1000, 2500)), memory=draw.choice((0, 2000)))
    else:
        return node
    return node.model_copy(update={"lost": lost})


def _rules(draw: random.Random, calm: bool) -> SiteRules:
    quotas = {}
    for tenant in ("a", "b"):
        if draw.random() < (0.1 if calm else 0.5):
            resource = draw.choice(("gpu", "cpu", "memory", "all"))
            quotas[tenant] = Quota(
                gpu=draw.choice((0, 1, 2, 3, 4, 5)) if resource in ("gpu", "all") else None,
                cpu=draw.choice((2000, 3100, 4500, 6000, 8000)) if resource in ("cpu", "all") else None,
                memory=draw.choice((2500, 4000, 6000, 9000)) if resource in ("memory", "all") else None,
            )
    return SiteRules(
        quotas=quotas,
        max_tasks_per_node=None if calm else draw.choice((None, 1, 2, 3, 4)),
        move_budget=draw.choice((None, None, 0, 1, 1, 2)),
    )


# --- coverage -------------------------------------------------------------------------------------------------------


def features(instance: Instance) -> set[str]:
    """What of the model an instance uses."""
    oracle = Oracle(instance)
    rules = instance.rules
    found = {f"goal {instance.goal}", f"{len(instance.nodes)} nodes", f"{len(instance.jobs)} jobs"}
    found.add(f"ladder of {len(instance.pressure_levels)}")
    found.add("horizon given" if instance.horizon_seconds else "horizon from experience")
    found.add(f"move budget {rules.move_budget}")
    if rules.max_tasks_per_node:
        found.add("tasks per node")
    tenants = {job.tenant for job in instance.jobs}
    for tenant, quota in rules.quotas.items():
        if tenant in tenants:
            found |= {f"quota {name}" for name in ("gpu", "cpu", "memory") if getattr(quota, name) is not None}
    for node in instance.nodes:
        found.add("node without GPUs" if node.gpu == 0 else f"GPU type {node.gpu_type}")
        found |= {"cordon"} if node.cordoned else set()
        found |= {"used"} if node.used != Resources() else set()
        if node.lost == "all":
            found.add("lost all")
        elif node.lost != Resources():
            found.add("lost in part")
    sizes = [(job.remaining, job.speed) for job in instance.jobs if job.remaining and oracle.reference[job.name]]
    found |= {"equal sizes"} if any(a == b for a, b in combinations_of(sizes, 2)) else set()
    weights = [job.weight for job in instance.jobs if job.current is not None]
    found |= {"running, equal own weights"} if len(set(weights)) < len(weights) else set()
    for job in instance.jobs:
        found |= _job_features(oracle, job)
    if any(math.isclose(oracle.reference[job.name], 0) for job in instance.jobs):
        found.add("job that cannot run")
    return found


def _job_features(oracle: Oracle, job: Job) -> set[str]:
    speed = job.speed
    found = {f"speed {speed.form} of {job.architecture}"}
    found |= {"interference"} if speed.interference.slope and job.worker.intensity else set()
    found |= {"spread"} if speed.spread.slope else set()
    found |= {"staleness"} if isinstance(speed, PsAsyncSpeed) and speed.staleness_cost else set()
    found.add("gpu_types given" if job.gpu_types else "gpu_types free")
    found |= {"selector"} if job.node_selector else set()
    found |= {"CPU workers"} if job.worker.gpu == 0 else {"GPU workers"}
    if isinstance(speed, TableSpeed):
        found |= _table_features(oracle, job, speed)
    for role, spec in (("worker", job.worker), ("ps", job.ps)):
        if spec is None:
            continue
        found.add(f"{len(spec.profiles)} {role} profiles")
        found |= {f"{role} intensity"} if spec.intensity else set()
        for profile in spec.profiles:
            if isinstance(profile.slowdown, dict):
                found.add(f"{role} slowdown per type")
            elif profile.slowdown > 1:
                found.add(f"{role} slowdown")
    if job.ps is not None and job.ps.memory_model is not None:
        found.add("memory model")
    for role, spec in (("worker", job.worker), ("ps", job.ps)):
        for profile in range(len(spec.profiles)) if spec is not None else ():
            if demand(job, role, profile, 1, 1) == (0, 0, 0):
                found.add("task that asks for nothing")
    found.add("remaining unknown" if job.remaining is None else "remaining known")
    if job.deadline_seconds is None:
        found.add("deadline none")
    else:
        found.add("deadline ahead" if job.deadline_seconds > 0 else "deadline past")
    found |= {"own weight"} if job.weight != 1 else set()
    found |= {"restart cost"} if job.restart_seconds else {"no restart cost"}
    if job.current is not None:
        found |= _running_features(oracle, job, job.current)
    return found


def _table_features(oracle: Oracle, job: Job, speed: TableSpeed) -> set[str]:
    found = set()
    for gpu_type in {point.gpu_type for point in speed.points}:
        given = {(point.workers, point.servers) for point in speed.points if point.gpu_type == gpu_type}
        for w in range(job.worker.min, job.worker.max + 1):
            for p in range(job.ps.min, job.ps.max + 1) if job.ps else (0,):
                if (w, p) in given:
                    continue
                allocation = [n.name for n in oracle.instance.nodes if n.gpu_type == gpu_type]
                if not allocation:
                    continue
                tasks = {"worker": {allocation[0]: w}} | ({"ps": {allocation[0]: p}} if p else {})
                v = oracle.speed(job, Allocation(tasks=tasks), 0)
                found.add("table with a hole" if v is None else "table interpolated")
    return found


def _running_features(oracle: Oracle, job: Job, current: Allocation) -> set[str]:
    found = {"running"}
    if any(oracle.node[node].cordoned for node in nodes_of(current)):
        found.add("running on a cordoned node")
    if job.pinned:
        found.add("pinned, displaced" if job.name in oracle.displaced else "pinned")
    if job.name not in oracle.displaced:
        return found | {"kept"}
    broken, _ = oracle.standing_rules({job.name: current})
    if not broken:
        return found | {"displaced by the jobs kept before it"}
    return found | {f"displaced by {rule}" for rule in broken}


def best_features(instance: Instance, best: dict[str, Allocation]) -> set[str]:
    """What a best plan does with the jobs."""
    oracle = Oracle(instance)
    found = set()
    for job in instance.jobs:
        now, then = job.current, best.get(job.name)
        if now is None or job.name in oracle.displaced:
            found.add("starts a job" if then else "leaves a job waiting")
        elif then is None:
            found.add("stops a job")
        elif form(now) == form(then):
            found.add("keeps a job")
        elif any(total(now, role) != total(then, role) for role in ("worker", "ps")):
            found.add("resizes a job")
        else:
            found.add("moves a job or changes its profile")
    return found


def count_features(instances: Iterable[Instance]) -> Counter[str]:
    """Feature → number of instances that use it."""
    return Counter(feature for instance in instances for feature in features(instance))
