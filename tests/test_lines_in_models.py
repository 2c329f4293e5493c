"""Both formulations over lines: what they say of brute force's optimum is within the error that lines state."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from ortools.sat.python import cp_model

from coplace.formulations import columns as columns_module
from coplace.formulations.candidates import candidates
from coplace.formulations.columns import MANY_COLUMNS, ColumnSet, column_set
from coplace.formulations.cpsat import CpsatModel
from coplace.formulations.cpsat.objective import LARGEST_SUM
from coplace.formulations.evaluate import evaluate
from coplace.formulations.mip import MipModel
from coplace.formulations.relaxation import Relaxation
from coplace.formulations.solution import Solution
from coplace.instances import Instance, Plan
from coplace.solver import check
from coplace.solver.exact import staged
from coplace.solver.exact.task import Bounded, Event, Found, Task
from tests.building import A100, instance, node, ps_job, ring_job
from tests.oracle.tiny import best_of_tiny, tiny_instance, wide_instance

CHUNK = 10
CHUNKS = range(7)
SLACK = 1e-6
"""Share of the objective that solvers' tolerances and rounding may cost."""


def cpsat(columns: ColumnSet, *, symmetry: bool = True, gap: float = 0.0, **options: Any) -> Solution:
    options = {"time_limit": 30.0, "workers": 1} | options
    return CpsatModel(columns, symmetry=symmetry).solve(gap=gap, **options)


def highs(columns: ColumnSet, *, symmetry: bool = True, gap: float = 0.0, **options: Any) -> Solution:
    return MipModel(columns, symmetry=symmetry).solve(gap=gap, **({"time_limit": 30.0} | options))


SOLVERS: dict[str, Callable[..., Solution]] = {"cpsat": cpsat, "highs": highs}


@cache
def brute_force(seed: int) -> tuple[Instance, float, Plan]:
    tiny = tiny_instance(seed)
    return (tiny, *best_of_tiny(seed))


def tolerance_of(seed: int) -> float:
    return (0.0, 1e-2, 0.1)[seed % 3]


def assert_within_error(columns: ColumnSet, solution: Solution, best: float) -> None:
    """The plan keeps every rule and misses *best* by no more than the error of lines; the bound is above it."""
    name, slack = columns.instance.name, SLACK * best + 1e-9
    assert solution.status == "optimal", name
    assert solution.plan is not None
    assert solution.bound is not None
    assert check(columns.instance, solution.plan).violations == (), name
    reached = evaluate(columns.instance, solution.plan).objective
    assert best - columns.error - columns.excess - slack <= reached <= best + slack, name
    assert solution.bound >= best - slack, name
    assert solution.bound <= best + columns.error + columns.excess + slack, name


