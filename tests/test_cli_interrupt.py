"""Ctrl-C, SIGTERM and SIGHUP: at once while reading, with the best plan so far while solving.

The subprocesses are waited for by what they do (open a pipe, write to a terminal), never by time.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import coplace.solver
from coplace.cli.app import app
from coplace.cli.interrupts import Interrupts
from coplace.instances import read_instance, write_instance
from coplace.instances.generation import generate
from coplace.solver import check
from coplace.solver.result_file import read_plan

RUN_CLI = "import sys; from coplace.cli.main import main; sys.exit(main())"
pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and terminals of POSIX")


def hear_signals() -> None:
    """A background job of a shell, as these tests may be, ignores Ctrl-C, and its children inherit that."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def start(*arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", RUN_CLI, *arguments], preexec_fn=hear_signals, **streams)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Ctrl-C as Python handles it, whoever has started these tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    hang_up = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, before)
    signal.signal(signal.SIGHUP, hang_up)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An instance that greedy works on for a second or more, with jobs whose waiting is explained quickly."""
    path = tmp_path_factory.mktemp("large") / "large.json"
    write_instance(generate("allreduce-mix", nodes=600, jobs=2000, seed=1), path)
    return path


def read_until(terminal: int, text: bytes, seconds: float = 60) -> bytes:
    read, deadline = b"", time.monotonic() + seconds
    while text not in read:
        ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"no {text!r} in {read!r}"
        read += os.read(terminal, 4096)
    return read


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_solving_ends_with_the_best_plan_so_far(
    number: signal.Signals, large: Path, tmp_path: Path
) -> None:
    import pty

    master, terminal = pty.openpty()
    path = tmp_path / "result.json"
    try:
        with start(
            "solve",
            str(large),
            "--method",
            "greedy",
            "--json",
            "-o",
            str(path),
            stdout=subprocess.PIPE,
            stderr=terminal,
        ) as process:
            os.close(terminal)
            read_until(master, b"keep-current done after")  # so greedy has begun
            process.send_signal(number)
            read_until(master, b"stopping with the best plan so far")
            out = process.communicate(timeout=60)[0]
        assert process.returncode == 0
    finally:
        os.close(master)
    document = json.loads(out)
    assert document["reason"] == "interrupted"
    assert document == json.loads(path.read_text(encoding="utf-8"))
    stated = read_plan(path)
    report = check(read_instance(large), stated.plan)
    assert report.feasible
    assert report.objective == stated.objective


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", [["solve"], ["check"], ["import", "openb"]], ids=" ".join)
def test_a_signal_while_reading_ends_at_once_without_a_word(
    number: signal.Signals, command: list[str], tmp_path: Path
) -> None:
    pipe = tmp_path / "instance.json"
    os.mkfifo(pipe)
    arguments = [*command, str(pipe), *(["none.json"] if command == ["check"] else [])]
    with start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        with pipe.open("wb"):  # opens as soon as the other side reads
            process.send_signal(number)
            out, errors = process.communicate(timeout=60)
        assert (process.returncode, out, errors) == (130, b"", b"")


STALLED = """
import os, sys, coplace.instances.files as files
replace = os.replace
def stalled(*paths):
    print(paths[0], flush=True)
    sys.stdin.read()
files.os.replace = stalled
from coplace.cli.main import main
sys.exit(main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_writing_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    """SIGTERM and SIGHUP ended Python on the spot, and the temporary file stayed."""
    command = [sys.executable, "-c", STALLED, "generate", "ps-mix", "-o", str(tmp_path / "i.json")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, preexec_fn=hear_signals, **pipes) as process:  # type: ignore[call-overload]
        temporary = Path(os.fsdecode(process.stdout.readline().strip()))
        assert list(tmp_path.iterdir()) == [temporary]
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, b"")
    assert list(tmp_path.iterdir()) == []


def interrupting(*numbers: signal.Signals) -> Callable[..., Any]:
    """A solve during which these signals come."""
    solve = coplace.solver.solve

    def interrupted_solve(*arguments: Any, **options: Any) -> Any:
        for number in numbers:
            signal.raise_signal(number)
        return solve(*arguments, **options)

    return interrupted_solve


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        ([signal.SIGINT], 0),
        ([signal.SIGTERM], 0),
        ([signal.SIGHUP], 0),
        ([signal.SIGINT, signal.SIGINT], 130),
        ([signal.SIGTERM, signal.SIGINT], 130),
        ([signal.SIGTERM, signal.SIGTERM], 0),
        ([signal.SIGINT, signal.SIGTERM], 0),
    ],
)
def test_only_a_further_ctrl_c_gives_the_plan_up(
    numbers: list[signal.Signals], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance, path = tmp_path / "instance.json", tmp_path / "result.json"
    write_instance(generate("ps-mix", nodes=4, jobs=6, seed=1), instance)
    monkeypatch.setattr(coplace.solver, "solve", interrupting(*numbers))
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    done = CliRunner().invoke(app, ["solve", str(instance), "--json", "-o", str(path)])
    assert done.exit_code == code
    assert done.stderr == ""
    if code == 0:
        assert json.loads(done.stdout)["reason"] == "interrupted"
        assert json.loads(done.stdout) == json.loads(path.read_text(encoding="utf-8"))
    else:
        assert done.stdout == ""
        assert list(tmp_path.iterdir()) == [instance]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_people_are_told_that_it_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = tmp_path / "instance.json"
    write_instance(generate("ps-mix", nodes=4, jobs=6, seed=1), instance)
    monkeypatch.setattr(coplace.solver, "solve", interrupting(signal.SIGINT))
    done = CliRunner().invoke(app, ["solve", str(instance)])
    assert done.exit_code == 0
    assert "\nended      interrupted; found by keep-current" in done.stdout


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """So that a shell's background job does not end with the Ctrl-C for another one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert not interrupts()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_the_first_request_is_told_once() -> None:
    told = []
    with Interrupts(lambda: told.append("stop")) as interrupts:
        interrupts.defer()
        assert not interrupts()
        for _ in range(3):
            signal.raise_signal(signal.SIGTERM)
        assert interrupts()
    assert told == ["stop"]
