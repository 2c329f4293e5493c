"""Ctrl-C and termination: at first they end the command at once, later they ask it to finish with what it has."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

TERMINATION = (signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
"""What ends a command from outside: a request to terminate, and the terminal that went away."""

_SIGNALS = (signal.SIGINT, *TERMINATION)


def end_on_termination() -> None:
    """Let these signals end the command as Ctrl-C does, so that it clears up behind itself; the first one only.

    What the shell has told us to ignore (``nohup``) stays ignored.
    """
    for number in TERMINATION:
        if signal.getsignal(number) is not signal.SIG_IGN:
            with contextlib.suppress(ValueError):  # not the main thread, which alone receives signals
                signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    for each in TERMINATION:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


class Interrupts:
    """Signals between ``with`` and its end.

    Until :meth:`defer` each raises ``KeyboardInterrupt``, since there is nothing to lose yet. After it the first one
    sets :attr:`requested`; a further Ctrl-C raises ``KeyboardInterrupt``, a further SIGTERM or SIGHUP changes nothing.

    Attributes:
        requested: whether somebody asked to stop.
    """

    def __init__(self, on_request: Callable[[], None] = lambda: None) -> None:
        """*on_request* is called from the signal handler when the first request comes; it must be short."""
        self.requested = False
        self._on_request = on_request
        self._deferring = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in _SIGNALS:
            # What the shell has told us to ignore (a job in the background) stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                with contextlib.suppress(ValueError):  # not the main thread, which alone receives signals
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __call__(self) -> bool:
        """Whether somebody asked to stop."""
        return self.requested

    def defer(self) -> None:
        """From now on let the first signal only ask."""
        self._deferring = True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._deferring or (self.requested and number == signal.SIGINT):
            raise KeyboardInterrupt
        if not self.requested:
            self.requested = True
            self._on_request()
