"""Equal nodes swap roles, so that as many running jobs as possible stay exactly where they are.

A method that thinks in kinds of nodes does not care which of ten equal nodes is which; the jobs that run there do. To
find who becomes whom is an assignment of packed nodes to concrete ones (:mod:`coplace.solver.assignment`).
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from coplace.formulations.scoring import Scoring
from coplace.instances.plan import ROLES, Allocation, Plan, Role
from coplace.solver.assignment import Pair, assign
from coplace.solver.check import CheckReport, check

UNITS = 2**40
"""Whole units of weight of all the jobs that could be kept, together."""

Kind = tuple[int, tuple[int, ...]]
"""Group of a node, and the tasks of one job on it by role."""


class Keepable(NamedTuple):
    """A job that swaps of equal nodes can leave exactly as it is, as far as it alone is concerned.

    Attributes:
        job: its name.
        gain: what keeping it adds to the objective.
        sides: for each kind of its nodes those that the plan gives it, those where it runs, and its tasks on each.
    """

    job: str
    gain: float
    sides: tuple[tuple[frozenset[int], frozenset[int], int], ...]


def relabel(scoring: Scoring, plan: Plan) -> Plan:
    """*plan* with nodes swapped within groups of equal nodes so that more running jobs are kept, or *plan* itself.

    If *plan* is feasible, so is what is returned; its objective is no lower and no more jobs are moved.

    Assignment weighs a task that stays by what keeping its job gains, divided by the job's tasks. That is exact where
    jobs sit on one node each. A job on several is kept whole or not at all, which would make the problem hard; so what
    assignment leaves in parts is dropped, and the nodes that this frees go to the jobs that gain most. The same is
    tried with all that *plan* keeps held fast, which can only gain.
    """
    before = check(scoring.instance, plan, scoring)
    group_of = _groups(scoring)
    jobs = _keepable(scoring, plan, before, group_of)
    stay = [job for job in jobs if before.evaluation.jobs[job.job].kept]
    if len(stay) == len(jobs):
        return plan
    best = plan, before
    for fast in ([], stay) if stay else ([],):
        swapped = _swapped(scoring, plan, _permutation(jobs, fast, group_of))
        report = check(scoring.instance, swapped, scoring)
        if report.feasible and _better(report, best[1]):
            best = swapped, report
    return best[0]


def _better(after: CheckReport, before: CheckReport) -> bool:
    """Whether the objective is higher, or as high with fewer moves; never with more moves."""
    fewer = len(before.moved) - len(after.moved)
    return fewer >= 0 and (after.objective > before.objective or (after.objective == before.objective and fewer > 0))


def _groups(scoring: Scoring) -> list[int]:
    """For each node the number of its group, in which all may swap without breaking a rule or changing a speed.

    Alone stay the nodes that must keep what they have: cordoned and lost ones, and those of pinned jobs.
    """
    instance, nodes = scoring.instance, scoring.nodes
    selected = {label for job in instance.jobs for label in job.node_selector.items()}
    pinned = {name for job in instance.jobs if job.pinned and job.current for name in job.current.nodes}
    number: dict[tuple[object, ...], int] = {}
    groups = []
    for n, node in enumerate(instance.nodes):
        alike: tuple[object, ...] = (n,)
        if nodes.open[n] and node.name not in pinned:
            labels = frozenset(selected.intersection(node.labels.items()))
            alike = (node.gpu_type, node.free, tuple(nodes.capacities[n].tolist()), labels)
        groups.append(number.setdefault(alike, len(number)))
    return groups


def _keepable(scoring: Scoring, plan: Plan, report: CheckReport, group_of: list[int]) -> list[Keepable]:
    """The running jobs whose tasks sit, in kinds, as they do now."""
    found = []
    for name, outcome in report.evaluation.jobs.items():
        planned, current = plan[name], scoring.instance.job[name].current
        if current is None or planned.shape != current.shape:
            continue
        now, then = _by_kind(scoring, current, group_of), _by_kind(scoring, planned, group_of)
        if now.keys() == then.keys() and all(len(now[kind]) == len(then[kind]) for kind in now):
            j = scoring.index[name]
            gain = scoring.value(j, outcome.speed, kept=True) - scoring.value(j, outcome.speed, kept=False)
            sides = tuple((frozenset(then[kind]), frozenset(now[kind]), sum(kind[1])) for kind in now)
            found.append(Keepable(name, float(gain), sides))
    return found


def _by_kind(scoring: Scoring, allocation: Allocation, group_of: list[int]) -> dict[Kind, list[int]]:
    """The nodes in use by kind."""
    kinds: dict[Kind, list[int]] = defaultdict(list)
    for name in allocation.nodes:
        n = scoring.nodes.position[name]
        kinds[group_of[n], tuple(allocation.tasks.get(role, {}).get(name, 0) for role in ROLES)].append(n)
    return kinds


def _permutation(jobs: list[Keepable], fast: list[Keepable], group_of: list[int]) -> list[int]:
    """The node that each node becomes, within its group; all that the jobs *fast* use stay what they are."""
    swaps = _Swaps()
    for job in fast:
        swaps.keep(job, {n: n for nodes, _, _ in job.sides for n in nodes})
    held = {job.job for job in fast}
    left = [job for job in jobs if job.job not in held and swaps.could_keep(job)]
    matched = assign(_weights(left, swaps))
    # First those that assignment keeps whole, then whatever the others gain most by.
    whole = {job.job for job in left if all({matched.get(n) for n in nodes} == goals for nodes, goals, _ in job.sides)}
    for job in sorted(left, key=lambda job: (job.job not in whole, -job.gain)):
        if job.job in whole or swaps.could_keep(job):
            swaps.keep(job, matched if job.job in whole else {})
    return swaps.completed(group_of)


def _weights(jobs: list[Keepable], swaps: _Swaps) -> dict[Pair, int]:
    """What each pair of a node and the one it could become is worth, in units."""
    # A move less is worth something even to jobs that lose nothing by it.
    least = max((job.gain for job in jobs), default=0.0) / 1_000 or 1.0
    unit = UNITS / max(sum(job.gain + least for job in jobs), least)
    weights: dict[Pair, int] = defaultdict(int)
    for job in jobs:
        all_tasks = sum(len(nodes) * tasks for nodes, _, tasks in job.sides)
        for nodes, goals, tasks in job.sides:
            worth = max(1, int((job.gain + least) * unit * tasks / all_tasks))
            for n in sorted(nodes):
                for m in sorted(goals):
                    if swaps.could_become(n, m):
                        weights[n, m] += worth
    return weights


class _Swaps:
    """Which node becomes which, as far as that is settled."""

    def __init__(self) -> None:
        self._becomes: dict[int, int] = {}
        self._from: dict[int, int] = {}

    def could_become(self, n: int, m: int) -> bool:
        """Whether node *n* is or can still be made node *m*."""
        return self._becomes.get(n, m) == m and self._from.get(m, n) == n

    def could_keep(self, job: Keepable) -> bool:
        """Whether all of *job* can still be kept: none of its nodes is settled otherwise."""
        return all(
            all(self._becomes.get(n) in goals for n in nodes if n in self._becomes)
            and all(self._from.get(m) in nodes for m in goals if m in self._from)
            for nodes, goals, _ in job.sides
        )

    def keep(self, job: Keepable, wishes: dict[int, int]) -> None:
        """Settle the nodes of *job*, which could be kept: as *wishes* say, else in order."""
        for nodes, goals, _ in job.sides:
            open_goals = sorted(m for m in goals if m not in self._from)
            for n in sorted(nodes):
                if n not in self._becomes:
                    m = wishes[n] if n in wishes else n if n in open_goals else open_goals[0]
                    open_goals.remove(m)
                    self._becomes[n], self._from[m] = m, n

    def completed(self, group_of: list[int]) -> list[int]:
        """All nodes; those that are not settled stay what they are where they can."""
        spare = defaultdict(list)
        for m, group in enumerate(group_of):
            if m not in self._from and m in self._becomes:
                spare[group].append(m)
        for n, group in enumerate(group_of):
            if n not in self._becomes:
                m = n if n not in self._from else spare[group].pop(0)
                self._becomes[n] = m
        return [self._becomes[n] for n in range(len(group_of))]


def _swapped(scoring: Scoring, plan: Plan, becomes: list[int]) -> Plan:
    """*plan* on the nodes that its nodes become; jobs that are then kept carry their own allocation."""
    names, position = scoring.nodes.names, scoring.nodes.position
    allocations = {}
    for job, allocation in plan.allocations.items():
        if all(becomes[position[name]] == position[name] for name in allocation.nodes):
            allocations[job] = allocation
            continue
        tasks: dict[Role, dict[str, int]] = {
            role: dict(sorted((names[becomes[position[name]]], count) for name, count in placed.items()))
            for role, placed in allocation.tasks.items()
        }
        swapped = Allocation.model_construct(tasks=tasks, profiles=allocation.profiles)
        current = scoring.instance.job[job].current
        allocations[job] = current if current is not None and swapped.same_as(current) else swapped
    return Plan.model_construct(allocations=allocations)
