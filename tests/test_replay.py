"""With ``replay`` a solve gives the same plan on every run, whatever else the machine does meanwhile."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from coplace.formulations.columns import column_set
from coplace.instances import Instance, Plan
from coplace.instances.generation import generate
from coplace.solver import solve
from coplace.solver.exact import staged
from coplace.solver.exact.staged import Staged
from coplace.solver.exact.task import Bounded, Ended, Event, Found, Task
from coplace.solver.exact.worker import Worker
from coplace.solver.result import Result
from tests.oracle.tiny import wide_instance

METHODS = ["cpsat", "mip", "auto", "prices"]
BUSY = "while True: pass"


@contextmanager
def load(processes: int = 4) -> Iterator[None]:
    """More busy processes than the machine has cores to spare."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def small() -> Instance:
    """CP-SAT and HiGHS need less than a second for it, and it has more columns than are taken at once."""
    return generate("ps-mix", nodes=3, jobs=5, seed=4)


@cache
def fresh(method: str) -> Result:
    """A first solve, which others are compared with."""
    return solve(small(), method=method, replay=True)


def same(first: Result, second: Result) -> None:
    assert first.plan == second.plan
    assert first.plan.model_dump_json() == second.plan.model_dump_json()
    assert (first.objective, first.status, first.reason) == (second.objective, second.status, second.reason)
    assert (first.bound, first.found_by, first.moved) == (second.bound, second.found_by, second.moved)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_plan_again_and_under_load(method: str) -> None:
    first = fresh(method)
    with load():
        same(first, solve(small(), method=method, replay=True))


@pytest.mark.parametrize("method", METHODS)
def test_a_process_that_has_solved_something_else_gives_the_same(method: str) -> None:
    with Worker() as worker:
        solve(wide_instance(1), method="mip", time_limit=10, worker=worker)
        solve(wide_instance(2), method="cpsat", time_limit=10, worker=worker)
        used = solve(small(), method=method, replay=True, worker=worker)
    same(used, fresh(method))


def test_the_time_limit_changes_nothing() -> None:
    """Limits are in deterministic time; a wall time that is over would end elsewhere each time."""
    same(fresh("cpsat"), solve(small(), method="cpsat", replay=True, time_limit=0.01))


def test_random_draws_follow_the_seed_alone() -> None:
    for seed in (0, 7):
        results = [solve(small(), method="cpsat", replay=True, seed=seed) for _ in range(2)]
        same(*results)
        assert results[0].seed == seed


def test_a_search_that_is_cut_short_ends_at_the_same_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every plan and bound on the way is the same, with the stages far from their ends."""
    monkeypatch.setattr(staged, "DETERMINISTIC_SECONDS", 0.1)
    problem = generate("ps-mix", nodes=5, jobs=8, seed=1)
    columns = column_set(problem)
    task = Task(columns, "cpsat", Plan(), 0.0, time_limit=3600.0, gap=1e-4, replay=True)

    def said() -> list[Event]:
        events: list[Event] = []
        events.append(Staged(task, events.append).run())
        return events

    first = said()
    assert first[-1] == Ended("time")
    assert sum(isinstance(event, Found) for event in first) > 1
    assert sum(isinstance(event, Bounded) for event in first) > 1
    with load():
        assert said() == first
