"""Stragglers on purpose: real processes that get less of the processor than they ask for.

Two ways lead there, and the system decides which is open. A control group has the kernel hold the processes back; that
needs a writable group. Stopping and continuing the processes by signals works everywhere on POSIX.
"""

from __future__ import annotations

import abc
import atexit
import contextlib
import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import psutil

_LOG = logging.getLogger(__name__)

PERIOD = 0.02
"""Seconds in which the share is kept: short beside a step of training, long beside a switch of processes."""

_LEAST_QUOTA = 0.001
"""Seconds of processor time that the kernel grants a control group per period, at least."""

_PREFIX = "coplace-throttle-"
_COUNT = os.cpu_count() or 1


class Unavailable(Exception):
    """The processes cannot be held back in this way here."""


def throttle(pids: Iterable[int], share: float, how: Literal["auto", "cgroup", "duty"] = "auto") -> Throttle:
    """Hold the processes *pids* to *share* cores, all of them and all their threads together, until it is closed.

    Args:
        pids: processes of this user. With a control group, processes that they start from now on count too.
        share: cores above 0; from as many as the machine has on nothing is held back.
        how: ``auto`` takes a control group where one can be made, and signals elsewhere.

    Raises:
        Unavailable: a control group was asked for and cannot be made.
        ValueError: *share* is not above 0.
    """
    chosen = list(pids)
    if how == "duty":
        return DutyCycle(chosen, share)
    try:
        return CgroupThrottle(chosen, share)
    except Unavailable as reason:
        if how == "cgroup":
            raise
        _LOG.debug("no control group, so by signals: %s", reason)
        return DutyCycle(chosen, share)


def pause(pid: int, seconds: float) -> Pause:
    """Stop the process *pid* for so many seconds, or until the pause is closed; returns at once."""
    return Pause(pid, seconds)


class Throttle(abc.ABC):
    """Processes that are held back until :meth:`close`, also by the end of a ``with`` block.

    Attributes:
        share: cores that they may use together.
    """

    def __init__(self, share: float) -> None:
        if not share > 0:
            raise ValueError(f"a share of {share} cores is not above 0")
        self.share = share

    @abc.abstractmethod
    def add(self, pid: int) -> None:
        """Hold back one more process; one that has ended is ignored.

        Raises:
            Unavailable: this process may not hold it back.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Let all processes run as before; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class DutyCycle(Throttle):
    """Stops and continues processes by signals, by a bucket of processor time.

    The bucket fills with *share* seconds per second, up to one period's worth, so that waiting earns no credit, and
    empties by the processor time that the processes have used. Empty, they are stopped until it is full again. What
    they used too much before the signal came is owed, so that the mean is right even where this process is late.

    If the calling process is killed by SIGKILL, the processes may stay stopped; at any other end they go on.
    """

    def __init__(self, pids: Iterable[int], share: float) -> None:
        super().__init__(share)
        self._lock = threading.Lock()
        self._processes: dict[int, _Process] = {}
        self._end = threading.Event()
        for pid in pids:
            self.add(pid)
        self._thread = threading.Thread(target=self._run, name="throttle", daemon=True)
        if share < _COUNT:
            atexit.register(self.close)
            self._thread.start()

    def add(self, pid: int) -> None:
        """Hold back one more process; one that has ended is ignored."""
        process = _Process(pid)
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        except PermissionError as error:
            raise Unavailable(f"process {pid} cannot be stopped: {error.strerror}") from None
        with self._lock:
            if pid not in self._processes and process.alive():
                self._processes[pid] = process

    def close(self) -> None:
        """Let all processes run as before; a second call does nothing."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        atexit.unregister(self.close)

    def _run(self) -> None:
        full = self.share * PERIOD
        credit = full
        stopped: list[_Process] = []
        before = look = time.monotonic()
        processes: list[_Process] = []
        try:
            while True:
                # Several threads may empty the bucket at once; what is stopped waits until it must be full again.
                wait = (full - credit) / self.share if stopped else credit / max(1.0, _COUNT - self.share)
                if self._end.wait(max(wait, 0.001) if processes else PERIOD):
                    return
                now = time.monotonic()
                if now >= look:
                    self._forget_dead()
                    look = now + 1
                with self._lock:
                    processes = list(self._processes.values())
                used = sum(process.used() for process in processes)
                credit = min(full, credit + self.share * (now - before) - used)
                before = now
                if stopped and credit >= full * 0.99:
                    _release(stopped)
                    stopped = []
                elif not stopped and credit <= 0:
                    stopped = [process for process in processes if process.hold()]
        finally:
            _release(stopped)

    def _forget_dead(self) -> None:
        with self._lock:
            self._processes = {pid: process for pid, process in self._processes.items() if process.alive()}


class Pause:
    """A process that is stopped for a while; what else holds it back does not let it go meanwhile."""

    def __init__(self, pid: int, seconds: float) -> None:
        self._process = _Process(pid)
        self._held = self._process.hold()
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self.close)
        self._timer.daemon = True
        if self._held:
            atexit.register(self.close)
            self._timer.start()

    def close(self) -> None:
        """Let the process go on; a second call does nothing."""
        self._timer.cancel()
        with self._lock:
            held, self._held = self._held, False
        if held:
            self._process.release()
            atexit.unregister(self.close)


