"""Looser rules of the site: quotas, tasks per node."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from coplace.formulations.rules import format_amount
from coplace.instances.cluster import RESOURCES, Vector
from coplace.solver.explain.case import Case
from coplace.solver.explain.changes.change import Change

MOST_LIMITS = 4
"""Values of a limit that are tried."""


def quota(case: Case) -> Iterator[Change]:
    """The quota raised by exactly what the job lacks."""
    left = case.quota_left()
    lacking: set[tuple[float, Vector]] = set()
    for shape in case.shapes:
        gpu, cpu, memory = (max(0, need - has) for need, has in zip(case.state.total(case.j, shape), left, strict=True))
        lacking.add((case.share((gpu, cpu, memory)), (gpu, cpu, memory)))
    for share, amounts in sorted(lacking)[:MOST_LIMITS]:
        if not any(amounts):
            continue
        tenant, rules = case.job.tenant, case.instance.rules
        limits = dict(zip(RESOURCES, rules.quotas[tenant].vector, strict=True))
        raised = {r: limits[r] + more for r, more in zip(RESOURCES, amounts, strict=True) if more}  # type: ignore[operator]
        parts = [
            f"{format_amount(r, value)} instead of {format_amount(r, limits[r] or 0)}" for r, value in raised.items()
        ]
        quotas = rules.quotas | {tenant: rules.quotas[tenant].model_copy(update=raised)}
        words = f"a quota of tenant {tenant} of {', '.join(parts)}"
        yield Change("quota", words, share, case.with_rules(quotas=quotas), case.plan)


def tasks_per_node(case: Case) -> Iterator[Change]:
    """The least larger number of tasks of one job that may share a node."""
    most = case.instance.rules.max_tasks_per_node
    if most is None:
        return
    limits: set[int] = set()
    for shape in case.shapes:
        demands, intensity = case.state.demands(case.j, shape), case.state.intensities(case.j)
        hosts = case.packer.hosts(case.j, shape.gpu_type)
        free, load = case.state.free[hosts], case.state.load[hosts]
        room = np.full(len(hosts), shape.workers, dtype=np.int64)
        for r, need in enumerate(demands[0]):
            if need:
                np.minimum(room, free[:, r] // need, out=room)
        if intensity[0]:
            np.minimum(room, (case.state.nodes.capacities[hosts, case.top] - load) // intensity[0], out=room)
        enough = [m for m in range(most + 1, shape.workers + 1) if np.minimum(room, m).sum() >= shape.workers]
        least = enough[0] if enough else most + 1
        limits |= {least, least + 1, shape.workers + shape.servers}
    for limit in sorted(each for each in limits if each > most)[:MOST_LIMITS]:
        words = f"up to {limit} tasks of a job on a node instead of {most}"
        yield Change("tasks-per-node", words, 0.0, case.with_rules(max_tasks_per_node=limit), case.plan)
