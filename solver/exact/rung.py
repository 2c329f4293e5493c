"""The exact rung of the ladder: what the child says is re-checked, and refused where it contradicts what is known."""

from __future__ import annotations

from coplace.formulations.columns import column_set
from coplace.solver.exact.task import Bounded, Ended, Found, Task
from coplace.solver.exact.worker import Worker
from coplace.solver.search import InfeasiblePlanError, Search


def exact(search: Search, backend: str) -> None:
    """Improve the search's plan by *backend* until its gap is proven or the time is over."""
    if search.proven():
        return
    columns = column_set(search.instance, search.scoring)
    if search.stopped():
        search.cut_short()
        return
    task = Task(
        columns=columns,
        backend=backend,
        incumbent=search.plan,
        objective=search.objective,
        time_limit=search.seconds_left(),
        gap=search.gap,
        seed=search.seed,
        replay=search.replay,
    )
    worker = search.worker or Worker(memory_mib=search.memory_mib)
    try:
        _listen(search, worker, task)
    finally:
        if worker is not search.worker:
            worker.close()


def _listen(search: Search, worker: Worker, task: Task) -> None:
    for event in worker.solve(task, search.interrupted):
        match event:
            case Found(plan):
                try:
                    search.offer(plan)
                except InfeasiblePlanError as error:
                    search.distrust(f"{task.backend}: {error}")
                    worker.close()
                    return
            case Bounded(bound):
                if not search.bounded(bound + task.columns.error):
                    search.distrust(
                        f"{task.backend}: bound {bound:.9g} is below the objective of a plan that was checked"
                    )
                    worker.close()
                    return
            case Ended("done"):
                return
            case Ended("time"):
                search.cut_short()
            case Ended("memory", words):
                search.reason, search.detail = "memory", f"{task.backend}: {words}"
            case Ended(_, words):
                search.distrust(f"{task.backend}: {words}")
