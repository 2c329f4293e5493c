"""One line on the terminal that says how far a solve has come, and goes when it ends."""

from __future__ import annotations

import os
import sys
import time


class Progress:
    """Shows the state of a solve on standard error if that is a terminal, and nothing otherwise."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._shown = False
        self._visible = sys.stderr is not None and sys.stderr.isatty()

    def rung(self, rung: str, objective: float) -> None:
        """Say what the best plan is worth after *rung*."""
        elapsed = time.monotonic() - self._started
        self.show(
            f"{rung} done after {elapsed:.1f} s, objective {objective:.6g}; Ctrl-C ends with the best plan so far"
        )

    def stopping(self) -> None:
        """Say that a request to stop has been heard."""
        self.show("stopping with the best plan so far; Ctrl-C again gives it up")

    def show(self, text: str) -> None:
        """Replace the line; safe in a signal handler, since it goes past Python's buffers."""
        if self._visible:
            self._write(f"\r\x1b[K{text}")
            self._shown = bool(text)

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            self.show("")

    def _write(self, text: str) -> None:
        try:
            os.write(sys.stderr.fileno(), text.encode("ascii", "replace"))
        except (OSError, ValueError):
            self._visible = False
