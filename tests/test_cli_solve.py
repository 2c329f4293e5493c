"""``coplace solve``: what people read, what programs read, and what is refused.

What people read is compared with tests/golden/*.txt. After a wanted change, write these files anew and look at the
difference before committing it:

    COPLACE_REGENERATE=1 python -m pytest tests/test_cli_solve.py
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

import coplace
from coplace.cli.app import app
from coplace.cli.output import ASCII, UNICODE, Symbols
from coplace.cli.report import report
from coplace.formulations.columns import column_set
from coplace.formulations.evaluate import evaluate
from coplace.formulations.mip import MipModel
from coplace.instances import Instance, Plan, parse_instance, read_instance
from coplace.instances.files import write_atomically
from coplace.solver import Pending, Result, check
from coplace.solver.result_file import read_plan

GOLDEN = Path(__file__).parent / "golden"
EXAMPLES = Path(coplace.__file__).parent / "instances" / "examples"
RUN_CLI = "import sys; from coplace.cli.main import main; sys.exit(main())"
FIVE_LINES = str(EXAMPLES / "five-lines.yaml")

RING = {"form": "allreduce", "batch": 256, "types": {"v100": {"a": 0.004}, "k80": {"a": 0.02}}}
PS = {"form": "ps-sync", "batch": 128, "types": {"v100": {"a": 0.008, "c": 0.05}, "k80": {"a": 0.03, "c": 0.05}}}


def ring(name: str, **more: Any) -> dict[str, Any]:
    worker = {"cpu": 2, "memory": "8Gi", "max": 4}
    return {"name": name, "architecture": "allreduce", "worker": worker, "speed": RING, "remaining": 1e6} | more


def with_servers(name: str, **more: Any) -> dict[str, Any]:
    worker = {"profiles": [{"cpu": 4, "memory": "8Gi"}, {"cpu": 1, "memory": "8Gi", "slowdown": 1.5}], "max": 4}
    ps = {"cpu": 2, "memory": "4Gi", "max": 4}
    return {"name": name, "architecture": "ps", "worker": worker, "ps": ps, "speed": PS, "remaining": 1e6} | more


def at(*worker: tuple[str, int], ps: dict[str, int] | None = None, **profiles: int) -> dict[str, Any]:
    tasks = {"worker": dict(worker)} | ({"ps": ps} if ps else {})
    return {"tasks": tasks} | ({"profiles": profiles} if profiles else {})


FRESH = {
    "version": "coplace/v1",
    "name": "fresh",
    "goal": "throughput",
    "nodes": [{"name": "big", "gpu_type": "v100", "gpu": 4, "cpu": 16, "memory": "64Gi"}],
    "jobs": [
        ring("first", worker={"cpu": 2, "memory": "8Gi", "min": 4, "max": 4}),
        ring("[bold red]second[/]", worker={"gpu": 8, "cpu": 2, "memory": "8Gi"}),
    ],
}

BUSY = {
    "version": "coplace/v1",
    "name": "busy [cluster]",
    "goal": "throughput",
    "rules": {"move_budget": 5},
    "nodes": [
        {"name": "a", "gpu_type": "v100", "gpu": 8, "cpu": 64, "memory": "256Gi"},
        {"name": "b", "gpu_type": "v100", "gpu": 8, "cpu": 64, "memory": "256Gi", "cordoned": True},
        {"name": "c", "gpu_type": "k80", "gpu": 4, "cpu": 32, "memory": "128Gi", "used": {"gpu": 1, "cpu": 4}},
        {"name": "d", "gpu_type": "k80", "gpu": 4, "cpu": 32, "memory": "128Gi", "lost": "all"},
        {"name": "wide-node-with-a-long-name-and-no-gpu", "cpu": 96, "memory": "512Gi"},
    ],
    "jobs": [
        ring("kept", pinned=True, current=at(("b", 2))),
        with_servers("[bold]grown[/bold]", current=at(("a", 1), ps={"a": 1})),
        ring("to-a-faster-type", current=at(("c", 1))),
        with_servers("frugal", current=at(("a", 1), ps={"a": 1})),
        ring("displaced-runs", current=at(("d", 2))),
        ring("displaced-waits", current=at(("d", 2))),
        ring("stopped", current=at(("c", 2))),
        with_servers("a-started-job-with-a-name-that-is-much-too-long-for-any-table-00017"),
        ring("waiting", worker={"gpu": 16, "cpu": 2, "memory": "8Gi"}),
    ],
}
BUSY_PLAN = {
    "kept": at(("b", 2)),
    "[bold]grown[/bold]": at(("a", 3), ps={"a": 1, "wide-node-with-a-long-name-and-no-gpu": 1}),
    "to-a-faster-type": at(("a", 1)),
    "frugal": at(("a", 1), ps={"a": 1}, worker=1),
    "displaced-runs": at(("c", 3)),
    "a-started-job-with-a-name-that-is-much-too-long-for-any-table-00017": at(("a", 2), ps={"a": 4}),
}
BUSY_PENDING = (
    Pending("displaced-waits", "capacity", "gpu", "its workers need 1 GPU on k80 nodes, 0 GPUs free"),
    Pending("stopped", "search", None, "the method left it out, though it would fit"),
    Pending("waiting", "capacity", "gpu", "a worker needs 16 GPUs, the largest v100 node offers 8 GPUs"),
)


def instance_of(document: dict[str, Any]) -> Instance:
    return parse_instance(json.loads(json.dumps(document)))


def result_of(instance: Instance, plan: dict[str, Any], pending: tuple[Pending, ...] = (), **more: Any) -> Result:
    """The result that a solve would give with that plan."""
    planned = Plan.model_validate({"allocations": plan})
    checked = check(instance, planned)
    assert checked.feasible, checked.violations
    fields: dict[str, Any] = {
        "status": "feasible", "reason": "finished", "objective": checked.objective, "bound": None, "gap": None,
        "certified_bound": None, "certified_gap": None, "prices": None, "detail": None, "wall_seconds": 0.5,
        "method": "auto", "found_by": "greedy", "seed": 0, "plan": planned,
        "jobs": evaluate(instance, planned).jobs, "pending": pending, "moved": checked.moved,
        "displaced": (), "instance_sha256": "0" * 64,
    }  # fmt: skip
    return Result(**fields | more)


def shown(instance: Instance, result: Result, width: int = 100, symbols: Symbols = UNICODE, **options: bool) -> str:
    page = Console(file=io.StringIO(), width=width, color_system=None, markup=False, highlight=False, emoji=False)
    for part in report(instance, result, instance.name or "unnamed", width, symbols, **options):
        page.print(part)
    assert isinstance(page.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in page.file.getvalue().splitlines())


def busy(width: int = 100, symbols: Symbols = UNICODE, **more: Any) -> str:
    instance = instance_of(BUSY)
    displaced = ("displaced-runs", "displaced-waits")
    return shown(instance, result_of(instance, BUSY_PLAN, BUSY_PENDING, displaced=displaced, **more), width, symbols)


def solved(document: dict[str, Any], folder: Path, *options: str) -> str:
    path = folder / "instance.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    done = CliRunner().invoke(app, ["solve", str(path), *options])
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    return done.stdout


def compare_with_golden(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.txt"
    text = re.sub(r"\d+\.\d+ s in all", "#.## s in all", text)
    if os.environ.get("COPLACE_REGENERATE"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


# --- what people read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("solve-fresh", lambda folder: solved(FRESH, folder, "--method", "greedy")),
        ("solve-keep-current", lambda folder: solved(BUSY, folder, "--method", "keep-current")),
        ("report-busy-80", lambda folder: busy(80)),
        ("report-busy-100", lambda folder: busy(100)),
        ("report-busy-140", lambda folder: busy(140)),
        ("report-busy-ascii", lambda folder: busy(100, ASCII)),
        (
            "report-proven",
            lambda folder: busy(status="optimal", reason="gap", bound=9.25, gap=8e-5, certified_gap=1.5e-3),
        ),
    ],
)
def test_what_people_read(name: str, make: Callable[[Path], str], tmp_path: Path) -> None:
    compare_with_golden(name, make(tmp_path))


@pytest.mark.parametrize("width", [72, 80, 100, 120])
def test_no_line_is_wider_than_the_page(width: int) -> None:
    assert max(map(len, busy(width).splitlines())) <= width


def test_every_job_is_named_whatever_brackets_its_name_holds() -> None:
    text = busy(140)
    for job in ("[bold]grown[/bold]", "kept", "frugal", "displaced-waits", "stopped", "waiting"):
        assert job in text


@pytest.mark.parametrize(
    ("reason", "words"),
    [("time", "the time limit was reached"), ("interrupted", "interrupted"), ("backend_failure", "a solver failed")],
)
def test_the_report_says_why_it_stopped(reason: str, words: str) -> None:
    assert f"ended      {words}; found by greedy" in busy(reason=reason)


def many(running: int, waiting: int) -> tuple[Instance, Result]:
    jobs = [ring(f"job-{i:03d}") for i in range(running + waiting)]
    jobs[running - 1]["current"] = at(("n-0", 1))  # the last of the running ones is the only one that moves
    jobs[-1]["current"] = at(("n-1", 1))  # the last of the waiting ones ran until now
    node = {"name": "n", "count": 40, "gpu_type": "v100", "gpu": 4, "cpu": 16, "memory": "64Gi"}
    instance = instance_of({"version": "coplace/v1", "nodes": [node], "jobs": jobs})
    plan = {f"job-{i:03d}": at((f"n-{39 - i // 4}", 1)) for i in range(running)}
    pending = tuple(
        Pending(f"job-{i:03d}", "capacity", "gpu", "its workers need 1 GPU on v100 nodes, 0 GPUs free")
        for i in range(running, running + waiting)
    )
    return instance, result_of(instance, plan, pending)


def test_long_tables_are_cut_to_what_changes_most() -> None:
    instance, result = many(60, 50)
    text = shown(instance, result)
    rows = re.findall(r"^job-\d+ .*", text, re.MULTILINE)
    assert len(rows) == 40 + 20
    assert rows[0].startswith("job-059  moved")
    assert rows[40].startswith("job-109  ran, stopped")
    assert "… 20 more run; --all shows them, --json too\n" in text
    assert "… 30 more wait; --all shows them, --json too\n" in text


def test_all_shows_every_job() -> None:
    instance, result = many(60, 50)
    text = shown(instance, result, show_all=True)
    assert len(re.findall(r"^job-\d+ .*", text, re.MULTILINE)) == 110
    assert "more" not in text


def test_stopped_jobs_are_never_cut() -> None:
    jobs = [ring(f"job-{i:03d}", current=at((f"n-{i}", 1))) for i in range(30)]
    node = {"name": "n", "count": 30, "gpu_type": "v100", "gpu": 4, "cpu": 16, "memory": "64Gi"}
    instance = instance_of({"version": "coplace/v1", "nodes": [node], "jobs": jobs})
    pending = tuple(Pending(job.name, "search", None, "the method left it out") for job in instance.jobs)
    text = shown(instance, result_of(instance, {}, pending))
    assert text.count("ran, stopped") == 30
    assert "No job runs, 30 wait (30 of them ran until now)." in text


def test_what_a_solver_says_cannot_steer_the_terminal() -> None:
    """Names cannot hold such characters; words of a failed solver, names of files and groups of digits may."""
    text = busy(reason="backend_failure", detail="evil\x9b31m\x7f")
    assert "evil\\x9b31m\\x7f" in text
    assert "\x9b" not in text


def test_the_report_says_what_failed() -> None:
    text = busy(140, reason="backend_failure", detail="cpsat: the solver process ended by signal SIGSEGV")
    assert "ended      a solver failed (cpsat: the solver process ended by signal SIGSEGV); found by greedy" in text


def test_the_report_gives_bound_and_gap_in_percent() -> None:
    assert "\nbound      9.25; gap 1.2 %\n" in busy(bound=9.25, gap=0.01234)


def test_an_empty_instance_has_a_report() -> None:
    instance = instance_of(FRESH | {"jobs": []})
    assert "1 node, 0 jobs" in shown(instance, result_of(instance, {}))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_plain_and_fit_where_there_is_no_terminal(path: Path) -> None:
    done = CliRunner().invoke(app, ["solve", str(path), "--method", "greedy"])
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in done.stdout
    assert all(line == line.rstrip() for line in lines)
    assert lines[0].startswith(path.stem)


# --- what programs read ---------------------------------------------------------------------------------------------


def test_json_is_one_object_and_the_file_holds_the_same(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    done = CliRunner().invoke(app, ["solve", FIVE_LINES, "--json", "-o", str(path)])
    assert done.exit_code == 0
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert document == json.loads(path.read_text(encoding="utf-8"))
    assert document["version"] == "coplace.result/v1"
    assert set(document["plan"]) | {entry["job"] for entry in document["pending"]} == {"ring", "vgg", "small"}
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_holds_a_plan_that_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    done = CliRunner().invoke(app, ["solve", FIVE_LINES, "--output", str(path)])
    assert done.exit_code == 0
    assert done.stdout.startswith("five-lines: ")
    stated = read_plan(path)
    checked = check(read_instance(FIVE_LINES), stated.plan)
    assert checked.feasible
    assert checked.objective == stated.objective


def test_a_goal_on_the_command_line_replaces_that_of_the_file() -> None:
    done = CliRunner().invoke(app, ["solve", FIVE_LINES, "--goal", "fairness", "--json"])
    assert json.loads(done.stdout)["instance"]["goal"] == "fairness"


def test_options_reach_the_solver() -> None:
    done = CliRunner().invoke(app, ["solve", FIVE_LINES, "--method", "keep-current", "--seed", "7", "--json"])
    document = json.loads(done.stdout)
    assert (document["method"], document["seed"], document["plan"]) == ("keep-current", 7, {})


def test_the_instance_is_never_replaced_by_its_result(tmp_path: Path) -> None:
    """``-o`` with the name of the instance would lose what cannot be computed again."""
    path = tmp_path / "instance.json"
    path.write_text(json.dumps(FRESH), encoding="utf-8")
    done = CliRunner().invoke(app, ["solve", str(path), "-o", str(path)])
    assert done.exit_code == 2
    assert done.stderr.startswith("coplace: --output: must be another file than the one that is read; found ")
    assert json.loads(path.read_text(encoding="utf-8")) == FRESH


def test_an_existing_result_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("old", encoding="utf-8")
    assert CliRunner().invoke(app, ["solve", FIVE_LINES, "-o", str(path)]).exit_code == 0
    assert read_plan(path).objective is not None


def test_a_plan_that_cannot_be_written_is_printed_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file was written first, so that an error there lost what had been solved for minutes."""

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("coplace.instances.files.os.replace", full)
    path = tmp_path / "result.json"
    done = CliRunner().invoke(app, ["solve", FIVE_LINES, "--method", "greedy", "--json", "-o", str(path)])
    assert done.exit_code == 2
    assert done.stderr == f"coplace: {path}: cannot be written: No space left on device\n"
    assert set(json.loads(done.stdout)["plan"]) == {"ring", "vgg", "small"}
    assert list(tmp_path.iterdir()) == []