class _Process:
    """A process that several may hold stopped; it goes on when the last of them lets go."""

    _holders: dict[int, int] = {}
    _lock = threading.Lock()

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._born = _birth(pid)
        self._clock = self._read() or 0.0

    def alive(self) -> bool:
        return self._born is not None and _birth(self.pid) == self._born  # the number may have gone to another process

    def used(self) -> float:
        """Seconds of processor time of all threads since the last call."""
        clock = self._read()
        if clock is None:
            return 0.0
        used, self._clock = max(0.0, clock - self._clock), clock
        return used

    def hold(self) -> bool:
        with _Process._lock:
            if not self.alive() or not self._signal(signal.SIGSTOP):
                return False
            _Process._holders[self.pid] = _Process._holders.get(self.pid, 0) + 1
            return True

    def release(self) -> None:
        with _Process._lock:
            left = _Process._holders.pop(self.pid, 1) - 1
            if left:
                _Process._holders[self.pid] = left
            elif self.alive():
                self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> bool:
        try:
            os.kill(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _read(self) -> float | None:
        try:
            if sys.platform == "linux":  # the CPU-time clock of another process: clock_getcpuclockid(3)
                return time.clock_gettime((~self.pid) << 3 | 2)
            times = psutil.Process(self.pid).cpu_times()
            return float(times.user + times.system)
        except (OSError, psutil.Error):
            return None


def _birth(pid: int) -> float | None:
    """When the process began, by which it differs from a later one of its number; None if it has ended."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


def _release(processes: Iterable[_Process]) -> None:
    for process in processes:
        process.release()


class CgroupThrottle(Throttle):
    """Has the kernel hold processes back, in a control group of their own below the one they were in.

    Both versions of control groups will do (``cpu.max`` or ``cpu.cfs_quota_us``: the kernel's documentation of the CFS
    bandwidth controller). Processes that they start belong to it too. On closing they return to where they were,
    and the group is removed. If the calling process is killed by SIGKILL, the group stays until its processes have
    ended and another one is made beside it.

    Raises:
        Unavailable: there is no group that this process may write.
    """

    def __init__(self, pids: Iterable[int], share: float) -> None:
        super().__init__(share)
        self._above: Path | None = None
        self._group: Path | None = None
        self._origins: dict[int, Path] = {}
        alive = [pid for pid in pids if _birth(pid) is not None]
        if share >= _COUNT:
            return
        self._above = _group_of(alive[0] if alive else os.getpid())
        _remove_leftovers(self._above)
        group = self._above / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        try:
            group.mkdir()
        except OSError as error:
            raise Unavailable(f"{group} cannot be made: {error.strerror}") from None
        self._group = group
        try:
            self._limit(group)
            for pid in alive:
                self.add(pid)
        except (OSError, Unavailable) as error:
            self.close()
            raise Unavailable(f"{group} cannot be used: {error}") from None
        atexit.register(self.close)

    def add(self, pid: int) -> None:
        """Hold back one more process; one that has ended is ignored."""
        if self._group is None:
            return
        try:
            self._origins[pid] = _group_of(pid)
            (self._group / "cgroup.procs").write_text(str(pid))
        except ProcessLookupError:
            return
        except OSError as error:
            raise Unavailable(f"process {pid} cannot be moved to {self._group}: {error.strerror}") from None

    def close(self) -> None:
        """Let all processes run as before; a second call does nothing."""
        group, self._group = self._group, None
        if group is None or self._above is None:
            return
        atexit.unregister(self.close)
        for attempt in range(50):  # a process may fork while others are moved
            try:
                for pid in (group / "cgroup.procs").read_text(encoding="utf-8").split():
                    with contextlib.suppress(ProcessLookupError):
                        (self._origins.get(int(pid), self._above) / "cgroup.procs").write_text(pid)
                group.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.001 * attempt)
            else:
                return
        _LOG.warning("the control group %s cannot be removed", group)

    def _limit(self, group: Path) -> None:
        period = min(1.0, max(PERIOD, _LEAST_QUOTA / self.share))
        quota = max(self.share * period, _LEAST_QUOTA)
        microseconds = round(period * 1e6), round(quota * 1e6)
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text(f"{microseconds[1]} {microseconds[0]}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(microseconds[0]))
            (group / "cpu.cfs_quota_us").write_text(str(microseconds[1]))


def _group_of(pid: int) -> Path:
    """Folder of the control group of *pid* that has a ``cpu`` controller, of either version."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
        groups = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise Unavailable(f"control groups are unknown here: {error.strerror}") from None
    paths = {name: path for _, names, path in groups for name in names.split(",")}
    for _, folder, kind, options, *_ in mounts:
        if kind == "cgroup" and "cpu" in options.split(",") and "cpu" in paths:
            group, works = Path(folder) / paths["cpu"].lstrip("/"), "cpu.cfs_quota_us"
        elif kind == "cgroup2" and "" in paths:
            group, works = Path(folder) / paths[""].lstrip("/"), "cgroup.subtree_control"
        else:
            continue
        with contextlib.suppress(OSError):
            if works == "cpu.cfs_quota_us" or "cpu" in (group / works).read_text(encoding="utf-8").split():
                return group
    raise Unavailable("no control group with a cpu controller lies above the processes")


def _remove_leftovers(above: Path) -> None:
    """Remove empty groups of processes that were killed before they could."""
    for group in above.glob(f"{_PREFIX}*"):
        owner = group.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdecimal() and not psutil.pid_exists(int(owner)):
            with contextlib.suppress(OSError):  # not empty yet
                group.rmdir()
