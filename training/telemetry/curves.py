"""The curves of a run: loss and accuracy against samples, one line for each evaluation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic

from coplace.training.telemetry.tables import ANY, TableLog, read_table


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One evaluation.

    Attributes:
        at_seconds: seconds since the job started.
        epoch: epochs done, fractions included.
        version: version of the parameters that were evaluated.
        samples: samples that went into that version since the job started.
        loss: mean training loss since the last evaluation; None if not known.
        validation_loss: mean loss on the validation data; None if there are none.
        accuracy: share of the validation data that is right, from 0 to 1; None if not known.
    """

    at_seconds: float
    epoch: float
    version: int
    samples: int
    loss: float | None = field(default=None, metadata=ANY)
    validation_loss: float | None = field(default=None, metadata=ANY)
    accuracy: float | None = field(default=None, metadata=ANY)


class CurveLog(TableLog[CurvePoint]):
    """Appends evaluations to a CSV file, ``curves.csv``; see :class:`coplace.training.telemetry.tables.TableLog`."""

    def __init__(
        self, path: str | os.PathLike[str], *, flush_seconds: float = 1.0, clock: Callable[[], float] = monotonic
    ) -> None:
        super().__init__(path, CurvePoint, flush_seconds=flush_seconds, clock=clock)


def read_curves(path: str | os.PathLike[str]) -> Iterator[CurvePoint]:
    """The evaluations of a log, one by one.

    Raises:
        InputError: the file is missing or breaks the format; names the line and the column.
    """
    return read_table(path, CurvePoint)
