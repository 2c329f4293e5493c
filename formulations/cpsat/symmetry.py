"""Breaking the symmetry between equal nodes and between equal jobs."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from ortools.sat.python import cp_model

from coplace.formulations.columns import ColumnSet
from coplace.formulations.cpsat.objective import Objective
from coplace.formulations.cpsat.variables import Variables
from coplace.instances.instance import Instance
from coplace.instances.plan import PS, WORKER, Allocation, Plan


def equal_nodes(instance: Instance) -> list[list[int]]:
    """Groups of two nodes or more that are alike in everything and on which nothing of ours runs now."""
    busy = {name for job in instance.jobs if job.current is not None for name in job.current.nodes}
    groups: dict[object, list[int]] = defaultdict(list)
    for n, node in enumerate(instance.nodes):
        if node.available and not node.cordoned and node.name not in busy:
            key = (node.gpu_type, node.free, node.pressure_capacity, tuple(sorted(node.labels.items())))
            groups[key].append(n)
    return [group for group in groups.values() if len(group) > 1]


def equal_jobs(columns: ColumnSet) -> list[list[int]]:
    """Groups of two waiting jobs or more that have the same choices at the same values."""
    groups: dict[object, list[int]] = defaultdict(list)
    for j, choices in enumerate(columns.jobs):
        job = choices.job
        if job.current is None and (choices.columns or choices.lines):
            spec = (job.worker.model_dump_json(), job.ps.model_dump_json() if job.ps else "")
            key = (choices.columns, choices.lines, spec, job.tenant, tuple(sorted(job.node_selector.items())))
            groups[key].append(j)
    return [group for group in groups.values() if len(group) > 1]


def break_symmetry(model: cp_model.CpModel, variables: Variables, objective: Objective) -> None:
    """Of equal nodes the earlier has no fewer GPUs taken (or CPU); of equal jobs the earlier gains no less."""
    taken: dict[int, list[tuple[cp_model.IntVar, int]]] = defaultdict(list)
    for (j, profile, n), x in variables.workers.items():
        gpu, cpu, _ = variables.least_demand(j, WORKER, profile)
        taken[n].append((x, gpu if variables.instance.nodes[n].gpu else cpu))
    for (j, profile, n), s in variables.servers.items():
        if not variables.instance.nodes[n].gpu:
            taken[n].append((s, variables.least_demand(j, PS, profile)[1]))
    for group in equal_nodes(variables.instance):
        for first, second in pairwise(group):
            if taken[second]:
                model.add(_sum(taken[first]) >= _sum(taken[second]))
    for jobs in equal_jobs(variables.columns):
        for first, second in pairwise(jobs):
            model.add(_value(variables, objective, first) >= _value(variables, objective, second))


def canonical(plan: Plan, instance: Instance) -> Plan:
    """*plan* with equal nodes exchanged so that it keeps the order that :func:`break_symmetry` asks for."""
    taken: dict[str, int] = defaultdict(int)
    for name, allocation in plan.allocations.items():
        job = instance.job[name]
        for role, placed in allocation.tasks.items():
            spec = job.role(role)
            assert spec is not None
            cpu = spec.profiles[allocation.profile(role)].cpu
            for node, count in placed.items():
                with_gpus = instance.node[node].gpu > 0
                each = job.worker.gpu if role == WORKER else 0
                taken[node] += count * (each if with_gpus else cpu)
    renamed: dict[str, str] = {}
    for group in equal_nodes(instance):
        names = [instance.nodes[n].name for n in group]
        renamed |= dict(zip(sorted(names, key=lambda name: -taken[name]), names, strict=True))
    return Plan.model_construct(
        allocations={
            job: Allocation.model_construct(
                tasks={
                    role: {renamed.get(node, node): count for node, count in placed.items()}
                    for role, placed in allocation.tasks.items()
                },
                profiles=allocation.profiles,
            )
            for job, allocation in plan.allocations.items()
        }
    )


def _sum(terms: list[tuple[cp_model.IntVar, int]]) -> cp_model.LinearExprT:
    return cp_model.LinearExpr.weighted_sum([x for x, _ in terms], [amount for _, amount in terms])


def _value(variables: Variables, objective: Objective, j: int) -> cp_model.LinearExprT:
    choices = variables.columns.jobs[j].columns
    terms = [(y, objective.rounded(choices[k].value)) for k, y in variables.columns_of(j)]
    for _, _, encoded in variables.lines_of(j):
        terms += encoded.value
    return _sum(terms)
