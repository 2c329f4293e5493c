"""The history of observations: one schema, written by training and daemon, read by learning.

A history file is CSV (UTF-8, one header row) whose columns are the fields of :class:`Observation` in order, after a
first column ``schema`` that holds :data:`HISTORY_VERSION` in every row. Empty cell = not recorded.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Annotated, Literal

from pydantic import Field, ValidationError

from coplace.instances.base import Name, NonNegative, Number, Positive, Record
from coplace.instances.errors import InputError, Problem, shorten
from coplace.instances.files import write_atomically

HISTORY_VERSION = "coplace.history/v1"


class Observation(Record):
    """What one job was seen to do during one interval.

    Attributes:
        at_seconds: end of the interval, in seconds since the job was submitted.
        seconds: length of the interval.
        job: name of the job; in an instance, that of the job that carries the observation if None.
        model: name of the network or job kind, by which jobs are relatives of each other.
        architecture: ``ps`` or ``allreduce``.
        sync: ``bsp``, ``asp`` or ``ssp``.
        gpu_type: GPU type of the workers.
        workers, servers: task counts.
        gpus_per_worker: GPUs of one worker.
        worker_cpu, ps_cpu: milli-cores of one task.
        worker_memory, ps_memory: MiB granted to one task.
        batch: samples per step, global (bsp) or per worker (asp, ssp).
        span: distinct nodes in use.
        pressure: pressure of the worst node, share of its capacity.
        speed: samples/s, all workers together.
        worker_rss, ps_rss: largest resident set of a task in MiB.
        model_mib: size of the parameters in MiB.
        sync_wait_share: share of the workers' time spent waiting for each other.
        staleness: mean staleness in steps.
        mib_sent: MiB sent by all tasks.
        samples: samples done since the job started.
        loss, accuracy: latest value of the training loss and the validation accuracy.
    """

    at_seconds: NonNegative
    seconds: NonNegative = 0.0
    job: Name | None = None
    model: Name | None = None
    architecture: Literal["ps", "allreduce"] | None = None
    sync: Literal["bsp", "asp", "ssp"] | None = None
    gpu_type: Name
    workers: Annotated[int, Field(ge=1)]
    servers: Annotated[int, Field(ge=0)] = 0
    gpus_per_worker: Annotated[int, Field(ge=0)] | None = None
    worker_cpu: Annotated[int, Field(ge=0)] | None = None
    ps_cpu: Annotated[int, Field(ge=0)] | None = None
    worker_memory: Annotated[int, Field(ge=0)] | None = None
    ps_memory: Annotated[int, Field(ge=0)] | None = None
    batch: Positive | None = None
    span: Annotated[int, Field(ge=1)] | None = None
    pressure: NonNegative | None = None
    speed: NonNegative
    worker_rss: NonNegative | None = None
    ps_rss: NonNegative | None = None
    model_mib: NonNegative | None = None
    sync_wait_share: Annotated[Number, Field(ge=0, le=1)] | None = None
    staleness: NonNegative | None = None
    mib_sent: NonNegative | None = None
    samples: NonNegative | None = None
    loss: Number | None = None
    accuracy: Number | None = None


COLUMNS: tuple[str, ...] = ("schema", *Observation.model_fields)
"""Columns of a history file, in order."""


def write_history(observations: Iterable[Observation], path: str | os.PathLike[str]) -> None:
    """Write a history file; an existing one is replaced whole or not at all."""

    def write(file: IO[str]) -> None:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        for observation in observations:
            values = observation.model_dump().values()
            rows.writerow([HISTORY_VERSION, *("" if value is None else value for value in values)])

    write_atomically(path, write)


def read_history(path: str | os.PathLike[str]) -> Iterator[Observation]:
    """The observations of a history file, one by one.

    Raises:
        InputError: the file is missing or breaks the schema; names the line and the column.
    """
    source = str(path)
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            if tuple(rows.fieldnames or ()) != COLUMNS:
                found = shorten(",".join(rows.fieldnames or ()))
                raise InputError(
                    [Problem("line 1", f"a history file has the columns {', '.join(COLUMNS)}", found)], source
                )
            for row in rows:
                yield _observation(row, rows.line_num, source)
    except OSError as error:
        raise InputError([Problem("", f"cannot be read: {error.strerror or error}")], source) from None
    except (ValueError, csv.Error) as error:  # also: no UTF-8, a path that no file can have
        raise InputError([Problem("", f"cannot be read as CSV: {error}")], source) from None


def _observation(row: dict[str, str], line: int, source: str) -> Observation:
    if None in row or None in row.values():
        cells = sum(value is not None for key, value in row.items() if key) + len(row.get(None, ()))  # type: ignore[call-overload]
        raise InputError([Problem(f"line {line}", f"must have {len(COLUMNS)} cells", str(cells))], source)
    version = row.pop("schema")
    if version != HISTORY_VERSION:
        raise InputError([Problem(f"line {line}.schema", f"must be {HISTORY_VERSION}", shorten(version))], source)
    try:
        return Observation.model_validate_strings({key: value for key, value in row.items() if value != ""})
    except ValidationError as error:
        from coplace.instances.reading import explain  # which itself reads what a job carries of its history

        problems = [
            Problem(f"line {line}.{details['loc'][0]}", explain(details), shorten(details["input"]))
            if details["type"] != "missing"
            else Problem(f"line {line}.{details['loc'][0]}", explain(details))
            for details in error.errors(include_url=False)
        ]
        raise InputError(problems, source) from None
