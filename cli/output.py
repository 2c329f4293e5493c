"""Where output goes: standard output in one piece, notes to standard error, files whole or not at all."""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PLAIN_WIDTH = 100
"""Columns where the output is no terminal, so that what a file or a pipe gets depends on nothing."""

_TRANSLATED = {
    "→": "->", "×": "x", "…": "...", "–": "-", "·": "*", "≤": "<=", "≥": ">=", "−": "-", "’": "'", "“": '"', "”": '"',
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Symbols:
    """Characters of tables; chosen before a table is laid out, so that its columns stay aligned."""

    arrow: str
    times: str
    ellipsis: str
    full: str
    empty: str
    none: str


UNICODE = Symbols(arrow="→", times="×", ellipsis="…", full="█", empty="░", none="–")
ASCII = Symbols(arrow="->", times="x", ellipsis="..", full="#", empty=".", none="-")


def prepare_streams() -> None:
    """Make standard output and error print anything, whatever their encoding."""
    codecs.register_error("coplace", _translate)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="coplace")


def _translate(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    bad = error.object[error.start : error.end]
    return "".join(_TRANSLATED.get(c) or c.encode("ascii", "backslashreplace").decode() for c in bad), error.end


def printable(text: str) -> str:
    """*text* without characters that would steer a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def console() -> Console:
    """A console like standard output: as wide and colourful as the terminal, plain where it is none."""
    from rich.console import Console

    terminal = sys.stdout is not None and sys.stdout.isatty()
    like = Console(file=sys.stdout, width=None if terminal else PLAIN_WIDTH)
    return Console(
        file=io.StringIO(),  # rich would write to a full disk or a closed pipe in its own way
        width=like.width,
        force_terminal=like.is_terminal,
        color_system=like.color_system if like.is_terminal else None,  # type: ignore[arg-type]
        no_color=like.no_color,
        markup=False,  # names may hold [brackets]
        highlight=False,
        emoji=False,
    )


def symbols() -> Symbols:
    """The symbols that standard output can print."""
    try:
        "→×…█░–─".encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except UnicodeEncodeError:
        return ASCII
    return UNICODE


def emit(text: str) -> None:
    """Write *text* to standard output; a reader that has gone (``| head``) is no error.

    Raises:
        InputError: it cannot be written.
    """
    stream = sys.stdout
    if stream is None:
        return
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        discard(stream)
    except OSError as error:
        discard(stream)
        raise _unwritable("standard output", error) from None


def emit_rich(page: Console, *parts: RenderableType) -> None:
    """Lay *parts* out on *page*, which :func:`console` made, and write them to standard output."""
    for part in parts:
        page.print(part)
    assert isinstance(page.file, io.StringIO)
    text = page.file.getvalue()
    if not page.is_terminal:
        text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    emit(text)


def emit_json(document: Any, *, compact: bool = False) -> None:
    """Write *document* to standard output as one JSON value."""
    unicode = (getattr(sys.stdout, "encoding", None) or "").lower().startswith("utf")
    emit(_json(document, compact=compact, ensure_ascii=not unicode))


def write_json(path: Path, document: Any) -> None:
    """Write *document* to the file *path*, whole or not at all; raises :class:`InputError`."""
    text = _json(document, compact=False, ensure_ascii=False)
    write_file(path, lambda file: file.write(text))


def write_file(path: Path, write: Callable[[IO[str]], object]) -> None:
    """Let *write* fill the file *path*, whole or not at all; raises :class:`InputError`."""
    from coplace.instances.files import write_atomically

    try:
        write_atomically(path, write)
    except OSError as error:
        raise _unwritable(str(path), error) from None


def replace(path: Path, fill: Callable[[Path], object]) -> None:
    """Let *fill* write the file *path*, given one to write in its place; raises :class:`InputError`."""
    from coplace.instances.files import replace_file

    try:
        replace_file(path, fill)
    except OSError as error:
        raise _unwritable(str(path), error) from None


def check_target(path: Path | None, *inputs: Path | None) -> None:
    """Refuse a file that cannot be written, before time is spent on what goes into it.

    Raises:
        InputError: *path* is a folder, its folder is missing or closed to us, or it is one of the *inputs*.
    """
    if path is None:
        return
    from coplace.instances.errors import InputError, Problem

    if str(path) == "-":
        raise InputError([Problem("--output", "must be a file; standard output is what you get without it")])
    try:
        target = Path(os.path.realpath(path))  # a symbolic link that leads nowhere stands for a new file there
        if target.is_dir():
            raise InputError([Problem("", "cannot be written: it is a folder")], str(path))
        if any(each is not None and target.is_file() and each.is_file() and target.samefile(each) for each in inputs):
            raise InputError([Problem("--output", "must be another file than the one that is read", repr(str(path)))])
        if not target.parent.is_dir():
            raise InputError([Problem("", "cannot be written: its folder does not exist")], str(path))
        if not os.access(path if path.exists() and not path.is_file() else target.parent, os.W_OK):
            raise InputError([Problem("", "cannot be written: permission denied")], str(path))
        target.lstat()  # a name may be too long without being there
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unwritable(str(path), error) from None


def is_standard_output(path: Path) -> bool:
    """Whether *path* and standard output are one file, so that what is written to both gets mixed or lost."""
    try:
        there, here = path.stat(), os.fstat(1)
        return os.path.samestat(there, here) and not os.path.samestat(there, os.stat(os.devnull))
    except OSError:
        return False


def note(text: str) -> None:
    """Write a line to standard error, whatever becomes of it."""
    if sys.stderr is not None:
        try:
            print(printable(text), file=sys.stderr, flush=True)
        except OSError:
            discard(sys.stderr)


def discard(stream: IO[str]) -> None:
    """Let a stream that cannot be written to swallow what is still in its buffer, with which Python's exit would fail.

    Without a descriptor of its own, as in a test, it has no such buffer.
    """
    with contextlib.suppress(OSError, ValueError):
        number = stream.fileno()
        empty = os.open(os.devnull, os.O_WRONLY)
        os.dup2(empty, number)
        os.close(empty)


def _json(document: Any, *, compact: bool, ensure_ascii: bool) -> str:
    layout: dict[str, Any] = {"separators": (",", ":")} if compact else {"indent": 2}
    return json.dumps(document, ensure_ascii=ensure_ascii, allow_nan=False, **layout) + "\n"


def _unwritable(source: str, error: OSError) -> Exception:
    from coplace.instances.errors import InputError, Problem

    return InputError([Problem("", f"cannot be written: {error.strerror or error}")], source)