def test_names_of_any_length_and_links_are_written(tmp_path: Path) -> None:
    """A name of 250 characters left no room for that of the temporary file; a link to a new file was refused late."""
    long, link = tmp_path / ("r" * 250 + ".json"), tmp_path / "link.json"
    link.symlink_to(tmp_path / "new.json")
    for path in (long, link):
        done = CliRunner().invoke(app, ["solve", FIVE_LINES, "--method", "greedy", "-o", str(path)])
        assert (done.exit_code, done.stderr) == (0, "")
        assert read_plan(path).objective is not None
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == sorted([long, link, tmp_path / "new.json"])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda folder: folder / ("r" * 300), "File name too long"),
        (lambda folder: folder / Path("/".join(["d" * 99] * 50)), "File name too long"),
        (lambda folder: link_to(folder / "gone" / "r.json", folder), "its folder does not exist"),
        (lambda folder: link_to(folder, folder), "it is a folder"),
    ],
)
def test_what_cannot_be_written_is_refused_before_it_is_solved(
    make: Callable[[Path], Path], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These were found out after the solve, or with a traceback."""
    path = make(tmp_path)
    monkeypatch.setattr("coplace.solver.solve", None)
    done = CliRunner().invoke(app, ["solve", FIVE_LINES, "-o", str(path)])
    assert (done.exit_code, done.stderr) == (2, f"coplace: {path}: cannot be written: {says}\n")


def link_to(target: Path, folder: Path) -> Path:
    (folder / "link.json").symlink_to(target)
    return folder / "link.json"


def test_files_get_the_mode_that_they_had_or_that_the_umask_gives(tmp_path: Path) -> None:
    """The umask was read by setting it to 0, during which another thread's new files were open to everybody."""
    new, old = tmp_path / "new.json", tmp_path / "old.json"
    old.write_text("old")
    old.chmod(0o640)
    before = os.umask(0o027)
    try:
        for path in (new, old):
            write_atomically(path, lambda file: file.write("{}"))
            assert path.read_text() == "{}"
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (new, old)] == [0o640, 0o640]


