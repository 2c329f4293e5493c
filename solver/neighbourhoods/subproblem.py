"""The sub-problem of a neighbourhood, as choices over few nodes that the exact formulations take as they are.

The jobs that are free to change bring their columns, lines and kept values of the whole instance, so that weights,
reference speeds and horizons stay those of the whole. What other jobs use of a node is not free. A job that
stays and has tasks on these nodes also feels their pressure: it is *held*, a kept job that adds its intensity, asks for
nothing else, and is worth what it is worth at each level that the nodes may come to. The sub-problem's objective is
therefore exactly what these jobs are worth in the whole plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from coplace.formulations.columns import Column, ColumnSet, JobColumns
from coplace.instances.cluster import Node, Resources
from coplace.instances.job import Job, Profile, WorkerSpec
from coplace.instances.plan import WORKER, Allocation, Plan
from coplace.instances.rules import Quota, SiteRules
from coplace.solver.neighbourhoods.incumbent import Incumbent
from coplace.solver.neighbourhoods.neighbourhood import Neighbourhood
from coplace.solver.neighbourhoods.pick import Picker
from coplace.solver.placement import Placement

_UNIT = WorkerSpec(gpu=0, profiles=(Profile(cpu=0),), intensity=1, max=1_000_000)
"""A task of a held job: one unit of intensity and nothing else."""


@dataclass(frozen=True, slots=True)
class SubProblem:
    """Choices over the nodes of a neighbourhood.

    Attributes:
        columns: of the jobs that are free, then of those that are held.
        hint: what these run now.
        free: names of the jobs that are free.
    """

    columns: ColumnSet
    hint: Plan
    free: frozenset[str]

    def spliced(self, plan: Plan, answer: Plan) -> Plan:
        """*plan* with the free jobs as in *answer*, which is a plan of the sub-problem."""
        allocations = {name: own for name, own in plan.allocations.items() if name not in self.free}
        allocations |= {name: own for name, own in answer.allocations.items() if name in self.free}
        return Plan.model_construct(allocations=allocations)


def sub_problem(incumbent: Incumbent, neighbourhood: Neighbourhood, picker: Picker | None = None) -> SubProblem:
    """The sub-problem of *neighbourhood*; *picker* limits the columns, by default all are there."""
    instance, plan = incumbent.instance, incumbent.plan
    nodes = [instance.nodes[n] for n in neighbourhood.nodes]
    picked = None if picker is None else picker.pick(incumbent, neighbourhood)
    types = tuple(sorted({node.gpu_type for node in nodes}))
    renumbered = {instance.gpu_types.index(gpu_type): t for t, gpu_type in enumerate(types)}
    names = {node.name for node in nodes}
    free = [
        _free_job(incumbent, j, None if picked is None else picked[j], renumbered, names) for j in neighbourhood.jobs
    ]
    held = _held(incumbent, neighbourhood)
    jobs = (*free, *held)
    sub = instance.model_copy(
        update={
            "nodes": tuple(_nodes(incumbent, neighbourhood)),
            "jobs": tuple(choices.job for choices in jobs),
            "rules": _rules(incumbent, neighbourhood),
        }
    )
    hint = {choices.job.name: plan[choices.job.name] for choices in free if choices.job.name in plan}
    hint |= {choices.job.name: choices.job.current for choices in held if choices.job.current is not None}
    return SubProblem(
        ColumnSet(sub, jobs, incumbent.columns.error, incumbent.columns.excess),
        Plan.model_construct(allocations=hint),
        frozenset(choices.job.name for choices in free),
    )


def _free_job(
    incumbent: Incumbent, j: int, picked: list[int] | None, renumbered: dict[int, int], names: set[str]
) -> JobColumns:
    """The choices of a job that is free: the *picked* columns and what it runs now, on the GPU types that there are."""
    choices = incumbent.columns.jobs[j]
    columns = list(choices.columns) if picked is None else [choices.columns[k] for k in picked]
    own = None if choices.lines else _own_column(incumbent, j)
    if own is not None and not any(c[:5] == own[:5] and c.span >= own.span and c.level >= own.level for c in columns):
        columns.append(own)
    kept = choices.job.current is not None and names.issuperset(choices.job.current.nodes)
    return replace(
        choices,
        columns=tuple(c._replace(gpu_type=renumbered[c.gpu_type]) for c in columns if c.gpu_type in renumbered),
        lines=tuple(
            line._replace(gpu_type=renumbered[line.gpu_type]) for line in choices.lines if line.gpu_type in renumbered
        ),
        kept=choices.kept if kept else (),
    )


def _own_column(incumbent: Incumbent, j: int) -> Column | None:
    """What job *j* runs now as a column, which the pruned columns need not have: solvers are to start from it."""
    state, job, placement = incumbent.state, incumbent.instance.jobs[j], incumbent.state.placements[j]
    if placement is None or incumbent.plan[job.name].same_as(job.current):
        return None
    level = max(state.level[n] for n in placement.nodes)
    _, server = state.demands(j, placement.shape)
    speed = state.speed(j, placement.shape, placement.span, level)
    value = float(incumbent.scoring.value(j, speed, kept=False))
    return Column(*placement.shape, span=placement.span, level=level, ps_memory=server[2], value=value)


def _nodes(incumbent: Incumbent, neighbourhood: Neighbourhood) -> Iterable[Node]:
    """The nodes with what other jobs use added to ``used``."""
    instance, state = incumbent.instance, incumbent.state
    taken = state.nodes.free - state.free  # by all jobs, by [node, resource]
    for j in neighbourhood.jobs:
        placement = state.placements[j]
        if placement is not None:
            for n, demand in _demands(incumbent, j, placement):
                taken[n] -= demand
    for n in neighbourhood.nodes:
        node = instance.nodes[n]
        others = [used + int(more) for used, more in zip(node.used.vector, taken[n], strict=True)]
        yield node.model_copy(
            update={"used": Resources.model_construct(gpu=others[0], cpu=others[1], memory=others[2])}
        )


def _demands(incumbent: Incumbent, j: int, placement: Placement) -> Iterable[tuple[int, np.ndarray]]:
    """Node and demand there, role by role."""
    for demand, placed in zip(
        incumbent.state.demands(j, placement.shape), (placement.workers, placement.servers), strict=True
    ):
        for n, count in placed.items():
            yield n, count * np.array(demand, dtype=np.int64)


def _rules(incumbent: Incumbent, neighbourhood: Neighbourhood) -> SiteRules:
    """Quotas and move budget less what the jobs that stay use of them."""
    rules, state = incumbent.instance.rules, incumbent.state
    used = {tenant: use.copy() for tenant, use in state.tenant_use.items()}
    for j in neighbourhood.jobs:
        placement, tenant = state.placements[j], incumbent.instance.jobs[j].tenant
        if placement is not None and tenant in used:
            used[tenant] -= state.total_demand(j, placement.shape)
    quotas = {}
    for tenant, quota in rules.quotas.items():
        left = [
            None if limit is None else max(0, limit - int(u))
            for limit, u in zip(quota.vector, used[tenant], strict=True)
        ]
        quotas[tenant] = Quota.model_construct(gpu=left[0], cpu=left[1], memory=left[2])
    budget = rules.move_budget
    if budget is not None:
        budget = max(0, budget - len(incumbent.moved() - set(neighbourhood.jobs)))
    return rules.model_copy(update={"quotas": quotas, "move_budget": budget})


def _held(incumbent: Incumbent, neighbourhood: Neighbourhood) -> list[JobColumns]:
    """Jobs that stay and have tasks on these nodes, where pressure is modelled."""
    if not incumbent.instance.pressure_levels:
        return []
    inside, free = set(neighbourhood.nodes), set(neighbourhood.jobs)
    touched = {j for n in inside for j in incumbent.state.jobs_on[n]} - free
    return [_held_job(incumbent, j, inside) for j in sorted(touched)]


def _held_job(incumbent: Incumbent, j: int, inside: set[int]) -> JobColumns:
    state, scoring = incumbent.state, incumbent.scoring
    job, placement = incumbent.instance.jobs[j], state.placements[j]
    assert placement is not None
    load: dict[str, int] = {}
    for intensity, placed in zip(state.intensities(j), (placement.workers, placement.servers), strict=True):
        for n, count in placed.items():
            if n in inside:
                name = state.nodes.names[n]
                load[name] = load.get(name, 0) + intensity * count
    outside = max((state.level[n] for n in placement.nodes if n not in inside), default=0)
    kept = incumbent.plan[job.name].same_as(job.current)
    speeds = [state.speed(j, placement.shape, placement.span, max(ell, outside)) for ell in range(len(scoring.levels))]
    values = tuple(float(scoring.value(j, speed, kept=kept)) for speed in speeds)
    return JobColumns(_standing(job, load), (), values, must_keep=True, counts_as_move=False)


def _standing(job: Job, load: dict[str, int]) -> Job:
    """A job that stands for what *job* adds to the pressure of each node."""
    current = Allocation.model_construct(tasks={WORKER: load}, profiles={})
    return job.model_copy(update={"architecture": "allreduce", "worker": _UNIT, "ps": None, "current": current})
