"""``coplace train``, ``coplace job`` and ``coplace node``."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.numpy import load_file
from typer.testing import CliRunner

from coplace.cli import training_packages
from coplace.cli.app import app
from coplace.cli.output import UNICODE
from coplace.cli.report.layout import Page
from coplace.cli.report.training import outcome_document, outcome_report, status_report
from coplace.instances.errors import InputError
from coplace.training.coordinator.membership import Failure
from coplace.training.coordinator.outcome import Outcome
from coplace.training.coordinator.state import Pause
from coplace.training.job import TrainingJob
from coplace.training.program import load_program

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "training" / "examples"
GOLDEN = Path(__file__).parent / "golden"
RUN_CLI = "import sys; from coplace.cli.main import main; sys.exit(main())"
FOREVER = "1000000"

pytestmark = pytest.mark.skipif(os.name != "posix", reason="agents fork")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the examples in it."""
    monkeypatch.chdir(tmp_path)
    for path in EXAMPLES.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    return tmp_path


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def job_file(name: str = "job.yaml", **changes: Any) -> str:
    """The example with other values, without the keys that are None."""
    document = yaml.safe_load(Path("digits.yaml").read_text(encoding="utf-8")) | changes
    text = yaml.safe_dump({key: value for key, value in document.items() if value is not None})
    Path(name).write_text(text, encoding="utf-8")
    return name


def listing(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# --- wrong input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"epoch": 3}, "epoch: unknown key; did you mean epochs?"),
        ({"batch": 0}, "batch: must be at least 1; found 0"),
        ({"version": None}, "version: must be coplace.train/v1; start with version: coplace.train/v1"),
        (
            {"version": "coplace.train/v9"},
            "version: must be coplace.train/v1; found 'coplace.train/v9'; start with version: coplace.train/v1",
        ),
        (
            {"program": "none.py:program"},
            "program: cannot be read: No such file or directory; found {folder}/none.py:program",
        ),
        ({"program": "no_such_package.m:f"}, "program: there is no module no_such_package; found no_such_package.m:f"),
        ({"program": "digits.py"}, "program: must be module:function or file.py:function; found 'digits.py'"),
        ({"tasks": {"n0": {"worker": 1, "ps": 1}, "n9": {"worker": 1}}}, "tasks.n9: is not among the nodes"),
        ({"host": "0.0.0.0"}, "host: must be an address of this machine under which others reach it; found '0.0.0.0'"),
        (
            {"transport": "tcp", "host": "192.0.2.77"},
            "tcp: no port can be had at 192.0.2.77: Cannot assign requested address (addr='tcp://192.0.2.77:*')",
        ),
        ({"shared": "digits.py"}, "shared: cannot be used: File exists; found {folder}/digits.py"),
        ({"tasks": {"n0": {"worker": 1}}}, "tasks: servers must be from 1 to 10000 in all; found 0"),
    ],
    ids=lambda value: next(iter(value), None) if isinstance(value, dict) else "",
)
def test_a_wrong_job_is_refused_on_one_line_and_nothing_is_made(
    changes: dict[str, Any], line: str, folder: Path
) -> None:
    job = job_file(**changes)
    before = listing(folder)
    code, out, errors = run("train", job)
    assert errors == f"coplace: {job}: {line.format(folder=folder.resolve())}\n"
    assert (code, out) == (2, "")
    assert listing(folder) == before


