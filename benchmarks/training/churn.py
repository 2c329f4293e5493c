"""Ten joins and leaves and three kills in one run: does it end as good, with every sample accounted for?"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.registry import Figure, Target, benchmark

if TYPE_CHECKING:
    from coplace.training import Control

SAMPLES = 1200

MOVES = {3: 3, 5: 1, 7: 2}
"""Servers that there are to be after these events."""


@benchmark("training-churn", "ten joins and leaves, moves of servers and three kill -9 in one run")
def churn(smoke: bool) -> Iterable[Figure]:
    """Digits, BSP with adaptive shares, three nodes at first; nodes come and go, a worker, a server and a node die."""
    from benchmarks.training.runs import alone, job, run
    from coplace.training.data.audit import audit

    events, epochs = (1, 10**6) if smoke else (10, 400)
    base = {"arguments": {"hidden": 128}, "batch": 120, "optimizer": {"name": "sgd", "lr": 0.05}, "epochs": epochs}
    plain = alone(job("digits", **{**base, "epochs": 3 if smoke else epochs}))
    final = sum(accuracy for _, accuracy in plain["curve"][-5:]) / len(plain["curve"][-5:])
    training = job(
        "digits",
        **base,
        elastic=True,
        scheduling="adaptive",
        nodes=[{"name": f"n{index}"} for index in range(3)],
        workers=3,
        servers=2,
        worker={"max": 5},
        evaluate_every=5,
        checkpoints={"every_seconds": 1.0},
        deadlines={"node": 4, "step": 20, "server": 20},
    )
    done: list[str] = []
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "run")
        ran = run(training, _meddle(events, done, stop=smoke), folder)
        outcome = ran.outcome
        books = audit(folder / "ledger.csv", SAMPLES, int(outcome.epochs))
    yield Figure("joins and leaves", float(sum(event != "kill" for event in done)), "", Target(">=", float(events)))
    yield Figure("kill -9", float(done.count("kill")), "", Target(">=", 3.0))
    yield Figure("failures that were noticed", float(len(outcome.failures)), "")
    yield Figure("faults in the ledger", float(len(books.faults)), "", Target("<=", 0.0))
    yield Figure("epochs", outcome.epochs, "", Target(">=", float(epochs)))
    yield Figure("samples rolled back and done again", float(outcome.rolled_back), "")
    lost = max(0.0, final - ran.final_accuracy())
    yield Figure("final accuracy below that of one process", lost, "", Target("<=", 0.005))
    moves = [pause.seconds for pause in outcome.pauses if "failed" not in pause.why and "lost" not in pause.why]
    if moves:
        yield Figure("longest pause of a move of parameters", max(moves), "s", Target("<=", 2.0))
    recoveries = [pause.seconds for pause in outcome.pauses if pause.seconds not in moves]
    if recoveries:
        yield Figure("longest pause of a recovery", max(recoveries), "s")


def _meddle(events: int, done: list[str], stop: bool) -> Callable[[Control], None]:
    victims = {1: "worker", 2: "ps", 4: "node"}

    def meddle(control: Control) -> None:
        _until(control, lambda status: status["version"] > 50)
        for number in range(events):
            _on(control)
            name = f"j{number // 2}"
            joins = number % 2 == 0
            if joins:
                control.ask("join", host={"name": name})
            else:
                control.ask("leave", node=name)
            _until(control, partial(_has_node, name, joins))
            done.append("join" if joins else "leave")
            if number in MOVES:
                _on(control)
                before = len(control.ask("status")["pauses"])
                control.ask("resize", servers=MOVES[number])
                _until(control, partial(_has_pauses, before + 1))
            if number in victims:
                status = _on(control)
                _kill(status, victims[number])
                done.append("kill")
                _until(control, partial(_has_failures, status["failures"] + 1))
        if stop:
            control.ask("stop")

    return meddle


def _has_node(name: str, there: bool, status: dict[str, Any]) -> bool:
    return (name in status["nodes"]) == there


def _has_pauses(count: int, status: dict[str, Any]) -> bool:
    return len(status["pauses"]) >= count and _settled(status)


def _has_failures(count: int, status: dict[str, Any]) -> bool:
    return int(status["failures"]) >= count


def _kill(status: dict[str, Any], what: str) -> None:
    if what == "node":
        pid = status["nodes"]["n2"]["pid"]
    else:
        pid = next(task["pid"] for task in status["tasks"] if task["role"] == what and task["phase"] == "ready")
    os.kill(pid, signal.SIGKILL)


def _settled(status: dict[str, Any]) -> bool:
    return status["state"] == "training" and all(task["phase"] == "ready" for task in status["tasks"])


def _on(control: Control) -> dict[str, Any]:
    """The status after some more updates, with nothing going on."""
    version = int(_until(control, _settled)["version"])
    return _until(control, lambda status: _settled(status) and status["version"] > version + 20)


def _until(control: Control, holds: Callable[[dict[str, Any]], bool], seconds: float = 120.0) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while True:
        status = control.ask("status")
        if holds(status):
            return status
        if time.monotonic() > deadline:
            raise TimeoutError(f"the job did not get there: {status}")
        time.sleep(0.05)