# --- options for the exact solver -----------------------------------------------------------------------------------


def test_options_for_the_exact_solver_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def solve(instance: Instance, **options: Any) -> Result:
        asked.update(options)
        return result_of(instance, {})

    monkeypatch.setattr("coplace.solver.solve", solve)
    options = ("--method", "mip", "--backend", "cbc", "--replay", "--memory", "512")
    assert CliRunner().invoke(app, ["solve", FIVE_LINES, *options]).exit_code == 0
    assert (asked["backend"], asked["replay"], asked["memory_mib"], asked["time_limit"]) == ("cbc", True, 512, 10)
    assert CliRunner().invoke(app, ["solve", FIVE_LINES]).exit_code == 0
    assert (asked["backend"], asked["replay"], asked["memory_mib"]) == ("highs", False, None)


@pytest.mark.parametrize(
    ("name", "begins"), [("m.pb", b""), ("m.pbtxt", b""), ("m.mps", b"OBJSENSE"), ("m.lp", b"\\* coplace *\\")]
)
def test_the_model_is_written_whole_and_the_solve_goes_on(name: str, begins: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    done = CliRunner().invoke(app, ["solve", FIVE_LINES, "--method", "greedy", "--write-model", str(path)])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("five-lines: ")
    content = path.read_bytes()
    assert content.startswith(begins)
    assert len(content) > 1000
    assert list(tmp_path.iterdir()) == [path]


def test_a_written_model_is_the_one_that_is_solved(tmp_path: Path) -> None:
    import highspy

    path = tmp_path / "m.mps"
    done = CliRunner().invoke(
        app, ["solve", FIVE_LINES, "--method", "mip", "--gap", "0", "--json", "--write-model", str(path)]
    )
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.readModel(str(path))
    highs.run()
    instance = read_instance(FIVE_LINES)
    scale = MipModel(column_set(instance)).scale
    assert abs(highs.getInfo().objective_function_value) / scale == pytest.approx(document["objective"], rel=1e-6)


def test_a_model_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, message in (
        (["--write-model", "m.txt"], "--write-model: the name of a model file ends in .pb or .pbtxt (CP-SAT), .mps or "
         ".lp (MIP); found 'm.txt'"),
        (["--write-model", "none/m.lp"], "none/m.lp: cannot be written: its folder does not exist"),
        (["--write-model", "m.lp", "-o", "m.lp"], "--write-model: must be another file than --output; found 'm.lp'"),
        (["--backend", "glpk"], "--backend: must be one of highs, cbc, scip, gurobi, cplex; found 'glpk'"),
        (["--backend", "hihgs"], "--backend: must be one of highs, cbc, scip, gurobi, cplex; found 'hihgs'; did you "
         "mean highs?"),
    ):  # fmt: skip
        done = CliRunner().invoke(app, ["solve", FIVE_LINES, *arguments])
        assert (done.exit_code, done.stderr) == (2, f"coplace: {message}\n")
    assert list(tmp_path.iterdir()) == []


def test_solvers_are_loaded_in_a_process_of_their_own() -> None:
    script = (
        f"import sys; sys.argv = ['coplace', 'solve', {FIVE_LINES!r}]; from coplace.cli.main import main; main(); "
        "print(sorted({'ortools', 'pulp', 'highspy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.yaml"], "coplace: none.yaml: cannot be read: No such file or directory"),
        (["bad.yaml"], "coplace: bad.yaml: nodes[0].gpus: unknown key; did you mean gpu?"),
        (
            [FIVE_LINES, "--method", "greddy"],
            "coplace: --method: must be one of the methods; found 'greddy'; did you mean greedy?",
        ),
        ([FIVE_LINES, "--time-limit", "0"], "coplace: --time-limit: must be above 0 seconds; found 0.0"),
        ([FIVE_LINES, "--gap", "nan"], "coplace: --gap: must not be negative; found nan"),
        (
            [FIVE_LINES, "--goal", "jtc"],
            "coplace: --goal: must be one of jct, throughput, fairness, makespan, deadline; found 'jtc'; "
            "did you mean jct?",
        ),
        ([FIVE_LINES, "-o", "none/r.json"], "coplace: none/r.json: cannot be written: its folder does not exist"),
        ([FIVE_LINES, "-o", "folder"], "coplace: folder: cannot be written: it is a folder"),
        (
            [FIVE_LINES, "-o", "-"],
            "coplace: --output: must be a file; standard output is what you get without it",
        ),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    wrong = FRESH | {"nodes": [{"name": "big", "gpu_type": "v100", "gpus": 4, "gpu": 4, "cpu": 16, "memory": "64Gi"}]}
    (tmp_path / "bad.yaml").write_text(json.dumps(wrong), encoding="utf-8")
    before = sorted(tmp_path.iterdir())
    outputs = [] if "-o" in arguments else ["-o", "result.json"]
    done = CliRunner().invoke(app, ["solve", *arguments, *outputs])
    assert (done.exit_code, done.stderr, done.stdout) == (2, message + "\n", "")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "arguments", [[], [FIVE_LINES, "--seed", "x"], [FIVE_LINES, "--time-limit"], [FIVE_LINES, "--jsno"], ["a", "b"]]
)
def test_wrong_options_are_a_usage_error(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, ["solve", *arguments])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "Error: " in done.stderr