def test_python_that_is_none_is_refused_before_anything_starts(folder: Path) -> None:
    Path("broken.py").write_text("def program(:\n", encoding="utf-8")
    code, _, errors = run("train", job_file(program="broken.py:program"))
    assert code == 2
    assert re.fullmatch(
        r"coplace: job\.yaml: program: cannot be imported: SyntaxError: .*\(broken\.py, line 1\); found .*\n", errors
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--run", "full"], "full: holds something already; give another folder, or go on with --resume"),
        (["--run", "."], ".: holds something already; give another folder, or go on with --resume"),
        (["--run", "digits.py"], "digits.py: cannot be used: File exists"),
        (["--resume"], "digits-run: holds no checkpoint to resume from; start anew, without --resume"),
        (["--resume", "--run", "full"], "full: holds no checkpoint to resume from; start anew, without --resume"),
        (["--transport", "tpc"], "--transport: must be one of file, tcp, ray; found 'tpc'; did you mean tcp?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_folder_or_option_is_refused(arguments: list[str], line: str, folder: Path) -> None:
    Path("full").mkdir()
    Path("full/notes").write_text("mine", encoding="utf-8")
    before = listing(folder)
    assert run("train", "digits.yaml", *arguments) == (2, "", f"coplace: {line}\n")
    assert listing(folder) == before
    assert listing(folder / "full") == {"notes"}


def test_a_folder_of_the_user_is_not_taken_for_a_run_that_never_began(folder: Path) -> None:
    """Such a folder is cleared; one with a job.json of the user's own must not be."""
    Path("mine").mkdir()
    Path("mine/job.json").write_text("{}", encoding="utf-8")
    code, _, _ = run("train", "digits.yaml", "--run", "mine")
    assert code == 2
    assert Path("mine/job.json").read_text(encoding="utf-8") == "{}"


def test_packages_that_are_missing_are_said_with_the_mend(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(training_packages, "find_spec", lambda name: None if name in ("torch", "ray") else found(name))
    rule = "training needs packages that are not installed; found no"
    wanted = (2, "", f"coplace: {rule} torch; pip install 'coplace[train]'\n")
    assert run("train", "digits.yaml") == wanted
    assert run("job", "status", "digits-run") == wanted
    assert run("node", "digits-run") == wanted
    code, _, errors = run("train", "digits.yaml", "--transport", "ray")
    assert (code, errors) == (2, f"coplace: {rule} torch, ray; pip install 'coplace[ray]'\n")


PROGRAM = """
import torch
from coplace.training import Program

def raises():
    return torch.zeros(3).reshape(7)

def mismatched():
    inputs, targets = torch.zeros(100, 4), torch.zeros(100, 3)
    return Program(torch.nn.Linear(4, 2), (inputs, targets), lambda output, target: loss(output, target))

def loss(output, target):
    return (output - target).mean()
"""


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("raises", "the function failed: RuntimeError: shape '[7]' is invalid for input of size 3 (own.py, line 6)"),
        ("mismatched", r"the first step failed: RuntimeError: The size of tensor .* \(own.py, line 13\)"),
    ],
)
def test_a_program_that_fails_says_where_and_nothing_is_left(function: str, said: str, folder: Path) -> None:
    """A mistake at the first step was tried again twenty times."""
    Path("own.py").write_text(PROGRAM, encoding="utf-8")
    job = job_file(program=f"own.py:{function}", arguments=None, workers=1, servers=1, nodes=[{"name": "n0"}])
    before = listing(folder)
    code, out, errors = run("train", job, "--quiet")
    assert (code, out) == (2, "")
    expected = re.escape(said) if function == "raises" else said
    where = re.escape(f"{folder.resolve()}/own.py:{function}")
    assert re.fullmatch(rf"coplace: job\.yaml: program: {expected}; found {where}\n", errors), errors
    assert listing(folder) - {"__pycache__"} == before


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def program():\n    return 5\n", "the function must return a coplace.training.Program, not int"),
        (
            "def program():\n    return 1 / 0\n",
            "the function failed: ZeroDivisionError: division by zero (p.py, line 2)",
        ),
        ("import json\njson.loads('[')\n", "cannot be imported: JSONDecodeError: .* (p.py, line 2)"),
        ("other = 1\n", ".*/p.py has no function program"),
        ("program = 1\n", ".*/p.py has no function program"),
    ],
)
def test_what_is_wrong_with_a_program_is_said_in_the_users_words(source: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "p.py"
    file.write_text(source, encoding="utf-8")
    with pytest.raises(InputError) as raised:
        load_program(f"{file}:program", {})
    pattern = re.escape(said).replace(r"\.\*", ".*")
    assert re.fullmatch(rf"program: {pattern}; found {re.escape(str(file))}:program", str(raised.value))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["job", "status", "none"], "none: no job runs here; give the folder of a run, as `coplace train` prints it"),
        (["job", "resize", "none"], "say what to change by --workers, --servers or --plan"),
        (
            ["job", "resize", "none", "--plan", "plan.yaml", "--workers", "1"],
            "--plan: says all counts; leave out --workers and --servers",
        ),
        (["job", "resize", "none", "--plan", "plan.yaml"], "plan.yaml: n0.workers: unknown key; did you mean worker?"),
        (["job", "slow", "none", "n0", "--share", "1", "--pause", "1"], "give one of --share, --pause and --delay"),
        (
            ["job", "join", "none", "--name", "n", "--cpu", "much"],
            "--cpu: 'much' is not a Kubernetes quantity such as 500m, 4 or 16Gi",
        ),
        (["node"], "give the folder of the run, or --meeting"),
        (["node", "none"], "none: no job runs here; give the folder of a run, or a copy of its meeting.json"),
        (["node", "--meeting", "plan.yaml"], "plan.yaml: is no meeting.json of a run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_requests_are_refused(arguments: list[str], line: str, folder: Path) -> None:
    Path("plan.yaml").write_text("n0: {workers: 1}\n", encoding="utf-8")
    assert run(*arguments) == (2, "", f"coplace: {line}\n")


# --- what is printed ------------------------------------------------------------------------------------------------

OUTCOME = Outcome(
    ended="stopped on request", complete=False, seconds=100.0, training_seconds=90.0, epochs=2.999, samples=4309,
    version=45, loss=0.25, validation_loss=float("nan"), accuracy=0.9125, speed=47.9, waited=0.125, communicated=0.002,
    rolled_back=96, pauses=(Pause(3.0, 0.5, "from 1 to 2 servers"), Pause(9.0, 1.0, "server-0 failed")),
    failures=(Failure(9.0, "server-0", "killed by SIGKILL"), Failure(12.0, "n1", "nothing was heard for 10 s")),
)  # fmt: skip
STATUS = {
    "job": "digits", "state": "training", "seconds": 12.5, "epoch": 1.999, "epochs": 20, "samples": 2872,
    "version": 30, "accuracy": None, "speed": 0.0, "outlook": "", "failures": 1, "pauses": [0.25],
    "wish": {"workers": 3, "without": [], "reason": "one more would add speed"}, "grants": {},
    "nodes": {"b": {"cpu": 1500, "memory": 4096}, "a": {"cpu": 1000, "memory": 512}},
    "tasks": [
        {"name": "worker-0", "role": "worker", "node": "b", "phase": "ready"},
        {"name": "worker-1", "role": "worker", "node": "b", "phase": "starting"},
        {"name": "server-0", "role": "ps", "node": "a", "phase": "leaving"},
    ],
}  # fmt: skip


def job() -> TrainingJob:
    return TrainingJob(name="digits", program="digits.py:program", batch=96, epochs=20)


def printed(parts: Iterator[Any]) -> str:
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), width=100, color_system=None, highlight=False, markup=False)
    for part in parts:
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("train-outcome", lambda: outcome_report(job(), OUTCOME, Path("digits-run"), UNICODE)),
        ("train-status", lambda: status_report(STATUS, Page(100, UNICODE))),
    ],
)
def test_reports_look_as_they_did(name: str, parts: Callable[[], Iterator[Any]]) -> None:
    text = printed(parts())
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_the_document_of_a_run_holds_no_number_that_json_lacks() -> None:
    document = json.loads(json.dumps(outcome_document(job(), OUTCOME, Path("digits-run")), allow_nan=False))
    assert document["version"] == "coplace.outcome/v1"
    assert document["validation_loss"] is None
    assert (document["update"], document["pauses"][1]["seconds"]) == (45, 1.0)
    assert document["failures"][0] == {"at_seconds": 9.0, "name": "server-0", "why": "killed by SIGKILL"}


