"""What the benchmark ``scale`` is made of: its instances, its processes, its pictures."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import coplace.solver
from benchmarks import scale
from benchmarks.__main__ import app, report
from benchmarks.measure import MeasurementError
from benchmarks.plots import Curve, gap_against_time, time_against_size
from benchmarks.registry import WISHES, Benchmark, Figure
from benchmarks.scale_row import Spec, counts_only, main, next_round, run
from coplace.instances import Instance
from coplace.instances.generation import generate
from coplace.instances.writing import to_document
from coplace.solver import Result, solve

TINY = Spec("solve", "ps-mix", 6, 10, "greedy", limit=10.0)

CURVES = [
    Curve("proven", 64, 3.0, 100.0, [(0.1, 60.0), (1.0, 95.0), (3.0, 100.0)]),
    Curve("without a bound", 200, 5.0, None, [(0.1, 60.0)]),
]


def valid(given: Instance) -> bool:
    """Whether a file with it would be read; copies with other values are not checked."""
    return len(Instance.model_validate(to_document(given), context={}).jobs) > 0


def test_a_row_leaves_its_figures_and_files(tmp_path: Path) -> None:
    spec, out = tmp_path / "spec.json", tmp_path / "out.json"
    spec.write_text(json.dumps({**_fields(TINY), "folder": str(tmp_path)}), encoding="utf-8")
    main([str(spec), str(out)])
    outcome = json.loads(out.read_text(encoding="utf-8"))
    checked = scale._checked(tmp_path)
    assert checked["feasible"]
    assert checked["objective"] == pytest.approx(outcome["objective"])
    assert outcome["peak_gib"] > 0
    assert [objective for _, objective in outcome["events"]] == sorted(objective for _, objective in outcome["events"])


def _fields(spec: Spec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in Spec.__dataclass_fields__}


@pytest.mark.parametrize("method", ["sia", "sia-own"])
def test_a_baseline_is_scored_by_the_evaluator(method: str) -> None:
    assert run(replace(TINY, kind="baseline", method=method)).objective > 0


def test_only_gpus_count_in_the_counts_row() -> None:
    given = counts_only(4, 8)
    assert {node.free[0] for node in given.nodes} == {8}
    assert {(job.worker.gpu, job.worker.profiles[0].cpu, job.max_servers) for job in given.jobs} == {(1, 0, 0)}
    assert valid(given)


def test_the_next_round_runs_the_plan_of_the_last() -> None:
    given = generate("ps-mix", nodes=20, jobs=40, seed=1)
    result = solve(given, method="greedy")
    after = next_round(given, result, "ps-mix", share=0.1)
    names = {job.name for job in given.jobs}
    assert len(after.jobs) == 40
    assert sum(job.name not in names for job in after.jobs) == 4
    assert all(job.current == result.plan.get(job.name) for job in after.jobs if job.name in names)
    assert valid(after)


class Forgetful:
    """Solves every round from scratch."""

    def __enter__(self) -> "Forgetful":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def solve(self, given: Instance, **limits: Any) -> Result:
        return solve(given, method="greedy", **limits)


def test_a_second_round_is_measured_against_a_cold_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coplace.solver, "RoundSolver", Forgetful, raising=False)
    outcome = run(replace(TINY, kind="again"))
    assert outcome.extra["objective over that of a cold solve"] == pytest.approx(1.0)
    assert outcome.extra["jobs moved"] == outcome.extra["jobs moved by a cold solve"]


# --- rows that fail -------------------------------------------------------------------------------------------------


def test_a_row_that_hangs_is_ended() -> None:
    with pytest.raises(MeasurementError, match="was ended after 0 s"):
        scale._run([sys.executable, "-c", "import time; time.sleep(60)"], 0.3)


def test_a_row_that_fails_is_a_missed_target(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = scale._outcome(replace(TINY, family="none"))
    assert isinstance(outcome, str)
    assert outcome.startswith("ended with exit code 1: ")
    assert scale._failed("some row", outcome).met is False
    assert "some row: ended with exit code 1" in capsys.readouterr().err


# --- options --------------------------------------------------------------------------------------------------------


def test_larger_clusters_are_left_out_or_added(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scale._most_nodes() < scale.ROWS[-1].nodes, "the largest takes too long to be run unasked"
    monkeypatch.setattr(WISHES, "most_nodes", 200)
    assert scale._most_nodes() == 200
    document = report(Benchmark("scale", "", lambda smoke: []), [Figure("f", 1.0, "")])
    assert document["command"] == "python -m benchmarks scale --most-nodes 200"


def test_a_missing_folder_for_pictures_is_refused_before_the_run(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["scale", "--plots", str(tmp_path / "none")])
    assert done.exit_code == 2
    assert done.stderr.endswith("none: no such folder\n")


def test_without_matplotlib_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = CliRunner().invoke(app, ["scale", "--plots", str(tmp_path)])
    assert done.exit_code == 1
    assert done.stderr == "benchmarks: scale: --plots needs matplotlib: .venv/bin/pip install -e '.[bench]'\n"


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_pictures_are_drawn(suffix: str, tmp_path: Path) -> None:
    gap, time = tmp_path / f"gap.{suffix}", tmp_path / f"time.{suffix}"
    gap_against_time(CURVES, gap)
    time_against_size(CURVES, {64: 3.0, 200: 5.0}, time)
    assert min(gap.stat().st_size, time.stat().st_size) > 1_000


def test_pictures_without_any_bound_are_drawn(tmp_path: Path) -> None:
    gap_against_time(CURVES[1:], tmp_path / "gap.svg")
    assert (tmp_path / "gap.svg").exists()
