"""Four solvers and brute force agree: both formulations have the optimum that going through every plan finds.

Brute force knows nothing of columns, symmetry or solvers, and the two formulations share only the columns, so that a
wrong row, a lost column or a solver's wrong proof shows as a disagreement.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from coplace.formulations.columns import ColumnSet, column_set
from coplace.formulations.cpsat import CpsatModel
from coplace.formulations.evaluate import evaluate
from coplace.formulations.mip import MipModel, available_backends
from coplace.formulations.solution import Solution
from coplace.instances import Instance, Plan
from coplace.solver import check, solve
from coplace.solver.exact.worker import Worker
from tests.oracle.tiny import best_of_tiny, tiny_instance, wide_instance

CHUNK = 50
CHUNKS = range(10)
LIMIT = 60.0
CBC = not available_backends()["cbc"].startswith("not available")

Solver = Callable[..., Solution]


@cache
def tiny(seed: int) -> tuple[Instance, ColumnSet, float, Plan]:
    """An instance, its columns, the highest objective of all plans and a plan that has it."""
    instance = tiny_instance(seed)
    return instance, column_set(instance), *best_of_tiny(seed)


def by_cpsat(columns: ColumnSet, *, symmetry: bool = True, hint: Plan | None = None) -> Solution:
    return CpsatModel(columns, symmetry=symmetry).solve(time_limit=LIMIT, gap=0, workers=1, hint=hint)


def by_highs(columns: ColumnSet, *, symmetry: bool = True, hint: Plan | None = None) -> Solution:
    return MipModel(columns, symmetry=symmetry).solve(time_limit=LIMIT, gap=0, hint=hint)


def by_cbc(columns: ColumnSet) -> Solution:
    return MipModel(columns).solve(backend="cbc", time_limit=LIMIT, gap=1e-9)


SOLVERS: dict[str, Solver] = {"cpsat": by_cpsat, "highs": by_highs} | ({"cbc": by_cbc} if CBC else {})


def assert_optimal(instance: Instance, solution: Solution, best: float) -> None:
    """The solver says optimal; its objective, its bound and the value of its plan are all the best there is."""
    assert solution.status == "optimal", instance.name
    assert solution.plan is not None
    assert solution.bound is not None
    assert check(instance, solution.plan).violations == (), instance.name
    value = evaluate(instance, solution.plan).objective
    assert value == pytest.approx(best, rel=1e-6, abs=1e-9), instance.name
    assert solution.objective == pytest.approx(best, rel=1e-6, abs=1e-9), instance.name
    assert solution.bound >= best * (1 - 1e-9), f"{instance.name}: a bound below a plan"
    assert solution.bound == pytest.approx(best, rel=1e-6, abs=1e-9), instance.name


def seeds(chunk: int, size: int = CHUNK) -> range:
    return range(chunk * size, (chunk + 1) * size)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_solvers_find_what_brute_force_finds(chunk: int) -> None:
    for seed in seeds(chunk):
        instance, columns, best, _ = tiny(seed)
        for name, solver in SOLVERS.items():
            if name != "cbc" or seed % 4 == 0:  # each solve of CBC is a process; it is given the model of HiGHS
                assert_optimal(instance, solver(columns), best)


@pytest.mark.parametrize("chunk", range(4))
def test_neither_symmetry_nor_a_hint_changes_anything(chunk: int) -> None:
    """CP-SAT's presolve is another one where there is a hint."""
    for seed in seeds(chunk):
        instance, columns, best, plan = tiny(seed)
        for solver in (by_cpsat, by_highs):
            assert_optimal(instance, solver(columns, symmetry=False), best)
            for hint in (plan, Plan()):
                assert_optimal(instance, solver(columns, hint=hint), best)


def test_presolve_once_lost_the_optimum() -> None:
    """CP-SAT 9.15 proved 5.35 optimal where 5.99 is feasible (or-tools #5293)."""
    instance, columns, best, _ = tiny(144)
    assert best == pytest.approx(5.9917, rel=1e-4)
    for workers in (1, 2):
        found = CpsatModel(columns).solve(time_limit=LIMIT, gap=0, workers=workers)
        assert_optimal(instance, found, best)


@pytest.mark.parametrize("chunk", range(4))
def test_solvers_agree_where_there_are_too_many_plans_to_go_through(chunk: int) -> None:
    """Each one's bound is above the other's plan."""
    for seed in seeds(chunk, size=15):
        instance = wide_instance(seed)
        columns = column_set(instance)
        found = [by_cpsat(columns), by_highs(columns)]
        best = max(evaluate(instance, each.plan).objective for each in found if each.plan is not None)
        for each in found:
            assert_optimal(instance, each, best)


@pytest.mark.parametrize("method", ["cpsat", "mip", "auto"])
def test_the_ladder_ends_at_the_optimum(method: str) -> None:
    """Through the child process, which once stopped at the first plan that was better than greedy's."""
    with Worker() as worker:
        for seed in range(0, 500, 10):
            instance, _, best, _ = tiny(seed)
            result = solve(instance, method=method, gap=0 if seed % 20 else 1e-4, time_limit=LIMIT, worker=worker)
            assert result.reason == "gap" or seed % 20, instance.name
            assert result.objective >= best * (1 - 1e-4), instance.name
            assert result.objective <= best * (1 + 1e-9), instance.name
            assert result.bound is not None
            assert result.bound >= best * (1 - 1e-9), instance.name
            if seed % 20:
                assert result.objective == pytest.approx(best, rel=1e-6, abs=1e-9), instance.name
