"""docs/model.md in the plainest Python: rules, keep-current, weights and objective, computed from the data alone.

Nothing here uses what the package computes: of the data model only the stored fields are read. Whole amounts are
exact (a decimal number of a file counts as that decimal); speeds are floats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from coplace.instances import (
    Allocation,
    AllReduceSpeed,
    Instance,
    Job,
    Node,
    Plan,
    PsAsyncSpeed,
    PsSpec,
    PsSyncSpeed,
    TableSpeed,
    WorkerSpec,
)

RULES = (
    "unknown", "gang", "profile", "gpu-type", "selector", "speed", "capacity", "tasks-per-node", "pressure", "quota",
    "cordon", "pinned", "move-budget",
)  # fmt: skip
KEEPING = ("gang", "profile", "gpu-type", "selector", "speed", "capacity", "tasks-per-node", "pressure", "quota")
"""Rules that decide whether a running job is kept."""

Form = tuple[tuple[str, int, tuple[tuple[str, int], ...]], ...]


@cache
def decimal(number: float) -> Fraction:
    """The number as it is written: 0.7 is seven tenths."""
    return Fraction(repr(float(number)))


# --- what a plan says -----------------------------------------------------------------------------------------------


def tasks_of(allocation: Allocation | None, role: str) -> dict[str, int]:
    """node → tasks of a role."""
    if allocation is None:
        return {}
    return {node: count for node, count in dict(allocation.tasks).get(role, {}).items() if count > 0}


def total(allocation: Allocation | None, role: str) -> int:
    return sum(tasks_of(allocation, role).values())


def profile_of(allocation: Allocation, role: str) -> int:
    return dict(allocation.profiles).get(role, 0)


def nodes_of(allocation: Allocation | None) -> set[str]:
    return set(tasks_of(allocation, "worker")) | set(tasks_of(allocation, "ps"))


def runs_nothing(allocation: Allocation | None) -> bool:
    return not nodes_of(allocation)


def form(allocation: Allocation | None) -> Form:
    """Tasks and profiles of the roles that have tasks: equal if and only if the same thing runs."""
    if allocation is None:
        return ()
    roles = [role for role in ("worker", "ps") if tasks_of(allocation, role)]
    return tuple((r, profile_of(allocation, r), tuple(sorted(tasks_of(allocation, r).items()))) for r in roles)


def spec_of(job: Job, role: str) -> WorkerSpec | PsSpec | None:
    return job.worker if role == "worker" else job.ps


# --- amounts --------------------------------------------------------------------------------------------------------


def free(node: Node) -> tuple[int, int, int]:
    """max(0, capacity − lost − used) of GPUs, milli-cores and MiB; 0 where all is lost."""
    if node.lost == "all":
        return (0, 0, 0)
    return (
        max(0, node.gpu - node.lost.gpu - node.used.gpu),
        max(0, node.cpu - node.lost.cpu - node.used.cpu),
        max(0, node.memory - node.lost.memory - node.used.memory),
    )


def demand(job: Job, role: str, profile: int, workers: int, servers: int) -> tuple[int, int, int]:
    """GPUs, milli-cores and MiB of one task."""
    if role == "worker":
        chosen = job.worker.profiles[profile]
        return (job.worker.gpu, chosen.cpu, chosen.memory)
    assert job.ps is not None
    chosen = job.ps.profiles[profile]
    memory = chosen.memory
    model = job.ps.memory_model
    if model is not None:
        shard = decimal(model.imbalance) * Fraction(model.model, servers) * decimal(model.copies)
        memory = max(memory, math.ceil(shard) + model.base + workers * model.receive_buffer)
    return (0, chosen.cpu, memory)


def caps(instance: Instance, node: Node) -> list[int]:
    """⌊τ_ℓ · pressure_capacity⌋ of every level."""
    return [math.floor(decimal(level) * node.pressure_capacity) for level in instance.pressure_levels]


def level_of(instance: Instance, node: Node, load: int) -> int | None:
    """The lowest level that holds *load*; None above the top. With an empty ladder there is one level, 0."""
    if not instance.pressure_levels:
        return 0
    for level, cap in enumerate(caps(instance, node)):
        if load <= cap:
            return level
    return None


def pressure_at(instance: Instance, level: int) -> float:
    return instance.pressure_levels[level] if instance.pressure_levels else 0.0


# --- speed ----------------------------------------------------------------------------------------------------------


def known_types(job: Job) -> set[str]:
    """GPU types with a speed that the job allows: its ``types``."""
    if isinstance(job.speed, TableSpeed):
        known = {point.gpu_type for point in job.speed.points}
    else:
        known = set(job.speed.types)
    return known if job.gpu_types is None else known & set(job.gpu_types)


def slowdown(job: Job, role: str, profile: int, gpu_type: str) -> float:
    spec = spec_of(job, role)
    if spec is None:
        return 1.0
    factor = spec.profiles[profile].slowdown
    return float(factor.get(gpu_type, 1.0)) if isinstance(factor, dict) else float(factor)


def between(points: Mapping[int, float], at: int) -> float | None:
    """Linear interpolation between neighbouring points; None outside."""
    if at in points:
        return points[at]
    below = [x for x in points if x < at]
    above = [x for x in points if x > at]
    if not below or not above:
        return None
    low, high = max(below), min(above)
    return points[low] + (points[high] - points[low]) * (at - low) / (high - low)


def measured(table: TableSpeed, gpu_type: str, workers: int, servers: int) -> float | None:
    """The interpolated speed of a table."""
    at_servers: dict[int, float] = {}
    for count in {point.servers for point in table.points if point.gpu_type == gpu_type}:
        row = {p.workers: p.speed for p in table.points if p.gpu_type == gpu_type and p.servers == count}
        value = between(row, workers)
        if value is not None:
            at_servers[count] = value
    return between(at_servers, servers)


def speed(
    job: Job,
    gpu_type: str,
    workers: int,
    servers: int,
    worker_profile: int,
    server_profile: int,
    span: int,
    pressure: float,
) -> float | None:
    """v in samples/s; None where there is none."""
    if workers < 1 or (job.ps is not None and servers < 1):
        return None
    form = job.speed
    phi = 1 + form.interference.slope * max(0.0, pressure - form.interference.onset)
    psi = 1 + form.spread.slope * (1 - 1 / span)
    s_w = slowdown(job, "worker", worker_profile, gpu_type)
    s_p = slowdown(job, "ps", server_profile, gpu_type)
    w, p = workers, servers
    if isinstance(form, TableSpeed):
        value = measured(form, gpu_type, w, p)
        if value is None:
            return None
        share = form.communication_share
        return 1 / (((1 - share) * s_w * phi + share * s_p * psi) / value)
    if gpu_type not in form.types:
        return None
    if isinstance(form, AllReduceSpeed):
        ring = form.types[gpu_type]
        latency = ring.latency_intra if span == 1 else ring.latency_inter
        transfer = ring.transfer_intra if span == 1 else ring.transfer_inter
        step = (ring.a * form.batch / w + ring.b) * s_w * phi
        step += (latency * (w - 1) + transfer * 2 * (w - 1) / w) * psi
        return form.batch / step
    assert isinstance(form, PsSyncSpeed | PsAsyncSpeed)
    k = form.types[gpu_type]
    communication = (k.c * w / p + k.d * w + k.e * p) * s_p * psi
    if isinstance(form, PsSyncSpeed):
        return form.batch / ((k.a * form.batch / w + k.b) * s_w * phi + communication)
    step = (k.a * form.batch + k.b) * s_w * phi + communication
    return w * form.batch / step / (1 + form.staleness_cost * (w - 1))


def best_at(instance: Instance, job: Job, workers: int) -> float | None:
    """The highest speed of a worker count over GPU types, server counts and profiles, span 1, lowest level."""
    cluster = {node.gpu_type for node in instance.nodes}
    speeds = [
        speed(job, gpu_type, workers, servers, worker_profile, server_profile, 1, pressure_at(instance, 0))
        for gpu_type in known_types(job) & cluster
        for servers in (range(job.ps.min, job.ps.max + 1) if job.ps else [0])
        for worker_profile in range(len(job.worker.profiles))
        for server_profile in (range(len(job.ps.profiles)) if job.ps else [0])
    ]
    return max((v for v in speeds if v is not None and v > 0), default=None)


def reference(instance: Instance, job: Job) -> tuple[int, float]:
    """w0 and v0; (0, 0.0) for a job without any speed."""
    for workers in range(job.worker.min, job.worker.max + 1):
        best = best_at(instance, job, workers)
        if best is not None:
            return workers, best
    return 0, 0.0


# --- weights --------------------------------------------------------------------------------------------------------


def elasticity(instance: Instance) -> float:
    """q: the slope through the origin of ln(speed-up) over ln(growth), clipped."""
    xy = xx = 0.0
    for job in instance.jobs:
        w0, v0 = reference(instance, job)
        if v0 == 0:
            continue
        counts = {job.worker.max}
        doubled = 2 * w0
        while doubled <= job.worker.max:
            counts.add(doubled)
            doubled *= 2
        best = v0
        for workers in sorted(counts - {w0}):
            value = best_at(instance, job, workers)
            if value is None:
                continue
            best = max(best, value)
            x, y = math.log(workers / w0), math.log(best / v0)
            xy += x * y
            xx += x * x
    return min(0.95, max(0.05, xy / xx)) if xx > 0 else 0.5


def sizes(instance: Instance) -> dict[str, float]:
    """Sizes of the jobs that can run, in seconds at reference speed (where unknown: see the specification)."""
    able = [(job, *reference(instance, job)) for job in instance.jobs]
    able = [(job, w0, v0) for job, w0, v0 in able if v0 > 0]
    known = {job.name: job.remaining / v0 for job, _, v0 in able if job.remaining is not None}
    typical = sum(known.values()) / len(known) if known else 1.0
    found = {}
    for job, w0, _ in able:
        if job.name in known:
            found[job.name] = known[job.name]
        elif instance.goal == "makespan":
            found[job.name] = typical
        else:
            found[job.name] = job.attained_gpu_seconds / max(1, w0 * job.worker.gpu)
    return found


def weights(instance: Instance) -> dict[str, float]:
    """λ of every job, its own weight included; 0 for a job that cannot run."""
    size = sizes(instance)
    share: dict[str, float] = {}
    if instance.goal == "jct":
        a = 1 / (1 - elasticity(instance))
        order = [job.name for job in instance.jobs if job.name in size]
        for name in order:
            longer = [other for other in order if size[other] > size[name]]
            before = [other for other in order[: order.index(name)] if size[other] == size[name]]
            i = 1 + len(longer) + len(before)
            share[name] = i * (1 - (1 - 1 / i) ** a) ** (1 / a)
    elif instance.goal == "makespan":
        mean = sum(size.values()) / len(size) if size else 1.0
        share = {name: value / (mean if mean > 0 else 1.0) for name, value in size.items()}
    else:
        share = dict.fromkeys(size, 1.0)
    return {job.name: share.get(job.name, 0.0) * job.weight for job in instance.jobs}


# --- rules ----------------------------------------------------------------------------------------------------------


SPEECHLESS = {"unknown", "gang", "profile", "gpu-type", "speed"}
"""Rules a job whose own tasks break one of which counts as running nothing."""


@dataclass(frozen=True)
class Verdict:
    """What the specification says of a plan.

    Attributes:
        broken: rules that it breaks.
        unclear: rules of which the specification does not say whether they are broken, once another one is.
        moved: jobs that count as moved.
        speeds: job → v of every job that runs something.
        objective: of a plan that breaks rules too.
    """

    broken: frozenset[str]
    unclear: frozenset[str]
    moved: frozenset[str]
    speeds: dict[str, float]
    objective: float

    @property
    def feasible(self) -> bool:
        return not self.broken


class Oracle:
    """The specification applied to one instance."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.node = {node.name: node for node in instance.nodes}
        self.job = {job.name: job for job in instance.jobs}
        self.reference = {job.name: reference(instance, job)[1] for job in instance.jobs}
        self.weight = weights(instance)
        self.kept = self._keep_current()
        self.displaced = {job.name for job in instance.jobs if job.current is not None and job.name not in self.kept}

    def keep_current(self) -> Plan:
        """The running jobs that still fit."""
        return Plan(allocations=self.kept)

    def _keep_current(self) -> dict[str, Allocation]:
        running = [job for job in self.instance.jobs if job.current is not None]
        pinned_first = sorted(running, key=lambda job: (not job.pinned, -job.weight))  # stable: then their order
        kept: dict[str, Allocation] = {}
        for job in pinned_first:
            assert job.current is not None
            broken, _ = self.standing_rules(kept | {job.name: job.current})
            if not broken & set(KEEPING):
                kept[job.name] = job.current
        return kept

    def counted(self, name: str, allocation: Allocation) -> list[tuple[str, str, int]]:
        """(role, node, tasks) of every task whose node, role and profile exist."""
        found = []
        for role in ("worker", "ps"):
            spec = spec_of(self.job[name], role) if name in self.job else None
            if spec is None or profile_of(allocation, role) >= len(spec.profiles):
                continue
            found += [(role, node, n) for node, n in tasks_of(allocation, role).items() if node in self.node]
        return found

    def loads(self, allocations: Mapping[str, Allocation]) -> dict[str, int]:
        """Intensity on every node."""
        load = dict.fromkeys(self.node, 0)
        for name, allocation in allocations.items():
            for role, node, count in self.counted(name, allocation):
                spec = spec_of(self.job[name], role)
                assert spec is not None
                load[node] += spec.intensity * count
        return load

    def job_level(self, allocation: Allocation, loads: Mapping[str, int]) -> int:
        """The highest level among the job's nodes; a node above the top counts as running at the top."""
        top = max(0, len(self.instance.pressure_levels) - 1)
        levels = [level_of(self.instance, self.node[n], loads[n]) for n in nodes_of(allocation)]
        return max(top if level is None else level for level in levels)

    def speed(self, job: Job, allocation: Allocation, level: int) -> float | None:
        """v of a job whose roles, nodes and profiles exist."""
        types = {self.node[n].gpu_type for n in tasks_of(allocation, "worker")}
        if len(types) != 1:
            return None
        return speed(
            job,
            types.pop(),
            total(allocation, "worker"),
            total(allocation, "ps"),
            profile_of(allocation, "worker"),
            profile_of(allocation, "ps"),
            len(nodes_of(allocation)),
            pressure_at(self.instance, level),
        )

    def own_rules(self, job: Job, allocation: Allocation) -> tuple[set[str], set[str]]:
        """Rules that a job's tasks break by themselves, and those that are unclear."""
        broken: set[str] = set()
        unclear: set[str] = set()
        if runs_nothing(allocation):
            return broken, unclear
        on = nodes_of(allocation)
        every_node_exists = all(node in self.node for node in on)
        stray_servers = job.ps is None and bool(tasks_of(allocation, "ps"))
        if not every_node_exists or stray_servers:
            broken.add("unknown")
        w, p = total(allocation, "worker"), total(allocation, "ps")
        if not job.worker.min <= w <= job.worker.max:
            broken.add("gang")
        if job.ps is not None and not job.ps.min <= p <= job.ps.max:
            broken.add("gang")
        for role in ("worker", "ps"):
            spec = spec_of(job, role)
            if spec is not None and tasks_of(allocation, role) and profile_of(allocation, role) >= len(spec.profiles):
                broken.add("profile")
        if every_node_exists:
            types = {self.node[n].gpu_type for n in tasks_of(allocation, "worker")}
            if len(types) > 1 or not types <= known_types(job):
                broken.add("gpu-type")
            for node in on:
                labels = self.node[node].labels
                if any(labels.get(key) != value for key, value in job.node_selector.items()):
                    broken.add("selector")
            most = self.instance.rules.max_tasks_per_node
            for node in on if most is not None else ():
                workers, servers = (tasks_of(allocation, role).get(node, 0) for role in ("worker", "ps"))
                if workers + (0 if stray_servers else servers) > most:
                    broken.add("tasks-per-node")
                elif workers + servers > most:
                    unclear.add("tasks-per-node")  # whether a task without a role counts
        if not broken & {"unknown", "gang", "profile", "gpu-type"}:
            v = self.speed(job, allocation, 0)  # whether there is one does not depend on the level
            if v is None or not v > 0:
                broken.add("speed")
        return broken, unclear

    def standing_rules(self, allocations: Mapping[str, Allocation]) -> tuple[set[str], set[str]]:
        """Rules that do not look at what runs now: those broken, and those that are unclear."""
        broken: set[str] = set()
        unclear: set[str] = set()
        used = {name: [0, 0, 0] for name in self.node}
        tenants: dict[str, list[int]] = {}
        for name, allocation in allocations.items():
            job = self.job.get(name)
            if job is None:
                broken.add("unknown")
                continue
            own, not_said = self.own_rules(job, allocation)
            broken |= own
            unclear |= not_said
            for node in nodes_of(allocation):
                if node in self.node and self.node[node].lost == "all":
                    unclear.add("capacity")  # if its role or profile does not exist
            for role, node, count in self.counted(name, allocation):
                if self.node[node].lost == "all":
                    broken.add("capacity")
                w, p = total(allocation, "worker"), total(allocation, "ps")
                for r, amount in enumerate(demand(job, role, profile_of(allocation, role), w, p)):
                    used[node][r] += amount * count
                    tenants.setdefault(job.tenant, [0, 0, 0])[r] += amount * count
        for name, amounts in used.items():
            if any(amount > has for amount, has in zip(amounts, free(self.node[name]), strict=True)):
                broken.add("capacity")
        for tenant, amounts in tenants.items():
            quota = self.instance.rules.quotas.get(tenant)
            limits = (quota.gpu, quota.cpu, quota.memory) if quota else (None, None, None)
            if any(most is not None and amount > most for amount, most in zip(amounts, limits, strict=True)):
                broken.add("quota")
        for name, load in self.loads(allocations).items():
            if level_of(self.instance, self.node[name], load) is None:
                broken.add("pressure")
        return broken, unclear - broken

    def cordon_broken(self, job: Job, allocation: Allocation) -> bool:
        """Whether a cordoned node gets a task, or keeps one with another profile."""
        for role in ("worker", "ps"):
            for node, count in tasks_of(allocation, role).items():
                if node in self.node and self.node[node].cordoned:
                    if count > tasks_of(job.current, role).get(node, 0):
                        return True
                    assert job.current is not None
                    if profile_of(allocation, role) != profile_of(job.current, role):
                        return True
        return False

    def moved(self, allocations: Mapping[str, Allocation]) -> set[str]:
        """Running, not displaced jobs that do not run exactly what they run now."""
        return {
            job.name
            for job in self.instance.jobs
            if job.current is not None
            and job.name not in self.displaced
            and form(allocations.get(job.name)) != form(job.current)
        }

    def horizon(self, job: Job) -> float:
        if self.instance.horizon_seconds is not None:
            return self.instance.horizon_seconds
        return max(900.0, job.age_seconds / (job.restarts + 1))

    def value(self, job: Job, allocation: Allocation, level: int) -> float | None:
        """λ · U(e / v0) of a job at a pressure level; None without a speed."""
        v, v0 = self.speed(job, allocation, level), self.reference[job.name]
        if v is None or v0 == 0:
            return None
        e = v
        if form(allocation) != form(job.current):
            horizon = self.horizon(job)
            if job.remaining is not None:
                horizon = min(horizon, job.remaining / v)
            e = v * horizon / (horizon + job.restart_seconds)
        goal = self.instance.goal
        if goal == "fairness":
            utility = math.log(1 + e / v0)
        elif goal == "deadline":
            required = v0
            if job.deadline_seconds is not None and job.deadline_seconds > 0 and job.remaining is not None:
                required = job.remaining / job.deadline_seconds
            utility = min(1.0, e / required)
        else:
            utility = e / v0
        return self.weight[job.name] * utility

    def judge(self, plan: Plan) -> Verdict:
        """Rules and objective of a plan."""
        allocations = plan.allocations
        broken, unclear = self.standing_rules(allocations)
        for job in self.instance.jobs:
            allocation = allocations.get(job.name)
            if allocation is not None and self.cordon_broken(job, allocation):
                broken.add("cordon")
            if job.pinned and job.name not in self.displaced and form(allocation) != form(job.current):
                broken.add("pinned")
        moved = self.moved(allocations)
        budget = self.instance.rules.move_budget
        if budget is not None and len(moved) > budget:
            broken.add("move-budget")
        speeds: dict[str, float] = {}
        objective = 0.0
        loads = self.loads(allocations)
        for job in self.instance.jobs:
            allocation = allocations.get(job.name)
            if allocation is None or runs_nothing(allocation) or self.own_rules(job, allocation)[0] & SPEECHLESS:
                continue
            level = self.job_level(allocation, loads)
            v, value = self.speed(job, allocation, level), self.value(job, allocation, level)
            assert v is not None
            assert value is not None
            speeds[job.name] = v
            objective += value
        return Verdict(frozenset(broken), frozenset(unclear - broken), frozenset(moved), speeds, objective)
