"""The journal of what was used, a CSV file to which a line is added for every event.

Columns: event, version, batch, worker, epoch, spans. The events are

* ``commit``: the positions of *spans* of *epoch*, handed out to *worker* as *batch*, were used by the update *version*;
* ``epoch``: with this update *epoch* is complete: each of its positions was used;
* ``rollback``: the run goes on from *version*; what came after that is void.

Spans are written ``0-64 128-192``, each without its end.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable
from pathlib import Path

COLUMNS = ("event", "version", "batch", "worker", "epoch", "spans")


class Journal:
    """Adds events to the journal at *path*, which is made if it is not there.

    Every event is in the file when the method returns, though not on the disk before :meth:`sync`. A last line that a
    crash cut short is removed first.

    Raises:
        OSError: the file cannot be written, here or in any method. An event that raises is not in the journal.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = os.open(Path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._end = self._whole_lines()
            os.ftruncate(self._file, self._end)
            if self._end == 0:
                self._add(COLUMNS)
        except BaseException:
            self.close()
            raise

    def commit(self, version: int, batch: int, worker: str, epoch: int, spans: Iterable[tuple[int, int]]) -> None:
        """The positions of a batch were used by the update *version*."""
        self._add(("commit", version, batch, worker, epoch, " ".join(f"{start}-{stop}" for start, stop in spans)))

    def epoch(self, version: int, epoch: int) -> None:
        """With the update *version* every position of *epoch* was used."""
        self._add(("epoch", version, "", "", epoch, ""))

    def rollback(self, version: int) -> None:
        """What came after the update *version* is void."""
        self._add(("rollback", version, "", "", "", ""))

    def sync(self) -> None:
        """Wait until the disk has everything: before a checkpoint that relies on it is said to be complete."""
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _add(self, row: Iterable[object]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(row)
        line = text.getvalue().encode()
        try:
            written = os.pwrite(self._file, line, self._end)
            if written < len(line):
                raise OSError(f"the disk took {written} of {len(line)} bytes of a line of the journal")
        except OSError:
            os.ftruncate(self._file, self._end)
            raise
        self._end += len(line)

    def _whole_lines(self) -> int:
        """Bytes up to the end of the last complete line."""
        end = os.fstat(self._file).st_size
        while end > 0:
            start = max(0, end - 65536)
            found = os.pread(self._file, end - start, start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
        return 0
