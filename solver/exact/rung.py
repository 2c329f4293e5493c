"""The exact rung of the ladder: what the child says is re-checked, and refused where it contradicts what is known."""

from __future__ import annotations

import math
import time
from contextlib import closing

from coplace.formulations.columns import column_set
from coplace.instances.errors import InputError
from coplace.solver.exact.task import Bounded, Ended, Event, Found, Priced, Task
from coplace.solver.exact.worker import Worker
from coplace.solver.search import InfeasiblePlanError, Search


def exact(search: Search, backend: str, *, by_class: bool = False) -> None:
    """Improve the search's plan by *backend* until its gap is proven or the time is over.

    With *by_class* the formulation is that over classes of equal nodes.
    """
    if search.proven():
        return
    search.go_on()
    began = time.monotonic()
    columns = column_set(search.instance, search.scoring, counts="columns" if by_class else "auto")
    took = time.monotonic() - began
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
        by_class=by_class,
    )
    worker = search.worker or Worker(memory_mib=search.memory_mib)
    try:
        _listen(search, worker, task, took)
    finally:
        if worker is not search.worker:
            worker.close()


def _listen(search: Search, worker: Worker, task: Task, took: float) -> None:
    with closing(worker.solve(task, search.interrupted)) as events:  # which ends a child that is not done
        for event in events:
            wrong = _take(search, task, event, took)
            if wrong:
                search.distrust(f"{task.backend}: {wrong}")
                return


def _take(search: Search, task: Task, event: Event, took: float) -> str:
    """Note what *event* says; what is wrong with it, if anything.

    Prices are looked at where there is time to make all choices once more, which *took* seconds before.
    """
    match event:
        case Found(plan):
            claimed = search.bound
            try:
                search.offer(plan)
            except InfeasiblePlanError as error:
                return str(error)
            if claimed is not None and search.bound is None:
                return f"bound {claimed:.9g} is below the objective of a plan that it found later"
        case Bounded(bound):
            if not math.isfinite(bound):
                return f"{bound} is no bound"
            if not search.bounded(bound):
                return f"bound {bound:.9g} is below the objective of a plan that was checked"
        case Priced(rows) if search.seconds_left() > took:
            try:
                if not search.priced(rows):
                    return "the bound that its prices give is below the objective of a plan that was checked"
            except InputError as error:
                return f"its prices are none: {error.problems[0]}"
        case Ended("time", words):
            search.cut_short()
            search.detail = f"{task.backend}: {words}" if words else None
        case Ended("memory", words):
            search.reason, search.detail = "memory", f"{task.backend}: {words}"
        case Ended("failure", words):
            return words
    return ""
