"""Compiling by numba, and a place for what was compiled."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """*function* as machine code, kept on disk for the next process; it runs without Python's global lock.

    Numba would look only at the file of a function to tell whether its code is still the same, not at those of the
    functions that it calls; hence a place of its own for each version of all files here.
    """
    import numba

    config: Any = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = str(directory())
    try:
        return cast(Function, numba.njit(cache=True, nogil=True, error_model="numpy")(function))
    finally:
        config.CACHE_DIR = before


@cache
def directory() -> Path:
    """Where compiled code of this version is kept: below XDG_CACHE_HOME, or for this process and its children only."""
    from importlib.metadata import version

    digest = hashlib.sha256(f"{version('numba')} {version('numpy')}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(f"{path} {path.stat().st_mtime_ns}".encode() + path.read_bytes())  # numba asks for all of these
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    name = f"kernel-{digest.hexdigest()[:16]}"
    try:
        place = Path(home) / "coplace" / name
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return place
    except OSError:
        own = tempfile.mkdtemp(prefix="coplace-cache-")
        atexit.register(shutil.rmtree, own, ignore_errors=True)
        place = Path(own) / "coplace" / name
        place.mkdir(mode=0o700, parents=True)
        return place
