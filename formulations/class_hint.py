"""What a plan is in the terms of a class-level formulation, for solvers to start from."""

from __future__ import annotations

from collections import Counter, defaultdict

from coplace.formulations.class_solution import ClassChoice, Counts
from coplace.formulations.classes import Kind, Place, Places
from coplace.formulations.pressure import level_of
from coplace.instances.plan import Allocation, Plan

NOTHING = ClassChoice()


def counts_of(places: Places, plan: Plan) -> Counts:
    """The counts of *plan*; a job whose column is not among the choices runs nothing."""
    level = _levels(places, plan)
    choices = [_choice(places, j, plan, level) for j in range(len(places.jobs))]
    nodes: dict[Place, int] = dict.fromkeys(((c, ell) for c in range(len(places.classes)) for ell in _all(places)), 0)
    for n, c in places.class_of.items():
        nodes[c, level.get(n, 0)] += 1
    busy = {n: level[n] for j, choice in enumerate(choices) if choice.kept is not None for n in places.jobs[j].kept}
    return Counts(tuple(choices), nodes, busy)


def _all(places: Places) -> range:
    return range(places.levels)


def _levels(places: Places, plan: Plan) -> dict[int, int]:
    """Level of each node in use; the highest where a plan loads more."""
    load: Counter[int] = Counter()
    for name, allocation in plan.allocations.items():
        job = places.instance.job[name]
        for role, placed in allocation.tasks.items():
            spec = job.role(role)
            for node, count in placed.items():
                load[places.position[node]] += count * (spec.intensity if spec else 0)
    return {n: min(level_of(amount, places.capacities[n]), places.levels - 1) for n, amount in load.items()}


def _choice(places: Places, j: int, plan: Plan, level: dict[int, int]) -> ClassChoice:
    job = places.jobs[j]
    allocation = plan.get(job.choices.job.name)
    nodes = [] if allocation is None else [places.position[name] for name in allocation.nodes]
    if allocation is None or any(n not in places.class_of for n in nodes):
        return NOTHING
    felt = max(level[n] for n in nodes)
    if job.kept and allocation.same_as(job.choices.job.current):
        return ClassChoice(kept=felt)
    shape = places.columns.shape_of(allocation)
    at = [(places.class_of[n], level[n]) for n in nodes]
    best, found = 0.0, NOTHING
    for k, column in enumerate(job.choices.columns):
        if column[:5] != shape or column.span < allocation.span or column.level < felt or column.value <= best:
            continue
        if k in job.piece:
            if at[0] in job.whole[k]:
                best, found = column.value, ClassChoice(column=k, whole=at[0])
            continue
        tasks = _tasks(places, j, k, allocation, level)
        if all(place in job.fits[kind] for kind, place in tasks):
            best, found = column.value, ClassChoice(column=k, tasks=tasks, used=dict(Counter(at)))
    return found


def _tasks(
    places: Places, j: int, k: int, allocation: Allocation, level: dict[int, int]
) -> dict[tuple[Kind, Place], int]:
    """Tasks of a spread column by kind and place."""
    found: dict[tuple[Kind, Place], int] = defaultdict(int)
    for kind in places.jobs[j].kinds(k):
        for name, count in allocation.tasks.get(kind.role, {}).items():
            n = places.position[name]
            found[kind, (places.class_of[n], level[n])] += count
    return dict(found)
