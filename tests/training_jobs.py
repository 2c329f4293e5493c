"""Training jobs for tests: the digits that scikit-learn ships, on nodes that are processes of this machine."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coplace.instances.errors import InputError
from coplace.training import Control, Outcome, Program, TrainingJob, train
from coplace.training.coordinator.coordinator import Coordinator
from coplace.training.data.permutation import order


def digits(hidden: int = 32, normalise: bool = False) -> Program:
    """A small network on the digits."""
    # Read by hand: importing scikit-learn takes a second of each of the many processes that tests start.
    (package,) = importlib.util.find_spec("sklearn").submodule_search_locations
    table = np.loadtxt(Path(package, "datasets", "data", "digits.csv.gz"), delimiter=",", dtype=np.float32)
    inputs, target = torch.tensor(table[:, :-1]) / 16, torch.tensor(table[:, -1]).long()
    shuffled = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    inputs, target = inputs[shuffled], target[shuffled]
    middle = [torch.nn.BatchNorm1d(hidden)] if normalise else []
    model = torch.nn.Sequential(torch.nn.Linear(64, hidden), *middle, torch.nn.ReLU(), torch.nn.Linear(hidden, 10))
    loss = torch.nn.functional.cross_entropy
    return Program(model, (inputs[:1437], target[:1437]), loss, (inputs[1437:], target[1437:]))


def job(**settings: Any) -> TrainingJob:
    """A job on the digits; *settings* as in a job file."""
    document = {
        "name": "digits",
        "program": f"{__file__}:digits",
        "batch": 96,
        "epochs": 4,
        "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
        "nodes": [{"name": f"n{index}"} for index in range(3)],
        "workers": 3,
        "servers": 2,
        "threads": 1,
        "deadlines": {"step": 20, "node": 4, "server": 20, "start": 60},
        **settings,
    }
    return TrainingJob.model_validate(document)


class Run:
    """A job that runs in a thread, so that a test can meddle with it."""

    def __init__(self, job: TrainingJob, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self.coordinator: Coordinator | None = None
        self._job = job
        self._options = options
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        def started(coordinator: Coordinator) -> None:
            self.coordinator = coordinator

        try:
            self.outcome = train(
                self._job, self.folder, tensorboard=False, say=self.said.append, started=started, **self._options
            )
        except BaseException as error:
            self.error = error

    def ask(self, verb: str, **fields: Any) -> dict[str, Any]:
        """Ask the job something."""
        with Control(self.folder) as control:
            return control.ask(verb, **fields)

    def until(self, holds: Callable[[dict[str, Any]], bool], seconds: float = 60.0) -> dict[str, Any]:
        """Wait until the job's status is such."""
        deadline = time.monotonic() + seconds
        status: dict[str, Any] = {}
        while time.monotonic() < deadline:
            if self.error is not None:
                raise self.error
            assert self._thread.is_alive(), f"the job has ended: {self.outcome}; {self.said}"
            try:
                status = self.ask("status")
                if holds(status):
                    return status
            except InputError:  # not there yet
                pass
            time.sleep(0.02)
        raise AssertionError(f"the job did not get there; {status}; {self.said}")

    def result(self, seconds: float = 90.0) -> Outcome:
        """Wait for the end."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"the job hangs; {self.said}"
        if self.error is not None:
            raise self.error
        assert self.outcome is not None
        return self.outcome


def commits(folder: Path) -> dict[int, list[tuple[str, int, list[tuple[int, int]]]]]:
    """Worker, epoch and spans of the pushes of each version that counts, in order."""
    import csv

    found: dict[int, list[tuple[str, int, list[tuple[int, int]]]]] = {}
    with (folder / "ledger.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            version = int(row["version"])
            if row["event"] == "rollback":
                found = {known: pushes for known, pushes in found.items() if known <= version}
            elif row["event"] == "commit":
                spans = [(int(a), int(b)) for a, b in (span.split("-") for span in row["spans"].split())]
                found.setdefault(version, []).append((row["worker"], int(row["epoch"]), spans))
    return dict(sorted(found.items()))


def indices(job: TrainingJob, samples: int, epoch: int, spans: list[tuple[int, int]]) -> np.ndarray[Any, Any]:
    """The samples that spans of an epoch stand for."""
    positions = order(samples, job.seed, epoch)
    return np.concatenate([positions[start:stop] for start, stop in spans])


def replay(job: TrainingJob, folder: Path, program: Program) -> dict[str, torch.Tensor]:
    """The parameters after a plain loop in this process over the summed batches that the ledger lists."""
    torch.manual_seed(job.seed)
    inputs, target = program.data
    settings = job.optimizer.model_dump(exclude={"name"})
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[job.optimizer.name]
    optimizer = kind(program.model.parameters(), **settings)
    for pushes in commits(folder).values():
        chosen = torch.from_numpy(
            np.concatenate([indices(job, len(inputs), epoch, spans) for _, epoch, spans in pushes])
        )
        optimizer.zero_grad()
        program.loss(program.model(inputs[chosen]), target[chosen]).backward()
        optimizer.step()
    return {name: parameter.detach() for name, parameter in program.model.named_parameters()}
