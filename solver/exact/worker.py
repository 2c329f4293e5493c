"""The parent's side: starts the child, hands it tasks, listens until the deadline, and kills it where it must."""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from coplace.solver.exact.task import Ended, Event, Task

GRACE_SECONDS = 0.5
"""How long after its time limit a child may still answer before it is killed."""

POLL_SECONDS = 0.1


class Worker:
    """A child process that solves tasks one after the other, kept alive between them.

    Use as a context manager, or call :meth:`close`. A child that is killed or dies is replaced at the next task.
    """

    def __init__(self, *, memory_mib: int | None = None, command: Sequence[str] | None = None) -> None:
        """Start no process yet.

        Args:
            memory_mib: limit of the child's address space; by default three quarters of the machine's memory, 0 = none.
            command: how to start a child, for tests; by default this package's own.
        """
        limit = default_memory_mib() if memory_mib is None else memory_mib
        self._command = list(command or (sys.executable, "-m", "coplace.solver.exact.child", str(limit)))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child, if there is one."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            self._process.wait()
            self._process = None

    def solve(self, task: Task, interrupted: Callable[[], bool]) -> Iterator[Event]:
        """Events of *task* as they come; the last is :class:`Ended`, within the time limit and a grace of a second."""
        deadline = time.monotonic() + task.time_limit + GRACE_SECONDS
        try:
            process = self._running()
            assert process.stdin is not None
            pickle.dump(task, process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
            process.stdin.flush()
        except OSError as error:
            self.close()
            yield Ended("failure", f"the solver process cannot be started: {error}")
            return
        yield from self._listen(process, deadline, interrupted)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            # A session of its own, so that a terminal's Ctrl-C reaches the parent only, which then decides.
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=_environment(),
            )
        return self._process

    def _listen(
        self, process: subprocess.Popen[bytes], deadline: float, interrupted: Callable[[], bool]
    ) -> Iterator[Event]:
        assert process.stdout is not None
        stream = _Stream(process.stdout.fileno())
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                left = deadline - time.monotonic()
                if left <= 0 or interrupted():
                    self.close()
                    yield Ended("time", "" if interrupted() else "the solver did not stop in time and was killed")
                    return
                if not selector.select(min(left, POLL_SECONDS)):
                    continue
                for event in stream.read():
                    yield event
                    if isinstance(event, Ended):
                        return
                if stream.ended:
                    code = process.wait()
                    self.close()
                    yield _death(code)
                    return


class _Stream:
    """Whole pickles out of the bytes that have arrived so far, so that a child that hangs half-way cannot block us."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""
        self.ended = False

    def read(self) -> Iterator[Event]:
        chunk = os.read(self._descriptor, 1 << 20)
        self.ended = not chunk
        self._buffer += chunk
        while self._buffer:
            size = int.from_bytes(self._buffer[:8], "little")
            if len(self._buffer) < 8 + size:
                return
            yield pickle.loads(self._buffer[8 : 8 + size])
            self._buffer = self._buffer[8 + size :]


def _death(code: int) -> Ended:
    """What the exit code of a child that died says. Solvers abort when an allocation fails."""
    if code == -signal.SIGABRT:
        return Ended("memory", "the solver process aborted, most likely for lack of memory")
    how = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return Ended("failure", f"the solver process ended {how}")


def default_memory_mib() -> int:
    """Three quarters of the machine's memory in MiB."""
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 0.75) >> 20


def _environment() -> dict[str, str]:
    """The child imports the very package that runs here, wherever the parent was started."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(sys.modules["coplace"].__file__ or "")))
    path = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": root if not path else f"{root}{os.pathsep}{path}"}