VERBS = ("status", "resize", "checkpoint", "stop", "slow", "join", "leave")


@pytest.mark.parametrize("command", [["train"], ["node"], *(["job", verb] for verb in VERBS)], ids=" ".join)
def test_help_is_there_and_every_option_stands_in_the_docs(command: list[str]) -> None:
    code, out, errors = run(*command, "--help")
    assert (code, errors) == (0, "")
    assert out.startswith(f"Usage: {' '.join(['root', *command])} [OPTIONS] {'{' if command != ['node'] else '['}")
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    assert f"coplace {' '.join(command)}" in page
    assert set(re.findall(r"--[a-z-]+", out)) - {"--help"} - set(re.findall(r"--[a-z-]+", page)) == set()


# --- runs -----------------------------------------------------------------------------------------------------------


def hear_signals() -> None:
    """A background job of a shell, as these tests may be, ignores Ctrl-C, and its children inherit that."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN_CLI, *arguments], preexec_fn=hear_signals, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def end(process: subprocess.Popen[str], *, code: int = 0) -> tuple[str, str]:
    try:
        out, errors = process.communicate(timeout=60)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == code, errors
    return out, errors


def until(fact: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline, f"not so within {seconds:g} s: {what}"
        time.sleep(0.05)


def status(folder: str) -> dict[str, Any]:
    """What ``coplace job status --json`` prints; empty before the job runs."""
    code, out, _ = run("job", "status", folder, "--json")
    answer: dict[str, Any] = json.loads(out) if code == 0 else {}
    return answer


def roles(folder: str) -> dict[str, tuple[int, int]]:
    """Workers and servers that are ready on each node."""
    answer = status(folder)
    ready = [(task["node"], task["role"]) for task in answer["tasks"] if task["phase"] == "ready"]
    return {node: (ready.count((node, "worker")), ready.count((node, "ps"))) for node in answer["nodes"]}


def test_the_example_is_trained_until_it_is_stopped(folder: Path) -> None:
    train = start("train", "digits.yaml", "--epochs", FOREVER, "--transport", "tcp")
    try:
        until(lambda: (status("digits-run").get("accuracy") or 0) > 0.9, "the digits are learnt")
        code, said, _ = run("job", "stop", "digits-run")
        assert (code, said[:13]) == (0, "the job ends,")
    finally:
        out, errors = end(train)
    lines = out.splitlines()
    assert lines[:2] == ["digits: stopped on request", ""]
    assert [line.split("  ")[0] for line in lines[2:]] == [
        "epochs", "accuracy", "loss", "speed", "time", "workers", "failures", "model", "go on"
    ]  # fmt: skip
    assert re.fullmatch(rf"epochs    [\d.]+ of {FOREVER}: [\d,]+ samples, [\d,]+ updates", lines[2])
    assert lines[-3:-1] == ["failures  none", "model     digits-run/model.safetensors"]
    assert errors.startswith("digits: files go to digits-run\n")
    assert "node n2 is there\n" in errors
    assert re.search(r"^digits: training, epoch ", errors, re.MULTILINE)
    run_folder = folder / "digits-run"
    assert {"checkpoints", "curves.csv", "history.csv", "job.json", "logs", "model.safetensors"} <= listing(run_folder)
    assert not listing(run_folder) & {"meeting.json", "control.json"}
    model = load_file(run_folder / "model.safetensors")
    assert {name: array.shape for name, array in model.items()} == {
        "0.weight": (64, 64), "0.bias": (64,), "2.weight": (10, 64), "2.bias": (10,)
    }  # fmt: skip
    assert run("train", "digits.yaml")[2] == (
        "coplace: digits-run: holds something already; give another folder, or go on with --resume\n"
    )


def watch_and_resize() -> None:
    code, out, errors = run("job", "status", "r")
    assert (code, errors) == (0, "")
    assert re.match(r"digits: training, [\d.]+ s\n\nnode +CPU +memory +workers +servers", out)
    code, out, _ = run("job", "resize", "r", "--workers", "2")
    assert (code, out.splitlines()[1:]) == (0, ["n0: 1 worker, 0 servers", "n1: 1 worker, 1 server"])
    Path("plan.json").write_text('{"n0": {"worker": 1, "ps": 1}}', encoding="utf-8")
    assert run("job", "resize", "r", "--plan", "plan.json")[0] == 0
    until(lambda: roles("r") == {"n0": (1, 1), "n1": (0, 0)}, "tasks are as in the plan")
    assert run("job", "checkpoint", "r")[0] == 0
    until(lambda: any(Path("r/checkpoints").glob("checkpoint-*")), "the checkpoint is written")
    assert run("job", "join", "r", "--name", "n1")[2] == "coplace: r: host: is there already; found n1\n"
    assert run("job", "leave", "r", "n7")[2] == "coplace: r: node: must be one of n0, n1; found n7\n"


def join_and_leave() -> None:
    invitation = Path("r/meeting.json")
    assert invitation.stat().st_mode & 0o777 == 0o600
    shutil.copy(invitation, "copy.json")
    assert run("node", "r", "--name", "n1", "--cpu", "1") == (2, "", "coplace: r: the job has a node n1 already\n")
    node = start("node", "--meeting", "copy.json", "--name", "n2", "--cpu", "1")
    try:
        until(lambda: roles("r").get("n2") == (1, 0), "the node that joined has a worker")
        node.send_signal(signal.SIGINT)
        _, errors = end(node)
    except BaseException:
        node.kill()
        node.communicate()
        raise
    assert errors.startswith("n2: the node has joined\nn2: worker-")
    assert errors.endswith("n2: the node was let go\n")
    answer = status("r")
    assert "n2" not in answer["nodes"]
    assert answer["failures"] == 0


def test_a_job_is_watched_resized_joined_interrupted_and_resumed(folder: Path) -> None:
    file = job_file(workers=1, servers=1, nodes=[{"name": "n0"}, {"name": "n1"}], elastic=True)
    train = start("train", file, "--run", "r", "--epochs", FOREVER, "--quiet")
    try:
        until(lambda: status("r").get("epoch"), "training has begun")
        assert run("job", "slow", "r", "n0", "--delay", "0.02")[0] == 0  # leaves the machine to others
        watch_and_resize()
        join_and_leave()
        assert run("train", file, "--run", "r", "--resume") == (2, "", "coplace: r: a job runs here already\n")
    except BaseException:
        train.kill()
        train.communicate()
        raise
    train.send_signal(signal.SIGINT)
    out, errors = end(train)
    assert out.startswith("digits: interrupted\n")
    assert out.endswith("the same command with --resume\n")
    assert errors == ""
    assert Path("r/model.safetensors").stat().st_mode & 0o777 == Path("r/job.json").stat().st_mode & 0o777
    epochs = int(float(re.findall(r"epochs +([\d.]+) of", out)[0])) + 1
    resumed = start("train", file, "--run", "r", "--resume", "--epochs", str(epochs), "--json", "--quiet")
    document = json.loads(end(resumed)[0])
    assert (document["ended"], document["complete"]) == ("all epochs are done", True)
    assert (document["epochs"], document["samples"]) == (epochs, 1437 * epochs)
    assert document["accuracy"] > 0.9
    before = Path("r/job.json").read_text(encoding="utf-8")
    code, _, errors = run(
        "train",
        job_file(epochs=10**6, seed=1, optimizer={"name": "adam", "lr": 0.01}),
        "--run",
        "r",
        "--resume",
        "--quiet",
    )
    assert code == 2
    assert re.sub(r"\d+", "#", errors).splitlines() == [
        "coplace: job.yaml: seed: must be # to go on, as in the checkpoint; found #",
        "coplace: job.yaml: optimizer: must remember what the checkpoint holds (momentum_buffer) to go on; "
        "found adam (exp_avg, exp_avg_sq)",
    ]
    assert Path("r/job.json").read_text(encoding="utf-8") == before
