"""The log of steps: one line for each step of a worker and each commit of a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic

from coplace.training.telemetry.tables import ANY, TableLog, one_of, read_table

WORKER = "worker"
SERVER = "server"


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of one task.

    Attributes:
        at_seconds: end of the step, in seconds since the job started.
        task: name of the task.
        role: ``worker`` or ``server``.
        node: name of the node on which the task runs.
        step: number of the step; of a server, of the commit.
        version: version of the parameters that the step began with; of a server, that it ended with.
        epoch: epoch that the samples belong to.
        samples: samples in the step; 0 for a server.
        seconds: length of the whole step.
        compute_seconds: in forward and backward; of a server, in the optimiser.
        wait_seconds: in barriers and for permission.
        communicate_seconds: in fetching parameters and sending gradients.
        staleness: commits between the version that the step began with and the one that its push went into.
        mib_sent, mib_received: payload in this step, in MiB.
        rss_mib: resident set at the end of the step, in MiB.
        share: share of the global batch, from 0 to 1; 0 for a server.
        threads: threads that the task may compute with.
        loss: mean training loss over the samples; NaN where training diverged, None if not known.
    """

    at_seconds: float
    task: str
    role: str = field(metadata=one_of(WORKER, SERVER))
    node: str
    step: int
    version: int
    epoch: int
    samples: int
    seconds: float
    compute_seconds: float = 0.0
    wait_seconds: float = 0.0
    communicate_seconds: float = 0.0
    staleness: int = 0
    mib_sent: float = 0.0
    mib_received: float = 0.0
    rss_mib: float = 0.0
    share: float = 0.0
    threads: int = 0
    loss: float | None = field(default=None, metadata=ANY)


class StepLog(TableLog[StepRecord]):
    """Appends steps to a CSV file, ``steps.csv``; see :class:`coplace.training.telemetry.tables.TableLog`."""

    def __init__(
        self, path: str | os.PathLike[str], *, flush_seconds: float = 1.0, clock: Callable[[], float] = monotonic
    ) -> None:
        super().__init__(path, StepRecord, flush_seconds=flush_seconds, clock=clock)


def read_steps(path: str | os.PathLike[str]) -> Iterator[StepRecord]:
    """The steps of a log, one by one.

    Raises:
        InputError: the file is missing or breaks the format; names the line and the column.
    """
    return read_table(path, StepRecord)
