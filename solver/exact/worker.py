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
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, TypeGuard

from coplace.formulations.relaxation.rows import PricedRow
from coplace.instances.plan import Plan
from coplace.solver.environment import child_environment
from coplace.solver.exact.task import Bounded, Ended, Event, Found, Priced, Task

if TYPE_CHECKING:
    from coplace.solver.neighbourhoods.repair import Repair

GRACE_SECONDS = 0.5
"""How long after its time limit a child may still answer before it is killed."""

POLL_SECONDS = 0.1

MOST_BYTES = 1 << 30
"""A longer event is none: what was read as its length is something else."""


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

    def solve(self, task: Task | Repair, interrupted: Callable[[], bool]) -> Generator[Event, None, None]:
        """Events of *task* as they come; the last is :class:`Ended`, within the time limit and a grace of a second.

        However this ends, by an exception in the caller too, no child is left that still works on the task.
        """
        deadline = time.monotonic() + task.time_limit + GRACE_SECONDS
        usable = False
        try:
            ended, usable = yield from self._talk(task, deadline, interrupted)
        finally:
            if not usable:
                self.close()
        yield ended

    def _talk(
        self, task: Task | Repair, deadline: float, interrupted: Callable[[], bool]
    ) -> Generator[Event, None, tuple[Ended, bool]]:
        """Events but the last, which is returned with whether the child may be used again.

        The task is written piece by piece beside the reading, so that a child that does not read cannot block us.
        """
        data = memoryview(pickle.dumps(task, protocol=pickle.HIGHEST_PROTOCOL))
        try:
            process = self._running()
        except OSError as error:
            return Ended("failure", f"the solver process cannot be started: {error}"), False
        assert process.stdin is not None
        assert process.stdout is not None
        stream = _Stream(process.stdout.fileno())
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            selector.register(process.stdin, selectors.EVENT_WRITE)
            while True:
                for event in stream.events():
                    if isinstance(event, Ended):
                        return event, event.why in ("done", "time") and not data
                    yield event
                    if time.monotonic() >= deadline:
                        break
                if stream.broken:
                    return Ended("failure", "the solver process wrote what is no answer"), False
                if stream.ended:
                    return _death(process), False
                left = deadline - time.monotonic()
                if interrupted():
                    return Ended("time"), False
                if left <= 0:
                    return Ended("time", "the solver did not stop in time and was killed"), False
                for key, _ in selector.select(min(left, POLL_SECONDS)):
                    if key.fileobj is process.stdout:
                        stream.fill()
                        continue
                    data = _write(process.stdin.fileno(), data)
                    if not data:
                        selector.unregister(process.stdin)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            # A session of its own, so that a terminal's Ctrl-C reaches the parent only, which then decides.
            self._process = subprocess.Popen(
                self._command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=child_environment(),
            )
            assert self._process.stdin is not None
            os.set_blocking(self._process.stdin.fileno(), False)
        return self._process


class _Stream:
    """Whole events out of the bytes that have arrived so far, so that a child that hangs half-way cannot block us.

    Attributes:
        ended: the child has closed its end.
        broken: the bytes are no events.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""
        self.ended = False
        self.broken = False

    def fill(self) -> None:
        """Take what has arrived."""
        chunk = os.read(self._descriptor, 1 << 20)
        self.ended = not chunk
        self._buffer += chunk

    def events(self) -> Iterator[Event]:
        """The events that are complete."""
        while len(self._buffer) >= 8:
            size = int.from_bytes(self._buffer[:8], "little")
            if size > MOST_BYTES:
                self.broken = True
                return
            if len(self._buffer) < 8 + size:
                return
            data, self._buffer = self._buffer[8 : 8 + size], self._buffer[8 + size :]
            try:
                event = pickle.loads(data)
            except Exception:  # bytes that are no pickle raise almost anything
                event = None
            if not _sound(event):
                self.broken = True
                return
            yield event


def _sound(event: object) -> TypeGuard[Event]:
    """Whether *event* is one, with what belongs into it."""
    match event:
        case Found(plan):
            return isinstance(plan, Plan)
        case Bounded(bound):
            return isinstance(bound, float)
        case Priced(rows):
            return isinstance(rows, tuple) and all(isinstance(each, PricedRow) for each in rows)
        case Ended(why, words):
            return why in ("done", "time", "memory", "failure") and isinstance(words, str)
    return False


def _write(descriptor: int, data: memoryview) -> memoryview:
    """Write what the pipe takes; what is left. A child that is gone takes nothing more, and its end says why."""
    try:
        return data[os.write(descriptor, data[: 1 << 16]) :]
    except BlockingIOError:
        return data
    except OSError:
        return data[:0]


def _death(process: subprocess.Popen[bytes]) -> Ended:
    """What the exit code of a child that died says. Solvers abort when an allocation fails."""
    try:
        code = process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        return Ended("failure", "the solver process closed its output before it had answered")
    if code == -signal.SIGABRT:
        return Ended("memory", "the solver process aborted, most likely for lack of memory")
    how = f"by signal {_signal_name(-code)}" if code < 0 else f"with exit code {code}"
    return Ended("failure", f"the solver process ended {how}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return str(number)


def default_memory_mib() -> int:
    """Three quarters of the machine's memory in MiB."""
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 0.75) >> 20