# --- streams --------------------------------------------------------------------------------------------------------


def run(*arguments: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", RUN_CLI, *arguments], capture_output=True, timeout=60, **more)


@pytest.mark.parametrize(
    "environment", [{"PYTHONIOENCODING": "ascii"}, {"PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}]
)
def test_a_poor_encoding_prints_other_characters(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "instance.json"
    jobs = [ring("zürich-→-模型"), ring("wide", worker={"gpu": 8, "cpu": 2, "memory": "8Gi"})]
    path.write_text(json.dumps(FRESH | {"jobs": jobs}), encoding="utf-8")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "PYTHONUTF8"))}
    done = run("solve", str(path), env=inherited | environment)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode("ascii")
    assert "z\\xfcrich-->-\\u6a21\\u578b" in text
    assert "------" in text
    assert "bigx4" in text
    document = json.loads(run("solve", str(path), "--json", env=inherited | environment).stdout.decode("ascii"))
    assert list(document["plan"]) == ["zürich-→-模型"]


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = [sys.executable, "-c", RUN_CLI, "solve", FIVE_LINES, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(60) == 0
    assert errors == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_said() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-c", RUN_CLI, "solve", FIVE_LINES]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "coplace: standard output: cannot be written: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_plan_that_cannot_be_printed_is_written_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-c", RUN_CLI, "solve", FIVE_LINES, "--method", "greedy", "-o", str(path)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (
        2, "coplace: standard output: cannot be written: No space left on device\n"
    )  # fmt: skip
    assert read_plan(path).objective is not None


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="there is no /dev/stdout")
@pytest.mark.parametrize("options", [["--json"], []])
@pytest.mark.parametrize("to_file", [False, True])
def test_a_plan_is_not_printed_twice(options: list[str], to_file: bool, tmp_path: Path) -> None:
    """``--json -o /dev/stdout`` printed two objects, which no reader of JSON takes; to a file, the first was lost."""
    out = tmp_path / "out"
    with out.open("wb") as file:
        target = str(out) if to_file else "/dev/stdout"
        command = [sys.executable, "-c", RUN_CLI, "solve", FIVE_LINES, *options, "-o", target]
        done = subprocess.run(
            command, stdout=file if to_file else subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 2
    assert not done.stdout
    assert done.stderr == (
        f"coplace: --output: must be another file than standard output; found {target!r}; "
        "leave it out: the plan is printed there anyway\n"
    )
    assert out.read_bytes() == b""
