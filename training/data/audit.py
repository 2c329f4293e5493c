"""The audit: from the journal alone, was each sample of a finished epoch used exactly once?

It counts uses in one array per epoch and shares no code with the ledger, so that a fault of the ledger shows.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coplace.instances.errors import InputError, Problem, shorten

COLUMNS = ("event", "version", "batch", "worker", "epoch", "spans")


@dataclass(frozen=True, slots=True)
class EpochAudit:
    """What the journal says of one epoch, void commits left out. Spans are [start, stop), ascending.

    Attributes:
        epoch: counted from 0.
        finished: whether the journal says that it is complete, or the caller of :func:`audit` expects it.
        used: positions used at least once.
        missing: positions never used.
        doubled: positions used more than once.
        out_of_range: spans that are not within the samples, as they stand in the journal.
    """

    epoch: int
    finished: bool
    used: int
    missing: tuple[tuple[int, int], ...]
    doubled: tuple[tuple[int, int], ...]
    out_of_range: tuple[tuple[int, int], ...]

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong, a line each. In an epoch that is not finished, positions may be missing."""
        kinds = [
            ("used by no update", self.missing if self.finished else ()),
            ("used more than once", self.doubled),
            ("out of range", self.out_of_range),
        ]
        return tuple(f"epoch {self.epoch}: {_listed(spans)} {what}" for what, spans in kinds if spans)


@dataclass(frozen=True, slots=True)
class Audit:
    """What the journal says of a run.

    Attributes:
        samples: in the data.
        version: of the last update that is not void; 0 if there is none.
        committed: samples used by updates that are not void.
        rolled_back: samples used by updates that are void.
        by_worker: *committed* for each worker.
        epochs: every epoch that occurs, ascending.
    """

    samples: int
    version: int
    committed: int
    rolled_back: int
    by_worker: Mapping[str, int]
    epochs: tuple[EpochAudit, ...]

    @property
    def finished(self) -> int:
        """Epochs that are finished."""
        return sum(epoch.finished for epoch in self.epochs)

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong in any epoch, a line each."""
        return tuple(fault for epoch in self.epochs for fault in epoch.faults)

    @property
    def exact(self) -> bool:
        """Whether each sample of each finished epoch was used exactly once, and none of any other more than once."""
        return not self.faults


@dataclass(slots=True)
class _Line:
    """An event that is not void."""

    event: str
    version: int
    epoch: int
    worker: str = ""
    spans: list[tuple[int, int]] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(max(0, stop - start) for start, stop in self.spans)


def audit(journal_path: str | os.PathLike[str], samples: int, epochs: int = 0) -> Audit:
    """Recompute from the journal what was used; see :mod:`.journal` for its form.

    A last line without its end was cut short by a crash and does not count. Memory: 4 bytes for each sample of the
    epochs that occur, one epoch at a time, and the journal's lines.

    Args:
        journal_path: the journal; an empty one is of a run that used nothing.
        samples: in the data, at least 1.
        epochs: how many must be finished, whatever the journal says.

    Raises:
        OSError: the journal cannot be read.
        InputError: a line of it is not as its form says.
    """
    valid, rolled_back = _replay(Path(journal_path))
    commits = [line for line in valid if line.event == "commit"]
    claimed = {line.epoch for line in valid if line.event == "epoch"} | set(range(epochs))
    by_epoch: dict[int, list[tuple[int, int]]] = {epoch: [] for epoch in sorted(claimed | {c.epoch for c in commits})}
    by_worker: dict[str, int] = {}
    for line in commits:
        by_epoch[line.epoch] += line.spans
        by_worker[line.worker] = by_worker.get(line.worker, 0) + line.count
    return Audit(
        samples=samples,
        version=max((line.version for line in valid), default=0),
        committed=sum(by_worker.values()),
        rolled_back=rolled_back,
        by_worker=dict(sorted(by_worker.items())),
        epochs=tuple(_count(epoch, spans, samples, epoch in claimed) for epoch, spans in by_epoch.items()),
    )


def _count(epoch: int, spans: list[tuple[int, int]], samples: int, finished: bool) -> EpochAudit:
    uses = np.zeros(samples, np.int32)
    outside = []
    for start, stop in spans:
        if not 0 <= start < stop <= samples:
            outside.append((start, stop))
        uses[max(0, start) : max(0, stop)] += 1
    return EpochAudit(
        epoch=epoch,
        finished=finished,
        used=int(np.count_nonzero(uses)),
        missing=_runs(uses == 0),
        doubled=_runs(uses > 1),
        out_of_range=tuple(sorted(outside)),
    )


def _runs(flags: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    """Spans of the positions where *flags* is true."""
    edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0)).tolist()
    return tuple(zip(edges[::2], edges[1::2], strict=True))


def _listed(spans: tuple[tuple[int, int], ...], most: int = 5) -> str:
    shown = ", ".join(f"{start}-{stop}" for start, stop in spans[:most])
    positions = sum(max(0, stop - start) for start, stop in spans)
    return f"{positions} positions ({shown}{', …' if len(spans) > most else ''})"


def _replay(path: Path) -> tuple[list[_Line], int]:
    """The events that no rollback made void, and the samples of those that one did."""
    text = path.read_text(encoding="utf-8", errors="replace")
    rows = csv.reader(io.StringIO(text[: text.rfind("\n") + 1], newline=""))
    first = next(rows, COLUMNS)
    if tuple(first) != COLUMNS:
        rule = f"a journal begins with {','.join(COLUMNS)}"
        raise InputError([Problem("line 1", rule, shorten(",".join(first)))], str(path))
    valid: list[_Line] = []
    rolled_back = 0
    for row in rows:
        try:
            event, version, _, worker, epoch, spans = row
            if event == "rollback":
                kept = [line for line in valid if line.version <= int(version)]
                rolled_back += sum(line.count for line in valid if line.version > int(version))
                valid = kept
            elif event in ("commit", "epoch"):
                pairs = [piece.split("-") for piece in spans.split()]
                valid.append(_Line(event, int(version), int(epoch), worker, [(int(a), int(b)) for a, b in pairs]))
            else:
                raise ValueError
        except ValueError:
            rule = "an event of the journal is a commit, epoch or rollback with version, batch, worker, epoch and spans"
            raise InputError([Problem(f"line {rows.line_num}", rule, shorten(",".join(row)))], str(path)) from None
    return valid, rolled_back
