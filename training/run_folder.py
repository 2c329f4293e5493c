"""The folder of a run: who may use it, what is left in it, and what of a failed start is taken away again."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from coplace.instances.errors import InputError, Problem
from coplace.instances.files import write_atomically
from coplace.training.coordinator.membership import NeverBegan
from coplace.training.job import TrainingJob

MODEL = "model.safetensors"
"""Name of the trained model."""

JOB = "job.json"
"""Name of the copy of the job."""

_LEDGER = "ledger.csv"
_OURS = {
    JOB,
    MODEL,
    _LEDGER,
    "checkpoints",
    "control",
    "control.json",
    "curves.csv",
    "history.csv",
    "logs",
    "meeting.json",
    "steps.csv",
    "tensorboard",
}


@contextlib.contextmanager
def prepared(folder: Path, job: TrainingJob, resume: bool) -> Iterator[Path]:
    """The run's folder, by its absolute path, made or found fit to be resumed, and kept from other runs meanwhile.

    If the run does not come to its first step, because the input is at fault or somebody stops it, nothing stays.

    Raises:
        InputError: it holds another run, one is going on there, there is no checkpoint to resume, or it cannot be
            made.
    """
    run, source = folder.resolve(), str(folder)
    known = run.exists()
    with contextlib.ExitStack() as stack:
        try:
            _check(run, source, resume)
            run.mkdir(parents=True, exist_ok=True)
            stack.enter_context(_reserved(run, source))
            if not resume:
                _clear(run)
            for leftover in (run / "control", *run.glob("messages-*")):
                shutil.rmtree(leftover, ignore_errors=True)
            before = (run / JOB).read_bytes() if resume and (run / JOB).is_file() else None
            document = job.model_dump_json(indent=2)
            write_atomically(run / JOB, lambda file: file.write(document + "\n"))
            (run / "logs").mkdir(exist_ok=True)
        except OSError as error:
            raise InputError([Problem("", f"cannot be used: {error.strerror or error}")], source) from None
        try:
            yield run
        except (InputError, NeverBegan, KeyboardInterrupt):
            if before is not None:  # of the runs whose checkpoints these are
                (run / JOB).write_bytes(before)
            if _never_began(run):
                _clear(run)
                if not known:
                    with contextlib.suppress(OSError):
                        run.rmdir()
            raise


def _check(run: Path, source: str, resume: bool) -> None:
    if resume and not any((run / "checkpoints").glob("checkpoint-*")):
        mend = "start anew, without --resume"
        raise InputError([Problem("", "holds no checkpoint to resume from", mend=mend)], source)
    if not resume and run.is_dir() and any(run.iterdir()) and not _never_began(run):
        mend = "give another folder, or go on with --resume"
        raise InputError([Problem("", "holds something already", mend=mend)], source)


@contextlib.contextmanager
def _reserved(run: Path, source: str) -> Iterator[None]:
    """Hold a lock on the folder; where its file system has none for folders, there is none."""
    folder = os.open(run, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise InputError([Problem("", "a job runs here already")], source) from None
        yield
    finally:
        os.close(folder)


def _never_began(run: Path) -> bool:
    """Whether there is nothing here but what a run leaves that has not come to its first step."""
    names = {path.name for path in run.iterdir() if not path.name.startswith("messages-")}
    if not {JOB, "logs"} <= names <= _OURS - {MODEL} or any((run / "checkpoints").glob("*")):
        return False
    ledger = run / _LEDGER
    return not ledger.exists() or len(ledger.read_bytes().splitlines()) <= 1


def _clear(run: Path) -> None:
    for path in list(run.iterdir()):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
