"""Files that are replaced whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO

PREFIX = ".coplace-"
"""Beginning of the names of temporary files; short, so that beside a name of any length there is room for one."""


def write_atomically(path: str | os.PathLike[str], write: Callable[[IO[str]], object]) -> None:
    """Let *write* fill a temporary file beside *path*, then rename it to *path*.

    A device or pipe (``/dev/stdout``) is written to directly, since it cannot be replaced.

    Raises:
        OSError: the file cannot be written; nothing is left behind.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        with target.open("w", encoding="utf-8", newline="") as file:
            write(file)
        return

    def fill(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            write(file)

    replace_file(target, fill)


def replace_file(path: str | os.PathLike[str], fill: Callable[[Path], object]) -> None:
    """Let *fill* write a temporary file that is empty and ends like *path*, then rename it to *path*.

    Raises:
        OSError: the file cannot be written; nothing is left behind.
    """
    target = Path(os.path.realpath(path))  # where a symbolic link leads, the link stays
    mode = target.stat().st_mode & 0o7777 if target.exists() else None
    temporary = target.parent / f"{PREFIX}{secrets.token_hex(8)}{target.suffix[:16]}"
    try:
        # The system applies the umask, which could only be asked for by setting it, for all threads.
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600))
        fill(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(mode)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
