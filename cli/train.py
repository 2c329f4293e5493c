"""``coplace train``: run a training job from its file to its model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from coplace.cli.interrupts import Interrupts
    from coplace.training import Outcome, TrainingJob
    from coplace.training.coordinator.coordinator import Coordinator
    from coplace.training.telemetry.terminal import Snapshot, Terminal

TRANSPORTS = ("file", "tcp", "ray")

FAILED = 1
"""Exit code of a job that could not go on."""


def train(
    file: Annotated[Path, typer.Argument(metavar="JOB", help="Training job, YAML or JSON.")],
    run: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of the run; default: NAME-run, of the job's name.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint in the folder.")] = False,
    transport: Annotated[str | None, typer.Option(help="file, tcp or ray, instead of the one in JOB.")] = None,
    epochs: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=10**6, help="Passes over the data, instead of those in JOB.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print how it ended as one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Train a model with workers and parameter servers.

    Ctrl-C ends the training with its model and a checkpoint written, from which --resume goes on; a second one ends it
    at once. While it trains, `coplace job` changes the job, and `coplace node` brings further machines.
    """
    from coplace.cli import output as out
    from coplace.cli.interrupts import Interrupts
    from coplace.cli.training_packages import need_training

    conductor = _Conductor()
    with Interrupts(conductor.stop) as interrupts:
        from coplace.instances.errors import InputError

        need_training(transport or "file")
        from coplace.training.coordinator.membership import JobError, NeverBegan
        from coplace.training.job import read_job
        from coplace.training.run import train as train_job
        from coplace.training.telemetry.terminal import Terminal

        job = _with_options(read_job(file), transport, epochs)
        need_training(job.transport)
        folder = Path(re.sub(r"[^\w.-]+", "-", job.name).lstrip(".") + "-run") if run is None else run
        with Terminal() as terminal:
            view = _View(None if quiet else terminal, interrupts)

            def started(coordinator: Coordinator) -> None:
                conductor.take(coordinator, interrupts)
                view.say(f"{out.printable(job.name)}: files go to {out.printable(str(folder))}")

            try:
                outcome = train_job(
                    job, folder, resume=resume, tensorboard=_has_tensorboard(), show=view.show, say=view.say,
                    started=started,
                )  # fmt: skip
            except InputError as error:
                raise error if error.source else error.located(str(file)) from None
            except NeverBegan:
                if interrupts.requested:
                    raise typer.Exit(130) from None
                raise
            except JobError as error:
                terminal.close()
                logs = f"; what its tasks printed is in {folder / 'logs'}"
                out.note(f"coplace: {job.name}: {' '.join(str(error).split())}{logs if folder.is_dir() else ''}")
                raise typer.Exit(FAILED) from None
        _show(job, outcome, folder, as_json)


class _Conductor:
    """Passes a request to stop on to the coordinator, once there is one."""

    def __init__(self) -> None:
        self._coordinator: Coordinator | None = None

    def take(self, coordinator: Coordinator, interrupts: Interrupts) -> None:
        self._coordinator = coordinator
        interrupts.defer()

    def stop(self) -> None:
        assert self._coordinator is not None
        self._coordinator.stop("interrupted")


class _View:
    """What is shown meanwhile; nothing without a terminal's like to show it on."""

    def __init__(self, terminal: Terminal | None, interrupts: Interrupts) -> None:
        self._terminal = terminal
        self._interrupts = interrupts
        self._told = False

    def show(self, snapshot: Snapshot) -> None:
        if self._interrupts.requested and not self._told:
            self._told = True  # not said by the signal handler, which may come amid another line
            self.say("ending, with model and checkpoint; Ctrl-C again gives them up")
        if self._terminal is not None:
            self._terminal.show(snapshot)

    def say(self, text: str) -> None:
        if self._terminal is not None:
            self._terminal.say(text)


def _with_options(job: TrainingJob, transport: str | None, epochs: int | None) -> TrainingJob:
    from coplace.instances.consistency import near
    from coplace.instances.errors import InputError, Problem

    if transport is not None and transport not in TRANSPORTS:
        rule = f"must be one of {', '.join(TRANSPORTS)}"
        raise InputError([Problem("--transport", rule, repr(transport), near(transport, TRANSPORTS))])
    update = {"transport": transport, "epochs": epochs}
    return job.model_copy(update={key: value for key, value in update.items() if value is not None})


def _has_tensorboard() -> bool:
    from importlib.util import find_spec

    return find_spec("tensorboard") is not None


def _show(job: TrainingJob, outcome: Outcome, folder: Path, as_json: bool) -> None:
    from coplace.cli import output as out
    from coplace.cli.report.training import outcome_document, outcome_report

    if as_json:
        out.emit_json(outcome_document(job, outcome, folder))
        return
    console = out.console()
    out.emit_rich(console, *outcome_report(job, outcome, folder, out.symbols()))
