"""Logs as CSV: the fields of a frozen dataclass are the columns, one record is one line.

Fields are of type ``str``, ``int``, ``float``, or one of these ``| None``, which is an empty cell. Numbers are finite
and not negative, unless the field carries ``metadata=ANY``: then a loss that went to NaN can be written too.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, get_type_hints

from coplace.instances.errors import InputError, Problem, shorten

ANY: Mapping[str, bool] = {"any": True}
"""Metadata of a field whose numbers may be negative, infinite or NaN."""


def one_of(*values: str) -> Mapping[str, tuple[str, ...]]:
    """Metadata of a field of text that is one of *values*."""
    return {"values": values}


Row = TypeVar("Row")


class TableLog(Generic[Row]):
    """Appends records of one dataclass to a CSV file.

    Lines reach the file whole, at most once every *flush_seconds* and at :meth:`close`. An existing log is carried on;
    what a killed writer left of a line at its end is cut off first.

    Args:
        path: the file; its folder must exist.
        kind: the dataclass of the records.
        flush_seconds: least time between two writes to the file, in seconds.
        clock: monotonic seconds, for tests.

    Raises:
        InputError: the file is there, and is no log of such records.
        OSError: the file cannot be written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: type[Row],
        *,
        flush_seconds: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = Path(path)
        self._names = columns(kind)
        self._flush_seconds = flush_seconds
        self._clock = clock
        self._text = io.StringIO()
        self._rows = csv.writer(self._text, lineterminator="\n")
        new = _is_empty(self.path, ",".join(self._names))
        if new:
            self.path.write_bytes(b"")
        else:
            with self.path.open(encoding="utf-8-sig", newline="") as file:
                _check_header(next(csv.reader(file), []), self._names, str(self.path))
            _cut_unfinished_line(self.path)
        self._file = self.path.open("ab")
        if new:
            self._rows.writerow(self._names)
            self.flush()
        self._flushed = clock()

    def append(self, record: Row) -> None:
        """Add one record."""
        values = (getattr(record, name) for name in self._names)
        self._rows.writerow(["" if value is None else value for value in values])
        if self._clock() - self._flushed >= self._flush_seconds:
            self.flush()

    def flush(self) -> None:
        """Hand to the system what has been appended."""
        text = self._text.getvalue()
        if text:
            self._text.seek(0)
            self._text.truncate()
            self._file.write(text.encode("utf-8"))
            self._file.flush()
        self._flushed = self._clock()

    def close(self) -> None:
        """Flush and close; more than once does no harm."""
        if not self._file.closed:
            self.flush()
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def columns(kind: type[Any]) -> tuple[str, ...]:
    """Names of the columns of a log of *kind*, in order."""
    return tuple(field.name for field in dataclasses.fields(kind))


def read_table(path: str | os.PathLike[str], kind: type[Row]) -> Iterator[Row]:
    """The records of a log, one by one; a last line without its end, which a killed writer leaves, is left out.

    Raises:
        InputError: the file is missing or breaks the format; names the line and the column.
    """
    source = str(path)
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(_finished_lines(file))
            names = columns(kind)
            _check_header(next(rows, []), names, source)
            parsers = _parsers(kind)
            for cells in rows:
                yield _record(cells, names, parsers, kind, f"line {rows.line_num}", source)
    except OSError as error:
        raise InputError([Problem("", f"cannot be read: {error.strerror or error}")], source) from None
    except (ValueError, csv.Error) as error:  # also: no UTF-8, a path that no file can have
        raise InputError([Problem("", f"cannot be read as CSV: {error}")], source) from None


def _finished_lines(file: io.TextIOWrapper) -> Iterator[str]:
    return (line for line in file if line.endswith("\n"))


def _is_empty(path: Path, header: str) -> bool:
    """Whether the file at *path* is missing, empty, or what a killed writer left of its header."""
    try:
        with path.open("rb") as file:
            return header.encode().startswith(file.read(len(header) + 1))
    except FileNotFoundError:
        return True


def _cut_unfinished_line(path: Path) -> None:
    """Cut the file at *path* after its last end of line; it has one."""
    with path.open("r+b") as file:
        at = file.seek(0, os.SEEK_END)
        while at > 0:
            start = max(0, at - 65536)
            file.seek(start)
            last = file.read(at - start).rfind(b"\n")
            if last >= 0:
                file.truncate(start + last + 1)
                return
            at = start


def _check_header(found: list[str], names: tuple[str, ...], source: str) -> None:
    if tuple(found) != names:
        rule = f"must have the columns {', '.join(names)}"
        raise InputError([Problem("line 1", rule, shorten(",".join(found)))], source)


Parser = Callable[[str], Any]


def _parsers(kind: type[Any]) -> list[Parser]:
    hints = get_type_hints(kind)
    return [_parser(hints[field.name], field.metadata) for field in dataclasses.fields(kind)]


def _parser(hint: Any, metadata: Mapping[str, Any]) -> Parser:
    options = getattr(hint, "__args__", (hint,))
    (base,) = (option for option in options if option is not type(None))
    optional = type(None) in options
    any_number = bool(metadata.get("any"))
    values = metadata.get("values", ())

    def parse(cell: str) -> Any:
        if cell == "" and optional:
            return None
        if base is str:
            if not cell:
                raise ValueError("must not be empty")
            if values and cell not in values:
                raise ValueError(f"must be {' or '.join(values)}")
            return cell
        noun = "a whole number" if base is int else "a number"
        try:
            value = base(cell)
        except ValueError:
            raise ValueError(f"must be {noun}") from None
        if not any_number and not (math.isfinite(value) and value >= 0):
            raise ValueError(f"must be {noun} from 0")
        return value

    return parse


def _record(
    cells: list[str], names: tuple[str, ...], parsers: list[Parser], kind: type[Row], place: str, source: str
) -> Row:
    if len(cells) != len(names):
        raise InputError([Problem(place, f"must have {len(names)} cells", str(len(cells)))], source)
    values = []
    for name, cell, parse in zip(names, cells, parsers, strict=True):
        try:
            values.append(parse(cell))
        except ValueError as error:
            raise InputError([Problem(f"{place}.{name}", str(error), shorten(cell))], source) from None
    return kind(*values)