# --- brute force ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("chunk", CHUNKS)
def test_lines_miss_the_best_plan_by_no_more_than_they_say(chunk: int, solver: str) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        tiny, best, _ = brute_force(seed)
        columns = column_set(tiny, counts="lines", tolerance=tolerance_of(seed))
        assert not any(choices.columns for choices in columns.jobs)
        assert_within_error(columns, SOLVERS[solver](columns, symmetry=seed % 2 == 0), best)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_the_relaxation_bounds_plans_and_not_only_lines(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        tiny, best, _ = brute_force(seed)
        relaxation = Relaxation(column_set(tiny, counts="lines", tolerance=tolerance_of(seed)))
        prices = relaxation.best_prices()
        assert relaxation.bound(prices).bound >= best * (1 - 1e-9)
        assert relaxation.bound(prices * 0.5).bound >= best * (1 - 1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("seed", range(8))
def test_lines_and_columns_agree_on_wider_instances(seed: int, solver: str) -> None:
    wide = wide_instance(seed)
    exact = highs(column_set(wide, counts="columns"), time_limit=60.0)
    if exact.status != "optimal":
        pytest.skip("the columns take too long")
    assert exact.plan is not None
    columns = column_set(wide, counts="lines", tolerance=tolerance_of(seed))
    assert_within_error(columns, SOLVERS[solver](columns), evaluate(wide, exact.plan).objective)


# --- each part of a line --------------------------------------------------------------------------------------------


def job_with_memory(name: str = "j", least: int = 1, **changes: Any) -> dict[str, Any]:
    """A server needs 3 GiB up to 4 workers and 512 MiB for each beyond; up to two servers."""
    ps = {
        "cpu": 1,
        "memory": "3Gi",
        "max": 2,
        "memory_model": {"model": "1Gi", "receive_buffer": "512Mi"},
    }
    speed = {"form": "ps-sync", "batch": 4096, "types": {"a100": A100 | {"c": 0.3, "d": 1e-4}}}
    worker = {"gpu": 1, "cpu": 2, "memory": "1Gi", "min": least, "max": 12}
    return ps_job(name, worker=worker, ps=ps, speed=speed) | changes


def assert_as_with_columns(case: Instance) -> None:
    """Without a tolerance, lines have the same optimum as columns, by every solver."""
    best = highs(column_set(case, counts="columns"))
    assert best.objective is not None
    columns = column_set(case, counts="lines", tolerance=0.0)
    assert columns.error <= 1e-9 * best.objective
    assert any(choices.lines for choices in columns.jobs)
    for solver in SOLVERS.values():
        found = solver(columns)
        assert found.plan is not None
        assert check(case, found.plan).violations == ()
        assert evaluate(case, found.plan).objective == pytest.approx(best.objective, rel=SLACK)


@pytest.mark.parametrize("memory", ["10Gi", "12Gi", "13Gi", "14Gi", "16Gi", "64Gi"])
def test_servers_of_lines_grow_with_their_workers(memory: str) -> None:
    """On the only node, or with the servers on another, which has no GPU."""
    one = node("n0", gpu=12, cpu=64, memory=memory)
    beside = node("n1", gpu=0, cpu=64, memory="7Gi", gpu_type="none")
    assert_as_with_columns(instance([one], [job_with_memory()]))
    assert_as_with_columns(instance([one, beside], [job_with_memory(), job_with_memory("k", least=3)]))


@pytest.mark.parametrize("quota", [{"memory": f"{gib}Gi"} for gib in (8, 11, 13, 18, 26)] + [{"gpu": 7}, {"cpu": 13}])
def test_quotas_count_what_lines_demand(quota: dict[str, Any]) -> None:
    nodes = [node(f"n{n}", gpu=8, cpu=64) for n in range(2)]
    jobs = [job_with_memory("a"), job_with_memory("b", weight=1.5), ring_job("c")]
    assert_as_with_columns(instance(nodes, jobs, rules={"quotas": {"default": quota}}))


def test_between_corners_of_a_line_everything_is_linear() -> None:
    case = instance([node(gpu=12, cpu=64)], [job_with_memory(), job_with_memory("k", least=4)])
    lines = [line for choices in column_set(case, counts="lines", tolerance=0.2).jobs for line in choices.lines]
    assert any(set(line.corners) > set(line.curve.xs) for line in lines)
    for line in lines:
        workers = np.arange(line.least_workers, line.most_workers + 1)
        for of in (line.curve, line.ps_memory):
            between = np.interp(workers, line.corners, [of(w) for w in line.corners])
            assert between == pytest.approx(np.array([of(w) for w in workers.tolist()]), rel=1e-12)


def test_slots_and_curves_that_are_not_concave() -> None:
    """Speeds of a table that rise faster late than early, for workers of 3 GPUs on nodes of 4."""
    points = [{"gpu_type": "a100", "workers": w, "speed": s} for w, s in ((1, 10), (2, 12), (5, 70), (8, 75))]
    worker = {"gpu": 3, "cpu": 1, "memory": "1Gi", "max": 8}
    jobs = [ring_job(f"j{j}", worker=worker, speed={"form": "table", "points": points}) for j in range(2)]
    case = instance([node(f"n{n}") for n in range(7)], jobs)
    curves = [line.curve for choices in column_set(case, counts="lines").jobs for line in choices.lines]
    assert not all(curve.concave for curve in curves)
    assert_as_with_columns(case)


def test_scaled_values_leave_room_for_the_rounding_of_lines() -> None:
    columns = column_set(many(("sync", "ring"), 512), counts="lines")
    model = CpsatModel(columns)
    worth = 0
    for j in range(len(columns.jobs)):
        of_lines = []
        for line, chosen, encoded in model.variables.lines_of(j):
            amounts = dict(encoded.value)
            of_lines += [
                amounts.get(chosen, 0)
                + sum(amounts.get(variable, 0) * amount for variable, amount in encoded.assignment(w))
                for w in range(line.least_workers, line.most_workers + 1)
            ]
        worth += max(of_lines)
    assert 0.99 * LARGEST_SUM < worth <= LARGEST_SUM


# --- hints ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("symmetry", [True, False])
def test_a_hint_is_where_the_search_for_lines_starts(symmetry: bool) -> None:
    """Without time HiGHS finds nothing else; a hint may lose tasks that are worth less than the error."""
    for seed in range(40):
        tiny, best, plan = brute_force(seed)
        columns = column_set(tiny, counts="lines", tolerance=tolerance_of(seed))
        found = highs(columns, symmetry=symmetry, time_limit=0, hint=plan)
        assert found.plan is not None, seed
        assert evaluate(tiny, found.plan).objective >= best * (1 - SLACK) - columns.error - columns.excess - 1e-9, seed


def test_a_hint_for_lines_is_a_solution_for_cpsat() -> None:
    """CP-SAT finds a solution with all hinted variables as they are hinted, and the hinted plan in it."""
    complete = 0
    for seed in range(40):
        tiny, _, plan = brute_force(seed)
        columns = column_set(tiny, counts="lines", tolerance=tolerance_of(seed))
        model = CpsatModel(columns, symmetry=False)
        model._hint(plan)
        solver = cp_model.CpSolver()
        solver.parameters.fix_variables_to_their_hinted_value = True
        solver.parameters.num_workers = 1
        assert solver.solve(model.proto) in (cp_model.OPTIMAL, cp_model.FEASIBLE), seed
        complete += model._plan(solver.value) == plan
    assert complete >= 30


# --- in stages ------------------------------------------------------------------------------------------------------


def staged_events(columns: ColumnSet, backend: str) -> list[Event]:
    none = Plan()
    task = Task(columns, backend, none, evaluate(columns.instance, none).objective, time_limit=30.0, gap=0.0, threads=1)
    events: list[Event] = []
    staged.Staged(task, events.append).run()
    return events


@pytest.mark.parametrize("few", [0, 2_000])
@pytest.mark.parametrize("backend", SOLVERS)
def test_stages_add_the_error_once(few: int, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "FEW_COLUMNS", few)
    for seed in range(1, 30, 3):
        tiny, best, _ = brute_force(seed)
        if tiny.current.allocations:  # running nothing may break a rule
            continue
        columns = column_set(tiny, counts="lines", tolerance=0.1)
        events = staged_events(columns, backend)
        bound = min(event.bound for event in events if isinstance(event, Bounded))
        plans = [event.plan for event in events if isinstance(event, Found)]
        reached = max((evaluate(tiny, plan).objective for plan in plans), default=0.0)
        slack = SLACK * best + 1e-9
        assert best - slack <= bound <= best + columns.error + columns.excess + slack
        assert reached >= best - columns.error - columns.excess - slack


def test_columns_are_dropped_and_lines_with_them_if_asked() -> None:
    columns = column_set(brute_force(3)[0], counts="lines")
    none = [[False] * len(choices.columns) for choices in columns.jobs]
    assert columns.restricted(none) == columns
    without = columns.restricted(none, [[False] * len(choices.lines) for choices in columns.jobs])
    assert not any(choices.lines for choices in without.jobs)


# --- many counts ----------------------------------------------------------------------------------------------------

SPEEDS: dict[str, dict[str, Any]] = {
    "sync": {"form": "ps-sync", "batch": 8192, "types": {"a100": A100 | {"c": 0.003, "d": 1e-5}}},
    "ring": {
        "form": "allreduce",
        "batch": 8192,
        "types": {"a100": {"a": 0.001, "b": 0.01, "latency_inter": 1e-4, "transfer_inter": 0.02}},
    },
    "table": {
        "form": "table",
        "points": [
            {"gpu_type": "a100", "workers": 2**i, "speed": 100 * 1.8**i * (1 + 0.1 * (i % 3))} for i in range(10)
        ],
    },
}


def many(kinds: tuple[str, ...], counts: int, **changes: Any) -> Instance:
    """Jobs of up to so many workers on a cluster of that many GPUs."""
    worker = {"gpu": 1, "cpu": 2, "memory": "8Gi", "max": counts}
    ps = {"cpu": 1, "memory": "2Gi", "max": 3}
    jobs = [
        ps_job(f"j{j}", worker=worker, ps=ps, speed=SPEEDS[kind])
        if kind == "sync"
        else ring_job(f"j{j}", worker=worker, speed=SPEEDS[kind])
        for j, kind in enumerate(kinds)
    ]
    nodes = [node(f"n{n}", gpu=16, cpu=64, memory="512Gi") for n in range(counts // 16)]
    return instance(nodes, jobs, goal="fairness", **changes)


@pytest.mark.parametrize(("kinds", "counts"), [(("sync", "table"), 128), (("ring", "sync"), 128), (("sync",), 512)])
def test_many_counts_have_the_same_optimum_in_a_model_much_smaller(kinds: tuple[str, ...], counts: int) -> None:
    case = many(kinds, counts)
    with_columns, with_lines = (column_set(case, counts=how) for how in ("columns", "lines"))  # type: ignore[arg-type]
    gap = 1e-3
    exact = cpsat(with_columns, gap=gap, workers=2)
    assert exact.status == "optimal"
    assert exact.bound is not None
    assert exact.objective is not None
    for solver in SOLVERS.values():
        found = solver(with_lines, gap=gap)
        assert found.status == "optimal"
        assert found.plan is not None
        assert found.bound is not None
        reached = evaluate(case, found.plan).objective
        assert reached >= exact.objective - with_lines.error - with_lines.excess - gap * exact.objective
        assert reached <= exact.bound * (1 + SLACK)
        assert found.bound >= exact.objective * (1 - SLACK)
    sizes = [len(MipModel(columns).problem.variables()) for columns in (with_columns, with_lines)]
    assert sizes[1] < sizes[0] / 2
    assert with_lines.error <= 0.0101 * exact.bound * len(kinds)


def test_few_counts_or_columns_stay_columns() -> None:
    for case in (many(("sync", "table"), 64), many(("table",), 128)):
        columns = column_set(case)
        assert not any(choices.lines for choices in columns.jobs)
        assert (columns.error, columns.excess) == (0.0, 0.0)


def test_jobs_with_many_columns_get_lines_and_others_do_not() -> None:
    spread = SPEEDS["sync"] | {"spread": {"slope": 0.5}}
    worker = {"gpu": 1, "cpu": 2, "memory": "8Gi", "max": 128}
    wide = ps_job("wide", worker=worker, ps={"cpu": 1, "memory": "2Gi", "max": 3}, speed=spread)
    nodes = [node(f"n{n}", gpu=16, cpu=64, memory="512Gi") for n in range(8)]
    case = instance(nodes, [wide, ring_job("narrow")])
    columns = column_set(case)
    assert columns.jobs[0].lines
    assert not columns.jobs[0].columns
    assert columns.jobs[1].columns
    assert not columns.jobs[1].lines
    assert columns.error > 0
    every = column_set(case, counts="columns")
    assert len(every.jobs[0].columns) > MANY_COLUMNS
    assert columns.jobs[1] == every.jobs[1]


def test_columns_of_a_huge_job_are_not_even_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("the whole grid was built")

    monkeypatch.setattr(columns_module, "job_candidates", refuse)
    monkeypatch.setattr(columns_module, "MOST_CELLS", 10_000)
    assert column_set(many(("sync",), 512)).jobs[0].lines


@pytest.mark.parametrize("seed", range(30))
def test_forced_columns_are_the_candidates(seed: int) -> None:
    tiny = brute_force(seed)[0]
    found, columns = candidates(tiny), column_set(tiny, counts="columns")
    assert columns == column_set(tiny)
    assert (columns.error, columns.excess) == (0.0, 0.0)
    for j, choices in enumerate(columns.jobs):
        assert choices.lines == ()
        if choices.must_keep:
            assert choices.columns == ()
            continue
        of_job = found.of(j)
        worth = found.value[of_job] > 0
        assert [column.value for column in choices.columns] == found.value[of_job][worth].tolist()
        assert [column.workers for column in choices.columns] == found.workers[of_job][worth].tolist()
        assert np.array_equal([column.span for column in choices.columns], found.span[of_job][worth])
