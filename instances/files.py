"""Files that are replaced whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO


def write_atomically(path: str | os.PathLike[str], write: Callable[[IO[str]], None]) -> None:
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
    target = Path(os.path.realpath(target))
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~umask)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
