"""The coordinator's steps with made-up workers and servers: a message comes late, or somebody is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coplace.training.coordinator.roster import Roster, Server, Step, Worker
from coplace.training.coordinator.training import Training
from coplace.training.coordinator.validation import Validation
from coplace.training.data.journal import Journal
from coplace.training.job import TrainingJob
from coplace.training.messages import Message


class Post:
    """An endpoint that notes what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, str, dict[str, Any]]] = []

    def send(self, to: Any, kind: str, fields: dict[str, Any] | None = None, arrays: Any = ()) -> None:
        self.sent.append((to, kind, dict(fields or {})))

    def take(self, kind: str) -> list[dict[str, Any]]:
        found = [fields for _, each, fields in self.sent if each == kind]
        self.sent = [entry for entry in self.sent if entry[1] != kind]
        return found


class Nobody:
    def step(self, worker: Worker, step: Step, version: int, ready: float) -> None:
        pass

    def validated(self, validation: Validation) -> str | None:
        return None


class Play:
    """A job with one server and some workers, played message by message."""

    def __init__(self, folder: Path, workers: int = 2, **settings: Any) -> None:
        document = {"name": "j", "program": "p:f", "batch": 10, "scheduling": "static", **settings}
        self.job = TrainingJob.model_validate(document)
        self.post, self.roster, self.now = Post(), Roster(), 0.0
        self.training = Training(
            self.job,
            self.post,  # type: ignore[arg-type]
            self.roster,
            Nobody(),
            self.clock,
            Journal(folder / "ledger.csv"),
            lambda: {"n": (4000, None)},
        )
        server = Server("server-0", "n", 0.0, "ready", "server-0~")
        self.roster.servers["server-0"] = server
        self.training.begin(40, 8)
        self.training.servers = [server]
        for _ in range(workers):
            self.join()
        self.training.paused = False

    def clock(self) -> float:
        self.now += 0.001
        return self.now

    def join(self) -> Worker:
        name = f"worker-{len(self.roster.workers)}"
        worker = Worker(name, "n", 0.0, "ready", f"{name}~")
        self.roster.workers[name] = worker
        self.training.join(worker)
        return worker

    def lose(self, name: str) -> None:
        self.training.leave(self.roster.workers.pop(name))

    def push(self, name: str) -> None:
        """A worker has done its step, and all servers have its gradient."""
        step = self.roster.workers[name].step
        assert step is not None
        about = {"task": name, "step": step.number, "samples": 1, "compute": 0.1, "cpu": 0.1, "validate": 0.0}
        self.training.on_pushed(Message("pushed", name, {**about, "threads": 1, "loss": 1.0}))
        staged = {"task": "server-0", "worker": name, "step": step.number, "generation": self.training.generation}
        self.training.on_staged(Message("staged", "server-0", staged))
        self.training.advance()

    def validated(self, name: str, part: dict[str, Any]) -> None:
        fields = {"task": name, **part, "loss": 1.0, "accuracy": 1.0}
        self.training.on_validated(Message("validated", name, fields))
        self.training.advance()


def test_a_worker_that_joins_does_not_hold_the_others_back(tmp_path: Path) -> None:
    """Its clock started at 0, and under SSP all waited until it had made as many steps as they."""
    play = Play(tmp_path, sync={"name": "ssp", "staleness": 1}, epochs=100)
    play.training.advance()
    for _ in range(10):
        for name in ("worker-0", "worker-1"):
            play.push(name)
    late = play.join()
    assert late.pace.clock == 10
    play.training.advance()
    for name in ("worker-0", "worker-1", "worker-2"):
        play.push(name)
    assert all(worker.step is not None for worker in play.roster.workers.values())


def finish(play: Play) -> list[dict[str, Any]]:
    """Do all steps; the parts of the last validation."""
    play.training.advance()
    while not (parts := [work["validate"] for work in play.post.take("work") if not work["spans"]]):
        for worker in list(play.roster.workers.values()):
            if worker.step is not None:
                play.push(worker.name)
    return parts


def test_the_last_validation_waits_for_a_worker_to_do_it(tmp_path: Path) -> None:
    play = Play(tmp_path, workers=1, evaluate_every=100)
    finish(play)
    play.lose("worker-0")
    play.training.advance()
    assert not play.training.finished
    worker = play.join()
    play.training.advance()
    (work,) = play.post.take("work")
    play.validated(worker.name, work["validate"])
    assert play.training.finished


def test_a_validation_that_was_given_up_does_not_end_a_newer_one(tmp_path: Path) -> None:
    """Each late answer had the next one given up, so that the job never ended."""
    play = Play(tmp_path, workers=1, evaluate_every=100)
    (first,) = finish(play)
    play.training.roll_back(play.training.ledger.snapshot())  # type: ignore[union-attr]
    play.training.advance()
    (second,) = [work["validate"] for work in play.post.take("work")]
    assert second["number"] > first["number"]
    play.validated("worker-0", first)
    assert not play.training.finished
    assert not play.post.take("work"), "a third one was begun"
    play.validated("worker-0", second)
    assert play.training.finished


@pytest.mark.parametrize("sync", [{"name": "bsp"}, {"name": "asp"}])
def test_a_push_that_not_all_servers_have_is_not_committed(sync: dict[str, Any], tmp_path: Path) -> None:
    play = Play(tmp_path, workers=1, sync=sync)
    other = Server("server-1", "n", 0.0, "ready", "server-1~")
    play.training.servers = [*play.training.servers, other]
    play.training.advance()
    play.push("worker-0")
    assert not play.post.take("commit")
    staged = {"task": "server-1", "worker": "worker-0", "step": 0, "generation": 0}
    play.training.on_staged(Message("staged", "server-1", {**staged, "generation": -1}))
    play.training.advance()
    assert not play.post.take("commit"), "staged by an older layout"
    play.training.on_staged(Message("staged", "server-1", staged))
    play.training.advance()
    (commit,) = play.post.take("commit")
    assert commit["version"] == 1
    assert commit["pushes"] == [["worker-0", 0, 1.0]]


def test_a_worker_that_dies_in_a_round_leaves_an_update_of_the_others(tmp_path: Path) -> None:
    play = Play(tmp_path, workers=3, batch=12)
    play.training.advance()
    play.push("worker-0")
    play.push("worker-1")
    assert not play.post.take("commit")
    play.lose("worker-2")
    play.training.advance()
    (commit,) = play.post.take("commit")
    assert [(worker, weight) for worker, _, weight in commit["pushes"]] == [("worker-0", 0.5), ("worker-1", 0.5)]
    assert play.training.ledger is not None
    assert play.training.ledger.committed == 8
    finish(play)
    assert play.training.ledger.finished
