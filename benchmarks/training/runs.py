"""Running jobs for the training benchmarks, together and alone, on nodes whose CPU is limited."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import MeasurementError

if TYPE_CHECKING:
    from coplace.training import Control, Outcome, TrainingJob
    from coplace.training.telemetry.curves import CurvePoint
    from coplace.training.telemetry.steps import StepRecord

PROGRAMS = Path(__file__).with_name("programs.py")


@dataclass(frozen=True)
class Ran:
    """A run and what it wrote."""

    outcome: Outcome
    steps: list[StepRecord]
    curve: list[CurvePoint]

    def seconds_to(self, accuracy: float) -> float | None:
        """Seconds from the first step to an accuracy; None if it was not reached."""
        start = min(step.at_seconds - step.seconds for step in self.steps)
        return next((point.at_seconds - start for point in self.curve if (point.accuracy or 0) >= accuracy), None)

    def final_accuracy(self, points: int = 5) -> float:
        """Mean of the last accuracies."""
        last = [point.accuracy or 0.0 for point in self.curve[-points:]]
        return sum(last) / len(last)

    def speed(self, skip: float = 0.0) -> float:
        """Samples/s of all workers, from *skip* seconds after the first step on."""
        start = min(step.at_seconds - step.seconds for step in self.steps) + skip
        counted = [step for step in self.steps if step.at_seconds > start]
        return sum(step.samples for step in counted) / (max(step.at_seconds for step in counted) - start)

    def waited(self, skip: float = 0.0) -> float:
        """Seconds that workers spent in barriers, or waiting for permission, for each sample."""
        start = min(step.at_seconds - step.seconds for step in self.steps) + skip
        counted = [step for step in self.steps if step.at_seconds > start]
        return sum(step.wait_seconds for step in counted) / max(1, sum(step.samples for step in counted))

    def waiting_share(self) -> float:
        """Share of the workers' time."""
        return sum(step.wait_seconds for step in self.steps) / sum(step.seconds for step in self.steps)


def job(program: str, **settings: Any) -> TrainingJob:
    """A job on one of the benchmarks' programs."""
    from coplace.training import TrainingJob

    return TrainingJob.model_validate(
        {
            "name": program,
            "program": f"{PROGRAMS}:{program}",
            "threads": 1,
            "batch": 128,
            "elastic": False,
            **settings,
        }
    )


def nodes(limits: Sequence[float | None]) -> dict[str, Any]:
    """Settings of a job: node ``s`` with a server, and a node with a worker for each limit in cores."""
    hosts: list[dict[str, Any]] = [{"name": "s", "cpu": 2}]
    tasks: dict[str, Any] = {"s": {"ps": 1}}
    for index, limit in enumerate(limits):
        host: dict[str, Any] = {"name": f"w{index}", "cpu": "1"}
        hosts.append(host if limit is None else {**host, "cpu": f"{round(1000 * limit)}m", "limit": True})
        tasks[f"w{index}"] = {"worker": 1}
    return {"nodes": hosts, "tasks": tasks}


def run(job: TrainingJob, meddle: Callable[[Control], None] | None = None, keep: Path | None = None) -> Ran:
    """Run *job* to its end, while *meddle* asks things of it."""
    from coplace.training import Control, train
    from coplace.training.telemetry.curves import read_curves
    from coplace.training.telemetry.steps import read_steps

    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "run") if keep is None else keep
        errors: list[BaseException] = []

        def act() -> None:
            try:
                with Control(folder) as control:
                    assert meddle is not None
                    meddle(control)
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=act, daemon=True)
        outcome = train(
            job,
            folder,
            tensorboard=False,
            started=lambda coordinator: thread.start() if meddle is not None else None,
        )
        if meddle is not None:
            thread.join(60)
            if errors:
                raise MeasurementError(f"meddling with the run failed: {errors[0]}")
        steps = [step for step in read_steps(folder / "steps.csv") if step.role == "worker"]
        return Ran(outcome, steps, list(read_curves(folder / "curves.csv")))


def alone(job: TrainingJob, seconds: float | None = None, limit: float | None = None) -> dict[str, Any]:
    """Train *job* in one plain process, held to *limit* cores."""
    from coplace.training.nodes.throttle import throttle

    command = [sys.executable, "-m", "benchmarks.training.alone", job.model_dump_json()]
    command += [] if seconds is None else [str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            process.kill()
            raise MeasurementError("plain training has failed")
        held = None if limit is None else throttle([process.pid], limit)
        process.stdin.write("\n")
        process.stdin.flush()
        text = process.stdout.read()
        if held is not None:
            held.close()
    result: dict[str, Any] = json.loads(text)
    return result
