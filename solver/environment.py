"""The environment of processes that a solve starts."""

from __future__ import annotations

import os
import sys


def child_environment() -> dict[str, str]:
    """In which a child imports the very package that runs here, wherever the parent was started."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(sys.modules["coplace"].__file__ or "")))
    path = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": root if not path else f"{root}{os.pathsep}{path}"}
