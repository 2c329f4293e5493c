"""The rules of a plan, one function or method each, in plain Python over names: no arrays, no solver.

What a rule says stands in docs/model.md under the same name. Keep-current and the checker are built from these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coplace.formulations.pressure import level_capacities, level_of
from coplace.formulations.scoring import Scoring
from coplace.formulations.speed import Configurations
from coplace.instances.cluster import RESOURCES, Node
from coplace.instances.demand import task_demand
from coplace.instances.job import Job
from coplace.instances.plan import ROLES, WORKER, Allocation
from coplace.instances.quantities import format_cpu, format_memory

STRUCTURE = frozenset({"unknown", "gang", "profile", "gpu-type"})
"""Rules without which a job's speed has no meaning."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule.

    Attributes:
        rule: name in docs/model.md.
        message: a sentence with names and amounts.
        job, node, resource: where it is broken, None where that does not apply.
        amount, limit: what was found and what is allowed (GPUs, milli-cores, MiB, tasks, intensity …).
    """

    rule: str
    message: str
    job: str | None = None
    node: str | None = None
    resource: str | None = None
    amount: float | None = None
    limit: float | None = None

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}"


def format_amount(resource: str, amount: int) -> str:
    """An amount of a resource for people: ``3 GPUs``, ``1500m CPU``, ``16Gi memory``."""
    if resource == "gpu":
        return f"{amount} GPU" + ("" if amount == 1 else "s")
    if resource == "cpu":
        return f"{format_cpu(amount)} CPU"
    gibibytes = f"{amount / 1024:.1f}Gi"  # only where it is exact
    return f"{gibibytes if amount % 1024 and amount * 10 % 1024 == 0 else format_memory(amount)} memory"


# --- rules of one job on its own ------------------------------------------------------------------------------------


def job_violations(scoring: Scoring, job: Job, allocation: Allocation) -> list[Violation]:
    """What *allocation* breaks whatever the other jobs do."""
    nodes = scoring.instance.node
    broken = [*_unknown(nodes, job, allocation), *_gang(job, allocation), *_profile(job, allocation)]
    if all(name in nodes for name in allocation.nodes):
        broken += [*_gpu_type(nodes, job, allocation), *_selector(nodes, job, allocation)]
        broken += _tasks_per_node(scoring, job, allocation)
    if not STRUCTURE.intersection(violation.rule for violation in broken):
        broken += _speed(scoring, job, allocation)
    return broken


def _unknown(nodes: dict[str, Node], job: Job, allocation: Allocation) -> Iterator[Violation]:
    """Nodes and roles of the plan exist."""
    for role in allocation.tasks:
        if job.role(role) is None and allocation.count(role):
            yield Violation("unknown", f"job {job.name} has no role {role}", job=job.name)
    for name in allocation.nodes:
        if name not in nodes:
            yield Violation("unknown", f"job {job.name} has tasks on {name}, which is no node", job=job.name, node=name)


def _gang(job: Job, allocation: Allocation) -> Iterator[Violation]:
    """All roles or nothing: min ≤ tasks ≤ max in each."""
    for role in job.roles:
        spec, count = job.role(role), allocation.count(role)
        assert spec is not None
        if not spec.min <= count <= spec.max:
            limit = spec.min if count < spec.min else spec.max
            message = f"job {job.name} has {count} {role} tasks, allowed are {spec.min} to {spec.max}"
            yield Violation("gang", message, job=job.name, amount=count, limit=limit)


def _profile(job: Job, allocation: Allocation) -> Iterator[Violation]:
    """Each role uses one of its profiles."""
    for role in job.roles:
        spec, profile = job.role(role), allocation.profile(role)
        assert spec is not None
        if profile >= len(spec.profiles):
            message = f"job {job.name} uses profile {profile} of {role}, which has {len(spec.profiles)}"
            yield Violation("profile", message, job=job.name, amount=profile, limit=len(spec.profiles) - 1)


def _gpu_type(nodes: dict[str, Node], job: Job, allocation: Allocation) -> Iterator[Violation]:
    """All workers on one GPU type, which the job allows."""
    used = sorted({nodes[name].gpu_type for name in allocation.tasks.get(WORKER, {})})
    if len(used) > 1:
        yield Violation(
            "gpu-type", f"workers of job {job.name} are on several GPU types: {', '.join(used)}", job=job.name
        )
    for gpu_type in used:
        if gpu_type not in job.types:
            message = f"workers of job {job.name} are on {gpu_type}, allowed is {', '.join(job.types)}"
            yield Violation("gpu-type", message, job=job.name)


def _selector(nodes: dict[str, Node], job: Job, allocation: Allocation) -> Iterator[Violation]:
    """Every node in use carries the labels that the job selects."""
    for name in allocation.nodes:
        if not nodes[name].matches(job.node_selector):
            wanted = ", ".join(f"{key}={value}" for key, value in job.node_selector.items())
            message = f"job {job.name} selects {wanted}, which node {name} does not carry"
            yield Violation("selector", message, job=job.name, node=name)


def _tasks_per_node(scoring: Scoring, job: Job, allocation: Allocation) -> Iterator[Violation]:
    """At most ``max_tasks_per_node`` tasks of a job on a node."""
    limit = scoring.instance.rules.max_tasks_per_node
    for name in allocation.nodes if limit is not None else ():
        count = sum(placed.get(name, 0) for placed in allocation.tasks.values())
        if limit is not None and count > limit:
            message = f"job {job.name} has {count} tasks on node {name}, allowed are {limit}"
            yield Violation("tasks-per-node", message, job=job.name, node=name, amount=count, limit=limit)


def _speed(scoring: Scoring, job: Job, allocation: Allocation) -> Iterator[Violation]:
    """The configuration has a speed above 0."""
    if speed_of(scoring, job, allocation, 0) <= 0:
        message = (
            f"job {job.name} has no known speed with {allocation.workers} workers and {allocation.servers} servers"
        )
        yield Violation("speed", message, job=job.name, amount=0.0)


def speed_of(scoring: Scoring, job: Job, allocation: Allocation, level: int) -> float:
    """v in samples/s of a structurally sound *allocation* that feels pressure *level*."""
    nodes = scoring.instance.node
    gpu_type = nodes[next(iter(allocation.tasks[WORKER]))].gpu_type
    configuration = Configurations(
        gpu_type=job.types.index(gpu_type),
        workers=allocation.workers,
        servers=allocation.servers,
        span=allocation.span,
        pressure=scoring.levels[level],
        worker_profile=allocation.profile("worker"),
        ps_profile=allocation.profile("ps"),
    )
    return float(scoring.model.predict(job, configuration).mean)


# --- rules that jobs share ------------------------------------------------------------------------------------------


class Occupancy:
    """What a set of jobs takes of nodes and quotas. Counts every task whose node and profile exist."""

    def __init__(self, scoring: Scoring) -> None:
        self._instance = scoring.instance
        self._nodes = scoring.instance.node
        self._taken: dict[str, list[int]] = {}
        self._load: dict[str, int] = {}
        self._by_tenant: dict[str, list[int]] = {}
        self._levels = {name: level_capacities(scoring.instance, node) for name, node in self._nodes.items()}

    def add(self, job: Job, allocation: Allocation, sign: int = 1) -> None:
        """Put the tasks of *job* down, or with *sign* −1 take them away again."""
        tenant = self._by_tenant.setdefault(job.tenant, [0, 0, 0])
        for role in ROLES:
            spec = job.role(role)
            if spec is None or not allocation.tasks.get(role) or allocation.profile(role) >= len(spec.profiles):
                continue
            demand = task_demand(job, role, allocation)
            for name, count in allocation.tasks[role].items():
                if name not in self._nodes:
                    continue
                taken = self._taken.setdefault(name, [0, 0, 0])
                for r, amount in enumerate(demand):
                    taken[r] += sign * count * amount
                    tenant[r] += sign * count * amount
                self._load[name] = self._load.get(name, 0) + sign * count * spec.intensity

    def level(self, node: str) -> int:
        """The pressure level at which *node* runs; the number of levels if it is above the highest."""
        return level_of(self._load.get(node, 0), self._levels[node])

    def violations(self) -> list[Violation]:
        """What the jobs break together."""
        used = [name for name in self._nodes if name in self._taken]
        return [*self._capacity(used), *self._pressure(used), *self._quota(self._by_tenant)]

    def fits(self, job: Job, allocation: Allocation) -> bool:
        """Whether the nodes and the tenant of *job* break nothing as things stand."""
        used = [name for name in allocation.nodes if name in self._taken]
        broken = [*self._capacity(used), *self._pressure(used), *self._quota([job.tenant])]
        return not broken

    def _capacity(self, used: list[str]) -> Iterator[Violation]:
        """Σ demand ≤ free in every resource; nothing on a lost node."""
        for name in used:
            node = self._nodes[name]
            if not node.available and name in self._load:
                yield Violation("capacity", f"node {name} is lost and still has tasks", node=name)
                continue
            for resource, amount, free in zip(RESOURCES, self._taken[name], node.free, strict=True):
                if amount > free:
                    over = f"{format_amount(resource, amount)} of {format_amount(resource, free)} free"
                    message = f"node {name} is over its {resource}: {over}"
                    yield Violation("capacity", message, node=name, resource=resource, amount=amount, limit=free)

    def _pressure(self, used: list[str]) -> Iterator[Violation]:
        """load ≤ capacity of the highest level."""
        for name in used:
            load, limit = self._load.get(name, 0), self._levels[name][-1]
            if load > limit:
                message = f"node {name} has intensity {load}, its highest pressure level allows {limit}"
                yield Violation("pressure", message, node=name, amount=load, limit=limit)

    def _quota(self, tenants: dict[str, list[int]] | list[str]) -> Iterator[Violation]:
        """Σ demand of a tenant's jobs ≤ its quota."""
        for tenant in tenants:
            quota = self._instance.rules.quotas.get(tenant)
            if quota is None:
                continue
            for resource, amount, limit in zip(RESOURCES, self._by_tenant[tenant], quota.vector, strict=True):
                if limit is not None and amount > limit:
                    over = f"{format_amount(resource, amount)} of {format_amount(resource, limit)}"
                    message = f"tenant {tenant} is over its {resource} quota: {over}"
                    yield Violation("quota", message, resource=resource, amount=amount, limit=limit)


# --- rules against what runs now ------------------------------------------------------------------------------------


def cordon_violations(scoring: Scoring, job: Job, allocation: Allocation) -> Iterator[Violation]:
    """Cordoned nodes keep tasks and get no new ones: x ≤ current x, with the current profile."""
    for role, placed in allocation.tasks.items():
        same = job.current is not None and job.current.profile(role) == allocation.profile(role)
        for name, count in placed.items():
            node = scoring.instance.node.get(name)
            if node is None or not node.cordoned:
                continue
            had = job.current.tasks.get(role, {}).get(name, 0) if job.current is not None and same else 0
            if count > had:
                message = f"job {job.name} gets {count} {role} tasks on cordoned node {name}, which keeps {had}"
                yield Violation("cordon", message, job=job.name, node=name, amount=count, limit=had)


def is_moved(job: Job, allocation: Allocation | None, displaced: frozenset[str]) -> bool:
    """Whether a running job changes at all, stopping included, without having been displaced."""
    if job.current is None or job.name in displaced:
        return False
    return not job.current.same_as(allocation)
