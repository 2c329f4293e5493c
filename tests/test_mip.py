"""The formulation for MIP solvers finds the best plans of brute force, and says no more than it can prove."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import highspy
import pytest

from coplace.formulations.columns import ColumnSet, column_set
from coplace.formulations.evaluate import evaluate
from coplace.formulations.mip import MipModel, available_backends, backends
from coplace.formulations.solution import Solution
from coplace.instances import Allocation, InputError, Instance, Plan
from coplace.instances.generation import generate
from coplace.solver import check
from tests.building import A100, instance, node, ps_job, ring_job
from tests.oracle.tiny import best_of_tiny, tiny_instance

CHUNK = 20
CHUNKS = range(2)
INSTALLED = [name for name, version in available_backends().items() if not version.startswith("not available")]


@cache
def brute_force(seed: int) -> tuple[Instance, ColumnSet, float, Plan]:
    tiny = tiny_instance(seed)
    return tiny, column_set(tiny), *best_of_tiny(seed)


def assert_best(seed: int, solution: Solution) -> None:
    tiny, _, best, _ = brute_force(seed)
    assert solution.status == "optimal", tiny.name
    assert solution.plan is not None
    assert solution.bound is not None
    assert solution.objective == pytest.approx(best, rel=1e-6, abs=1e-9), tiny.name
    assert solution.bound >= best * (1 - 1e-6)
    assert check(tiny, solution.plan).violations == ()
    assert evaluate(tiny, solution.plan).objective == pytest.approx(best, rel=1e-6, abs=1e-9), tiny.name


@pytest.mark.parametrize("backend", [name for name in INSTALLED if name != "highs"])
@pytest.mark.parametrize("chunk", CHUNKS)
def test_other_solvers_find_what_brute_force_finds(backend: str, chunk: int) -> None:
    """Of HiGHS, with the rows against symmetry and without, test_exact_agreement.py says so."""
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        _, columns, _, _ = brute_force(seed)
        assert_best(seed, MipModel(columns).solve(backend=backend, time_limit=30, gap=1e-9))


@pytest.mark.parametrize("ending", [".mps", ".lp"])
def test_a_written_problem_has_the_same_optimum(ending: str, tmp_path: Path) -> None:
    for seed in range(0, 40, 5):
        _, columns, best, _ = brute_force(seed)
        model = MipModel(columns)
        path = tmp_path / f"{seed}{ending}"
        model.write(path)
        highs = highspy.Highs()
        highs.setOptionValue("output_flag", False)
        highs.setOptionValue("mip_rel_gap", 0.0)
        assert highs.readModel(str(path)) == highspy.HighsStatus.kOk
        highs.run()
        assert highs.getObjectiveValue() == pytest.approx(best * model.scale, rel=1e-6, abs=1e-6)


def test_written_names_say_what_they_are(tmp_path: Path) -> None:
    levels = {"interference": {"slope": 1.0}, "spread": {"slope": 0.5}}
    job = ps_job(worker={"gpu": 1, "cpu": 2, "max": 2, "intensity": 30})
    job["speed"] |= levels
    columns = column_set(instance([node("n0"), node("n1", cpu=5)], [job], pressure_levels=[0.5, 1.0]))
    MipModel(columns).write(tmp_path / "small.lp")
    text = (tmp_path / "small.lp").read_text()
    for name in ("column_0_1", "workers_0_0_1", "servers_0_0_1", "used_0_1", "level_1_0", "capacity_1_cpu", "span_0"):
        assert name in text
    with pytest.raises(InputError, match=r"\.mps or \.lp"):
        MipModel(columns).write(tmp_path / "small.txt")


# --- backends -------------------------------------------------------------------------------------------------------


def test_backends_are_listed_with_their_versions() -> None:
    found = available_backends()
    assert list(found) == ["highs", "cbc", "scip", "gurobi", "cplex"]
    assert found["highs"][0].isdigit()
    assert all(version[0].isdigit() or version.startswith("not available: needs ") for version in found.values())


@pytest.mark.parametrize("backend", ["glpk", "HiGHS", ""])
def test_an_unknown_backend_is_refused_with_those_available(backend: str) -> None:
    _, columns, _, _ = brute_force(3)
    with pytest.raises(InputError, match="highs") as caught:
        MipModel(columns).solve(backend=backend, time_limit=1)
    assert len(caught.value.problems) == 1


def test_pulp_is_loaded_only_to_build_a_model() -> None:
    script = "import sys, coplace.formulations.mip; print({'pulp', 'highspy', 'ortools'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "set()", done.stderr


def test_highs_prints_nothing_and_takes_any_number_of_threads(capfd: pytest.CaptureFixture[str]) -> None:
    _, columns, best, _ = brute_force(3)
    for threads in (1, 2, 1):
        found = MipModel(columns).solve(time_limit=30, gap=0, threads=threads).objective
        assert found == pytest.approx(best, rel=1e-6)
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif("cbc" not in INSTALLED, reason="no CBC")
def test_cbc_leaves_no_files_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    MipModel(brute_force(3)[1]).solve(backend="cbc", time_limit=30)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell script")
def test_a_cbc_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = tmp_path / "cbc"
    hangs.write_text("#!/bin/sh\nexec sleep 60\n")
    hangs.chmod(0o755)
    monkeypatch.setattr(backends, "_cbc", lambda: (str(hangs), "9.9"))
    monkeypatch.setattr(backends, "GRACE_SECONDS", 0.1)
    found = MipModel(brute_force(3)[1]).solve(backend="cbc", time_limit=0.1)
    assert (found.status, found.plan, found.objective, found.bound) == ("unknown", None, None, None)
    assert found.seconds < 10


# --- what solvers say is not believed -------------------------------------------------------------------------------


def lying(monkeypatch: pytest.MonkeyPatch, model: MipModel, values: Any, answer: backends.Answer) -> Solution:
    def solve(problem: Any, options: Any) -> backends.Answer:
        for variable in problem.variables():
            variable.varValue = values(variable)
        return answer

    monkeypatch.setitem(backends._BACKENDS, "highs", backends._Backend(solve, lambda: "1.0", ""))
    return model.solve(time_limit=1)


def test_values_that_break_a_row_give_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MipModel(column_set(instance([node()], [ring_job("j0"), ring_job("j1")])))
    said = backends.Answer(bound=1e9, finished=True)
    for value in (lambda variable: variable.upBound, lambda variable: variable.name.startswith("column_0_0")):
        found = lying(monkeypatch, model, value, said)
        assert (found.status, found.plan, found.objective) == ("unknown", None, None)
    assert lying(monkeypatch, model, lambda _: None, backends.Answer()).status == "unknown"


def test_a_plan_is_optimal_only_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MipModel(column_set(instance([node()], [ring_job()])))
    best = model.solve(time_limit=10, gap=0)
    assert best.objective is not None
    values = {variable.name: variable.varValue + 1e-7 for variable in model.problem.variables()}
    for bound, status in ((best.objective, "optimal"), (best.objective * 1.01, "feasible"), (None, "feasible")):
        said = backends.Answer(None if bound is None else bound * model.scale, finished=True)
        found = lying(monkeypatch, model, lambda variable: values[variable.name], said)
        assert (found.status, found.bound) == (status, bound and pytest.approx(bound))
        assert found.objective == best.objective


# --- hints ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("symmetry", [True, False])
def test_a_hint_is_where_the_search_starts(symmetry: bool) -> None:
    """Without time nothing else is found."""
    given = 0
    for seed in range(60):
        _, columns, best, plan = brute_force(seed)
        found = MipModel(columns, symmetry=symmetry).solve(time_limit=0, hint=plan)
        assert found.objective == pytest.approx(best, rel=1e-6, abs=1e-9), seed
        given += len(plan)
    assert given > 60


def test_a_hint_is_turned_the_way_that_symmetry_asks_for() -> None:
    """The later of equal nodes and equal jobs has more in the hint."""
    equal = instance([node("n0"), node("n1"), node("n2")], [ring_job("j0"), ring_job("j1"), ring_job("j2")])
    hint = Plan(
        allocations={
            "j1": Allocation(tasks={"worker": {"n1": 2}}),
            "j2": Allocation(tasks={"worker": {"n2": 4}}),
        }
    )
    found = MipModel(column_set(equal)).solve(time_limit=0, hint=hint)
    assert found.objective == pytest.approx(evaluate(equal, hint).objective)
    assert found.plan is not None
    assert {job: a.tasks for job, a in found.plan.allocations.items()} == {
        "j0": {"worker": {"n0": 4}},
        "j1": {"worker": {"n1": 2}},
    }


def test_a_hint_that_no_column_covers_loses_tasks() -> None:
    """A second server without use is left out, as its column was."""
    job = ps_job(ps={"cpu": 1, "memory": "2Gi", "max": 2}, worker={"gpu": 1, "cpu": 2, "memory": "8Gi", "max": 1})
    job["speed"] = job["speed"] | {"types": {"a100": A100 | {"e": 0.1}}}
    alone = instance([node("n0"), node("n1")], [job])
    columns = column_set(alone)
    assert {column.servers for column in columns.jobs[0].columns} == {1}
    hint = Plan(allocations={"j": Allocation(tasks={"worker": {"n0": 1}, "ps": {"n0": 2}})})
    found = MipModel(columns).solve(time_limit=0, hint=hint)
    assert found.plan is not None
    assert found.plan["j"].tasks == {"worker": {"n0": 1}, "ps": {"n0": 1}}


@pytest.mark.parametrize("backend", INSTALLED)
def test_a_hint_that_breaks_a_rule_changes_nothing(backend: str) -> None:
    two = instance([node("n0"), node("n1")], [ring_job("j0"), ring_job("j1")])
    full = {"worker": {"n0": 4}}
    columns = column_set(two)
    best = MipModel(columns).solve(backend=backend, time_limit=30, gap=1e-9)
    hints = [
        Plan(allocations={"j0": Allocation(tasks=full), "j1": Allocation(tasks=full)}),  # does not fit
        Plan(allocations={"j0": Allocation(tasks={"worker": {"elsewhere": 1}})}),
        Plan(allocations={"stranger": Allocation(tasks=full), "j0": Allocation(tasks={"worker": {"n0": 5}})}),
        Plan(allocations={"j0": Allocation(tasks={"ps": {"n0": 1}})}),
        Plan(allocations={"j0": Allocation(tasks={"worker": {"n0": 1}}, profiles={"worker": 3})}),
        Plan(),
    ]
    for hint in hints:
        found = MipModel(columns).solve(backend=backend, time_limit=30, gap=1e-9, hint=hint)
        assert found.status == "optimal"
        assert found.objective == pytest.approx(best.objective)


def test_a_hint_survives_columns_that_were_left_out() -> None:
    _, columns, _, plan = brute_force(3)
    none = columns.restricted([[False] * len(job.columns) for job in columns.jobs])
    assert MipModel(none).solve(time_limit=10, hint=plan).status == "optimal"


# --- size -----------------------------------------------------------------------------------------------------------


def test_a_larger_model_is_built_and_improved() -> None:
    wide = generate("ps-mix", nodes=8, jobs=12, seed=1, pressure=False)
    found = MipModel(column_set(wide)).solve(time_limit=3, hint=wide.current)
    assert found.plan is not None
    assert found.objective is not None
    assert check(wide, found.plan).violations == ()
    assert evaluate(wide, found.plan).objective >= found.objective * (1 - 1e-9)
    assert found.bound is None or found.bound >= found.objective
