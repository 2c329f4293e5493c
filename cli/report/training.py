"""What ``coplace train`` and ``coplace job`` print for people."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from coplace.cli.output import Symbols, printable
from coplace.cli.report.layout import Page, table
from coplace.cli.report.numbers import counted, duration, percent, speed

if TYPE_CHECKING:
    from coplace.training import Outcome, TrainingJob

VERSION = "coplace.outcome/v1"
"""First key of the JSON document."""

MOST_FAILURES = 5
"""Failures that are named in the report; all stand in the JSON document."""


def outcome_document(job: TrainingJob, outcome: Outcome, folder: Path) -> dict[str, Any]:
    """How a run ended, for ``--json``; numbers that are none are null."""
    from coplace.training.run_folder import MODEL

    names = {"version": VERSION, "job": job.name, "folder": str(folder), "model": str(folder / MODEL)}
    facts = dataclasses.asdict(outcome)
    facts["update"] = facts.pop("version")  # the number of the last update, not the format's
    document: dict[str, Any] = _finite(names | facts)
    return document


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def outcome_report(job: TrainingJob, outcome: Outcome, folder: Path, symbols: Symbols) -> Iterator[RenderableType]:
    """How a run ended, from top to bottom."""
    from coplace.training.run_folder import MODEL

    yield Text.assemble((printable(job.name), "bold"), f": {printable(outcome.ended)}")
    yield ""
    grid = _grid()
    epochs = f"{_floored(outcome.epochs)} of {job.epochs}"
    grid.add_row("epochs", f"{epochs}: {counted(outcome.samples, 'sample')}, {counted(outcome.version, 'update')}")
    grid.add_row("accuracy", _accuracy(outcome.accuracy, job.stop.accuracy))
    losses = [f"{outcome.loss:.4g} in training"] if outcome.loss is not None else []
    losses += [f"{outcome.validation_loss:.4g} in validation"] if outcome.validation_loss is not None else []
    grid.add_row("loss", ", ".join(losses) or "not known")
    grid.add_row("speed", f"{speed(outcome.speed)} samples/s")
    training = duration(outcome.training_seconds)
    grid.add_row("time", f"{duration(outcome.seconds)}, of which {training} since the first step could start")
    waited, communicated = percent(outcome.waited, 1), percent(outcome.communicated, 1)
    grid.add_row("workers", f"waited {waited} of their time for each other, communicated {communicated}")
    grid.add_row("failures", _failures(outcome, symbols))
    if outcome.rolled_back:
        grid.add_row("rolled back", f"updates of {counted(outcome.rolled_back, 'sample')}, lost with servers")
    if outcome.pauses:
        pauses = counted(len(outcome.pauses), "time")
        grid.add_row("paused", f"{pauses}, {duration(sum(pause.seconds for pause in outcome.pauses))} in all")
    grid.add_row("model", printable(str(folder / MODEL)))
    if outcome.epochs < job.epochs:
        grid.add_row("go on", "the same command with --resume")
    yield grid


def _failures(outcome: Outcome, symbols: Symbols) -> str:
    if not outcome.failures:
        return "none"
    named = [f"{failure.name} ({' '.join(failure.why.split())})" for failure in outcome.failures[:MOST_FAILURES]]
    if len(outcome.failures) > MOST_FAILURES:
        named.append(symbols.ellipsis)
    return printable(f"{len(outcome.failures):,}: {', '.join(named)}")


def status_report(status: Mapping[str, Any], page: Page) -> Iterator[RenderableType]:
    """What a job does, from what it answers to ``status``."""
    yield Text.assemble((printable(status["job"]), "bold"), f": {status['state']}, {duration(status['seconds'])}")
    yield ""
    if status["nodes"]:
        yield _nodes(status, page)
        yield ""
    grid = _grid()
    grid.add_row("epochs", f"{_floored(status['epoch'])} of {status['epochs']}: {counted(status['samples'], 'sample')}")
    grid.add_row("accuracy", _accuracy(status["accuracy"], None))
    grid.add_row("speed", f"{speed(status['speed'])} samples/s" if status["speed"] else "not known")
    if status["outlook"]:
        grid.add_row("outlook", printable(status["outlook"]))
    if status["wish"]["reason"]:
        grid.add_row("wish", printable(f"{counted(status['wish']['workers'], 'worker')}: {status['wish']['reason']}"))
    grid.add_row("failures", f"{status['failures']:,}" if status["failures"] else "none")
    if status["pauses"]:
        pauses = counted(len(status["pauses"]), "time")
        grid.add_row("paused", f"{pauses}, {duration(sum(status['pauses']))} in all")
    yield grid


def _nodes(status: Mapping[str, Any], page: Page) -> Table:
    body = table(page)
    body.add_column("node", no_wrap=True)
    for heading in ("CPU", "memory", "workers", "servers"):
        body.add_column(heading, justify="right", no_wrap=True)
    body.add_column("not as granted")
    for name, node in sorted(status["nodes"].items()):
        tasks = [task for task in status["tasks"] if task["node"] == name]
        roles = Counter(task["role"] for task in tasks)
        row = [f"{node['cpu'] / 1000:g}", f"{node['memory']:,} MiB", str(roles["worker"]), str(roles["ps"])]
        changing = [f"{task['name']} {task['phase']}" for task in tasks if task["phase"] != "ready"]
        body.add_row(*map(Text, (printable(name), *row, ", ".join(changing))))
    return body


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    return grid


def _accuracy(accuracy: float | None, target: float | None) -> str:
    if accuracy is None:
        return "not known"
    aim = "" if target is None else f"; the target is {100 * target:.4g} %"
    return f"{100 * accuracy:.2f} %{aim}"


def _floored(epochs: float) -> str:
    """Epochs done, so that the last one counts only when it is complete."""
    return f"{math.floor(100 * epochs) / 100:g}"
