"""Every plan of a tiny instance, by going through all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from coplace.instances import Allocation, Instance, Job, Plan
from tests.oracle.scoring import Oracle, caps, demand, form, free, known_types, profile_of, tasks_of, total

Counts = dict[str, int]


@dataclass(frozen=True)
class Option:
    """One thing that one job may do.

    Attributes:
        allocation: None for nothing.
        moved: whether it counts as a move.
        takes: (node index, gpu, cpu, memory, intensity) of all tasks on a node.
        total: gpu, cpu, memory of all tasks.
        values: λ · U at every pressure level.
    """

    allocation: Allocation | None
    moved: bool
    takes: tuple[tuple[int, int, int, int, int], ...]
    total: tuple[int, int, int]
    values: tuple[float, ...]


def spread(tasks: int, nodes: list[str]) -> Iterator[Counts]:
    """All ways to put *tasks* equal tasks on nodes."""
    for chosen in itertools.combinations_with_replacement(nodes, tasks):
        yield {node: chosen.count(node) for node in chosen}


def allocations(instance: Instance, job: Job) -> Iterator[Allocation]:
    """All allocations of the right counts, on one allowed GPU type."""
    everywhere = [node.name for node in instance.nodes]
    for gpu_type in sorted(known_types(job)):
        there = [node.name for node in instance.nodes if node.gpu_type == gpu_type]
        for workers in range(job.worker.min, job.worker.max + 1):
            for on in spread(workers, there):
                for worker_profile in range(len(job.worker.profiles)):
                    if job.ps is None:
                        yield Allocation(tasks={"worker": on}, profiles={"worker": worker_profile})
                        continue
                    for servers in range(job.ps.min, job.ps.max + 1):
                        for at in spread(servers, everywhere):
                            for server_profile in range(len(job.ps.profiles)):
                                yield Allocation(
                                    tasks={"worker": on, "ps": at},
                                    profiles={"worker": worker_profile, "ps": server_profile},
                                )


def options(oracle: Oracle, job: Job) -> list[Option]:
    """What the job may do if it were alone: what breaks a rule then breaks it in every plan."""
    instance = oracle.instance
    found: list[Option] = []
    held = job.pinned and job.name not in oracle.displaced
    index = {node.name: i for i, node in enumerate(instance.nodes)}
    levels = range(max(1, len(instance.pressure_levels)))
    if not held:
        stopped = job.current is not None and job.name not in oracle.displaced
        found.append(Option(None, stopped, (), (0, 0, 0), (0.0,) * len(levels)))
    if oracle.reference[job.name] == 0:
        return found
    for allocation in allocations(instance, job):
        same = form(allocation) == form(job.current)
        if held and not same:
            continue
        broken, unclear = oracle.standing_rules({job.name: allocation})
        if broken or oracle.cordon_broken(job, allocation):
            continue
        assert not unclear
        takes: dict[int, list[int]] = {}
        for role, spec in (("worker", job.worker), ("ps", job.ps)):
            for node, count in tasks_of(allocation, role).items():
                assert spec is not None
                w, p = total(allocation, "worker"), total(allocation, "ps")
                one = (*demand(job, role, profile_of(allocation, role), w, p), spec.intensity)
                sums = takes.setdefault(index[node], [0, 0, 0, 0])
                for r in range(4):
                    sums[r] += one[r] * count
        values = tuple(oracle.value(job, allocation, level) for level in levels)
        gpu, cpu, memory = (sum(amounts[r] for amounts in takes.values()) for r in range(3))
        moved = job.current is not None and job.name not in oracle.displaced and not same
        rows = tuple((node, g, c, m, i) for node, (g, c, m, i) in takes.items())
        found.append(Option(allocation, moved, rows, (gpu, cpu, memory), values))  # type: ignore[arg-type]
    return found


def limits(instance: Instance, tenant: str) -> list[float]:
    """The quota of a tenant in gpu, cpu, memory."""
    quota = instance.rules.quotas.get(tenant)
    most = (quota.gpu, quota.cpu, quota.memory) if quota is not None else (None, None, None)
    return [float("inf") if limit is None else float(limit) for limit in most]


class Search:
    """Depth-first search over the jobs' options, which another search of the same oracle may have made."""

    def __init__(self, oracle: Oracle, lists: list[list[Option]] | None = None) -> None:
        instance = oracle.instance
        self.instance = instance
        self.lists = [options(oracle, job) for job in instance.jobs] if lists is None else lists
        self.free = [list(free(node)) for node in instance.nodes]
        self.load = [0 for _ in instance.nodes]
        self.caps = [caps(instance, node) for node in instance.nodes]
        self.tenants = [job.tenant for job in instance.jobs]
        self.quota = {tenant: limits(instance, tenant) for tenant in self.tenants}
        budget = instance.rules.move_budget
        self.moves = len(instance.jobs) if budget is None else budget
        self.chosen: list[Option] = []

    def level(self, node: int) -> int | None:
        if not self.caps[node]:
            return 0
        return next((level for level, cap in enumerate(self.caps[node]) if self.load[node] <= cap), None)

    def take(self, job: int, option: Option, sign: int) -> bool:
        """Add (1) or remove (−1) an option; whether everything still fits."""
        fits = True
        for node, gpu, cpu, memory, intensity in option.takes:
            left = self.free[node]
            left[0] -= sign * gpu
            left[1] -= sign * cpu
            left[2] -= sign * memory
            self.load[node] += sign * intensity
            fits = fits and min(left) >= 0 and (intensity == 0 or sign < 0 or self.level(node) is not None)
        quota = self.quota[self.tenants[job]]
        for r in range(3):
            quota[r] -= sign * option.total[r]
        self.moves -= sign * option.moved
        return fits and min(quota) >= 0 and self.moves >= 0

    def objective(self) -> float:
        """Of the chosen options of all jobs, with the pressure that they make together."""
        levels = [self.level(node) for node in range(len(self.load))]
        result = 0.0
        for option in self.chosen:
            if option.allocation is not None:
                result += option.values[max(levels[take[0]] for take in option.takes)]  # type: ignore[type-var]
        return result

    def all(self, at: int = 0) -> Iterator[tuple[float, Plan]]:
        """Every feasible plan with its objective."""
        if at == len(self.lists):
            yield self.objective(), self.plan()
            return
        for option in self.lists[at]:
            if self.take(at, option, 1):
                self.chosen.append(option)
                yield from self.all(at + 1)
                self.chosen.pop()
            self.take(at, option, -1)

    def best(self) -> tuple[float, Plan]:
        """A plan of the highest objective; leaves out only what cannot exceed the best so far at any pressure."""
        for found in self.lists:
            found.sort(key=lambda option: -max(option.values))
        hopes = [max((max(option.values) for option in found), default=0.0) for found in self.lists]
        after = [sum(hopes[at:]) for at in range(len(hopes) + 1)]
        self.record: tuple[float, Plan] | None = None

        def visit(at: int, hope: float) -> None:
            if self.record is not None and hope + after[at] < self.record[0] - 1e-12 * abs(self.record[0]):
                return
            if at == len(self.lists):
                objective = self.objective()
                if self.record is None or objective > self.record[0]:
                    self.record = objective, self.plan()
                return
            for option in self.lists[at]:
                if self.take(at, option, 1):
                    self.chosen.append(option)
                    visit(at + 1, hope + max(option.values))
                    self.chosen.pop()
                self.take(at, option, -1)

        visit(0, 0.0)
        assert self.record is not None, "keep-current is always feasible"
        return self.record

    def plan(self) -> Plan:
        chosen = zip(self.instance.jobs, self.chosen, strict=True)
        return Plan(allocations={job.name: o.allocation for job, o in chosen if o.allocation is not None})


def feasible_plans(instance: Instance) -> Iterator[tuple[float, Plan]]:
    """Every feasible plan of a tiny instance with its objective."""
    return Search(Oracle(instance)).all()


def best_plan(instance: Instance) -> tuple[float, Plan]:
    """The highest objective of all plans, and a plan that has it."""
    return Search(Oracle(instance)).best()
