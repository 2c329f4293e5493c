"""Classes of nodes against single nodes: gaps that both formulations leave under the same deadline."""

from __future__ import annotations

import time
from collections.abc import Iterable

from benchmarks.registry import Figure, Target, benchmark

SEED = 1
LIMIT = 20.0
"""Seconds of wall time, columns included, that a solve may take."""


@benchmark("classes", "the class-level formulation against the node-indexed one under the same deadline")
def classes(smoke: bool) -> Iterable[Figure]:
    """Relative gaps of the best plan to the lowest bound, 1 without a bound, of generated ``ps-mix`` clusters."""
    for nodes, jobs in [(3, 4)] if smoke else [(16, 30), (64, 100), (200, 400)]:
        target = Target("<=", 0.01) if (nodes, jobs) == (64, 100) else None
        for name in ("by class", "by node"):
            plan, bound, seconds = _solved(nodes, jobs, name, 2.0 if smoke else LIMIT)
            size = f"{name}, {nodes} nodes × {jobs} jobs"
            gap = (bound - plan) / max(bound, 1e-9) if bound < float("inf") else 1.0
            yield Figure(f"{size}: objective", plan, "")
            yield Figure(f"{size}: bound", bound, "")
            yield Figure(f"{size}: gap", gap, "", target if name == "by class" else None)
            yield Figure(f"{size}: wall time", seconds, "s")


def _solved(nodes: int, jobs: int, name: str, limit: float) -> tuple[float, float, float]:
    """Objective of the best plan by the evaluator, the lowest bound, and seconds."""
    from coplace.formulations.columns import column_set
    from coplace.formulations.evaluate import evaluate
    from coplace.formulations.keep import keep_current
    from coplace.formulations.scoring import Scoring
    from coplace.instances.generation import generate
    from coplace.solver.classes.driver import solve_by_class
    from coplace.solver.exact.staged import Staged
    from coplace.solver.exact.task import Bounded, Found, Task

    instance = generate("ps-mix", nodes=nodes, jobs=jobs, seed=SEED)
    begin = time.perf_counter()
    scoring = Scoring(instance)
    columns = column_set(instance, scoring)
    kept = keep_current(instance, scoring)
    best, bound = evaluate(instance, kept, scoring).objective, float("inf")

    def say(event: object) -> None:
        nonlocal best, bound
        if isinstance(event, Found):
            best = max(best, evaluate(instance, event.plan, scoring).objective)
        elif isinstance(event, Bounded):
            bound = min(bound, event.bound)

    left = limit - (time.perf_counter() - begin)
    backend = "highs" if name == "by class" else "cpsat"
    task = Task(columns=columns, backend=backend, incumbent=kept, objective=best, time_limit=left, gap=1e-4, seed=SEED)
    if name == "by class":
        solve_by_class(task, say)
    else:
        Staged(task, say).run()
    return best, bound, time.perf_counter() - begin
