"""What explanations reach: changes that admit the jobs that wait in a full cluster, and how long each takes."""

from __future__ import annotations

import time
from collections.abc import Iterable

from benchmarks.registry import Figure, Target, benchmark

SEEDS = (1, 2, 3)
ENOUGH_SECONDS = 1.0
"""Wall time after which an explanation comes too late."""


@benchmark("explain", "changes that admit waiting jobs of saturated clusters, and wall time per job")
def explain(smoke: bool) -> Iterable[Figure]:
    """Generated ``saturated`` clusters solved by ``prices``; every change that counts is checked anew, from scratch."""
    from coplace.instances.generation import generate
    from coplace.solver import check, solve
    from coplace.solver.explain import WaitingJob
    from coplace.solver.explain import explain as explain_plan

    nodes, jobs = (4, 10) if smoke else (64, 150)
    seconds: list[float] = []
    in_time = named = 0
    for seed in SEEDS[:1] if smoke else SEEDS:
        instance = generate("saturated", nodes=nodes, jobs=jobs, seed=seed)
        result = solve(instance, method="prices", time_limit=1.0 if smoke else 20.0, seed=seed)
        for pending in result.pending:
            begin = time.perf_counter()
            found = explain_plan(instance, result.plan, pending.job)
            seconds.append(time.perf_counter() - begin)
            assert isinstance(found, WaitingJob)
            held = [check(change.instance, change.plan) for change in found.counterfactuals]
            if not all(report.feasible and pending.job in report.evaluation.jobs for report in held):
                continue  # a change that does not hold makes the whole explanation worthless
            named += len(held)
            in_time += bool(held) and seconds[-1] <= ENOUGH_SECONDS
    waiting = max(1, len(seconds))
    name = f"{nodes} nodes × {jobs} jobs"
    yield Figure(f"{name}: waiting jobs", float(len(seconds)), "")
    yield Figure(f"{name}: share with a verified change within 1 s", in_time / waiting, "", Target(">=", 0.95))
    yield Figure(f"{name}: verified changes per waiting job", named / waiting, "")
    yield Figure(f"{name}: mean wall time per job", sum(seconds) / waiting, "s")
    yield Figure(f"{name}: longest wall time of a job", max(seconds, default=0.0), "s", Target("<=", ENOUGH_SECONDS))
