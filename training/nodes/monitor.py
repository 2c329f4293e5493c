"""What a node and the tasks on it are doing: one sample after another, each cheap enough for every second."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil

from coplace.instances.errors import InputError, Problem, shorten

MIB = 1024.0 * 1024.0


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One process.

    Attributes:
        pid: its number on the node.
        rss_mib: resident set, in MiB.
        threads: its threads.
        cores: cores it used since the last sample; None in its first.
        smooth_cores, smooth_rss_mib: the same, smoothed.
    """

    pid: int
    rss_mib: float
    threads: int
    cores: float | None
    smooth_cores: float | None
    smooth_rss_mib: float


@dataclass(frozen=True, slots=True)
class NodeSample:
    """One node, and the processes asked for. Rates are since the last sample and None in the first.

    Attributes:
        seconds: time since the last sample; 0 in the first.
        cpu_count: logical cores of the host.
        grant_cores: cores that this process may use: the least of the host's, its affinity and the quotas of its
            control groups.
        busy_cores: cores that the whole host has busy, what the hypervisor takes included; None also where the host
            does not tell.
        free_cores: cores that the own tasks could have: idle ones and those they use already, at most the grant; all of
            the grant where the host does not tell.
        load_average: over 1, 5 and 15 minutes.
        memory_total_mib, memory_available_mib: of the host, in MiB.
        sent_mib_s, received_mib_s: MiB/s over the node's network, loopback excluded.
        smooth_busy_cores, smooth_free_cores, smooth_memory_available_mib, smooth_sent_mib_s, smooth_received_mib_s:
            the same, smoothed.
        processes: by name, those that are still there.
    """

    seconds: float
    cpu_count: int
    grant_cores: float
    busy_cores: float | None
    free_cores: float | None
    load_average: tuple[float, float, float]
    memory_total_mib: float
    memory_available_mib: float
    sent_mib_s: float | None
    received_mib_s: float | None
    smooth_busy_cores: float | None
    smooth_free_cores: float | None
    smooth_memory_available_mib: float
    smooth_sent_mib_s: float | None
    smooth_received_mib_s: float | None
    processes: Mapping[str, ProcessSample] = field(default_factory=dict)

    def to_document(self) -> dict[str, Any]:
        """The sample as JSON has it."""
        document = dataclasses.asdict(self)
        document["load_average"] = list(self.load_average)
        return document

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """The sample that :meth:`to_document` gave.

        Raises:
            InputError: a field is missing, unknown or of the wrong type.
        """
        values = _checked(document, cls, "")
        load = values["load_average"]
        if not (isinstance(load, list) and len(load) == 3 and all(_is_number(value) for value in load)):
            raise InputError([Problem("load_average", "must be three numbers", shorten(load))])
        processes = values["processes"]
        if not isinstance(processes, dict):
            raise InputError([Problem("processes", "must be a mapping", shorten(processes))])
        values["load_average"] = tuple(load)
        values["processes"] = {
            name: ProcessSample(**_checked(process, ProcessSample, f"processes.{name}"))
            for name, process in processes.items()
        }
        return cls(**values)


@dataclass(frozen=True, slots=True)
class HostCounters:
    """What the host has counted since it started: CPU seconds in all and idle, MiB sent and received."""

    cpu_seconds: float
    idle_seconds: float
    mib_sent: float
    mib_received: float


class NodeMonitor:
    """Samples the node it runs on.

    Args:
        smoothing_seconds: time constant of the smoothing; a value that jumps has come 63 % of the way after so long,
            however often samples are taken.
        clock: monotonic seconds, for tests.
        counters: the host's counters, for tests.
        grant: cores that this process may use, for tests.
    """

    def __init__(
        self,
        smoothing_seconds: float = 5.0,
        *,
        clock: Callable[[], float] = time.monotonic,
        counters: Callable[[], HostCounters] | None = None,
        grant: Callable[[], float] | None = None,
    ) -> None:
        if not smoothing_seconds > 0:
            raise ValueError("smoothing_seconds must be above 0")
        self._tau = smoothing_seconds
        self._clock = clock
        self._counters = counters or read_counters
        self._grant = grant or CoreGrant().cores
        self._cpu_count = os.cpu_count() or 1
        self._at: float | None = None
        self._last: HostCounters | None = None
        self._smooth: dict[str, float] = {}
        self._processes: dict[str, tuple[psutil.Process, float, ProcessSample]] = {}

    def sample(self, pids: Mapping[str, int]) -> NodeSample:
        """What the node and the processes *pids* (name to process id) do now.

        Processes that are gone, or are left as zombies, are left out. What their children do counts as the host's.
        """
        now = self._clock()
        elapsed = 0.0 if self._at is None else max(0.0, now - self._at)
        counters = self._counters()
        processes = self._sample_processes(pids, elapsed)
        busy = sent = received = None
        if self._last is not None and elapsed > 0:
            busy = self._busy(self._last, counters)
            sent = max(0.0, counters.mib_sent - self._last.mib_sent) / elapsed
            received = max(0.0, counters.mib_received - self._last.mib_received) / elapsed
        grant = self._grant()
        free = None
        if elapsed > 0:
            own = sum(process.cores or 0.0 for process in processes.values())
            idle = self._cpu_count - busy if busy is not None else grant
            free = min(grant, idle + own)
        memory = psutil.virtual_memory()
        available = memory.available / MIB
        self._at, self._last = now, counters
        return NodeSample(
            seconds=elapsed,
            cpu_count=self._cpu_count,
            grant_cores=grant,
            busy_cores=busy,
            free_cores=free,
            load_average=psutil.getloadavg(),
            memory_total_mib=memory.total / MIB,
            memory_available_mib=available,
            sent_mib_s=sent,
            received_mib_s=received,
            smooth_busy_cores=self._smoothed("busy", busy, elapsed),
            smooth_free_cores=self._smoothed("free", free, elapsed),
            smooth_memory_available_mib=self._smoothed("available", available, elapsed) or 0.0,
            smooth_sent_mib_s=self._smoothed("sent", sent, elapsed),
            smooth_received_mib_s=self._smoothed("received", received, elapsed),
            processes=processes,
        )

    def _busy(self, before: HostCounters, after: HostCounters) -> float | None:
        """Busy cores between two readings, None if the host does not count.

        Relative to the time that was counted, since the counters advance in ticks of 10 ms and the clock does not.
        """
        counted = after.cpu_seconds - before.cpu_seconds
        if counted <= 0:
            return None
        idle = min(max(after.idle_seconds - before.idle_seconds, 0.0), counted)
        return self._cpu_count * (1 - idle / counted)

    def _sample_processes(self, pids: Mapping[str, int], elapsed: float) -> dict[str, ProcessSample]:
        known, self._processes = self._processes, {}
        samples = {}
        for name, pid in pids.items():
            before = known.get(name)
            try:
                if before is None or before[0].pid != pid or not before[0].is_running():
                    before, process = None, psutil.Process(pid)
                else:
                    process = before[0]
                with process.oneshot():
                    if process.status() == psutil.STATUS_ZOMBIE:
                        continue
                    times = process.cpu_times()
                    rss = process.memory_info().rss / MIB
                    threads = process.num_threads()
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            used = times.user + times.system
            cores = smooth_cores = None
            smooth_rss = rss
            if before is not None:
                last = before[2]
                weight = self._weight(elapsed)
                smooth_rss = last.smooth_rss_mib + weight * (rss - last.smooth_rss_mib)
                smooth_cores = last.smooth_cores
                if elapsed > 0:
                    cores = max(0.0, used - before[1]) / elapsed
                    smooth_cores = cores if smooth_cores is None else smooth_cores + weight * (cores - smooth_cores)
            samples[name] = ProcessSample(pid, rss, threads, cores, smooth_cores, smooth_rss)
            self._processes[name] = (process, used, samples[name])
        return samples

    def _weight(self, elapsed: float) -> float:
        """Weight of a new value after *elapsed* seconds: that of a first-order low pass, for any spacing."""
        return 1 - math.exp(-elapsed / self._tau)

    def _smoothed(self, name: str, value: float | None, elapsed: float) -> float | None:
        before = self._smooth.get(name)
        if value is None:
            return before
        smooth = value if before is None else before + self._weight(elapsed) * (value - before)
        self._smooth[name] = smooth
        return smooth


def read_counters() -> HostCounters:
    """The counters of this host.

    Waiting for a disk counts as idle; what a hypervisor gives to others counts as busy. Of the network, only hardware
    counts if there is any: what goes through a bridge to a container would count twice.
    """
    times = psutil.cpu_times()
    parts = times._asdict()
    # guest time is contained in user time, see proc(5)
    total = sum(value for name, value in parts.items() if not name.startswith("guest"))
    interfaces = {name: io for name, io in psutil.net_io_counters(pernic=True).items() if name != "lo"}
    hardware = [io for name, io in interfaces.items() if os.path.exists(f"/sys/class/net/{name}/device")]
    counted = hardware or list(interfaces.values())
    return HostCounters(
        cpu_seconds=total,
        idle_seconds=times.idle + parts.get("iowait", 0.0),
        mib_sent=sum(io.bytes_sent for io in counted) / MIB,
        mib_received=sum(io.bytes_recv for io in counted) / MIB,
    )


class CoreGrant:
    """How many cores this process may use, by affinity and control groups.

    Args:
        root: where the file systems are mounted, for tests.
    """

    def __init__(self, root: str | os.PathLike[str] = "/") -> None:
        self._quotas = _quota_files(Path(root))

    def cores(self) -> float:
        """The least of the cores of the host, the affinity, and each quota from the own group up to the root."""
        try:
            cores = float(len(os.sched_getaffinity(0)))
        except (AttributeError, OSError):  # no Linux
            cores = float(os.cpu_count() or 1)
        for quota, period in self._quotas:
            cores = min(cores, _quota(quota, period))
        return cores


def _quota_files(root: Path) -> list[tuple[Path, Path | None]]:
    """Files of quotas that bind this process: (cpu.max, None) of version 2, (quota, period) of version 1."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    mounts = root / "sys/fs/cgroup"
    files: list[tuple[Path, Path | None]] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            for mount in (mounts, mounts / "unified"):
                files += [(folder / "cpu.max", None) for folder in _up(mount, path)]
        elif "cpu" in controllers.split(","):
            for mount in dict.fromkeys((mounts / controllers, mounts / "cpu")):
                files += [(folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us") for folder in _up(mount, path)]
    return [(quota, period) for quota, period in files if quota.exists()]


def _up(mount: Path, path: str) -> list[Path]:
    """Folders from the group *path* up to *mount*; those that a container does not see turn out missing."""
    parts = [part for part in path.split("/") if part and part != ".."]
    return [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def _quota(quota: Path, period: Path | None) -> float:
    """Cores that one control group may use; infinite if it sets no limit or is gone.

    Linux, Documentation/admin-guide/cgroup-v2.rst, cpu.max; Documentation/scheduler/sched-bwc.rst for version 1.
    """
    try:
        cells = quota.read_text(encoding="ascii").split()
        if period is not None:
            cells += period.read_text(encoding="ascii").split()
        microseconds, of = (math.inf if cell in ("max", "-1") else float(cell) for cell in cells)
    except (OSError, ValueError):
        return math.inf
    return microseconds / of if of > 0 else math.inf


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _checked(document: Any, kind: type[Any], place: str) -> dict[str, Any]:
    """The fields of *kind* in *document*: all there, no other, numbers where numbers stand."""
    if not isinstance(document, dict):
        raise InputError([Problem(place, "must be a mapping", shorten(document))])
    prefix = f"{place}." if place else ""
    names = {spec.name: str(spec.type) for spec in dataclasses.fields(kind)}
    problems = [Problem(f"{prefix}{name}", "is missing") for name in names if name not in document]
    problems += [Problem(f"{prefix}{name}", "is not known") for name in document if name not in names]
    for name, hint in names.items():
        if name in document and hint.startswith(("int", "float")):
            value = document[name]
            fits = (value is None and "None" in hint) or (
                _is_number(value) and (not hint.startswith("int") or isinstance(value, int))
            )
            if not fits:
                noun = "a whole number" if hint.startswith("int") else "a number"
                problems.append(Problem(f"{prefix}{name}", f"must be {noun}", shorten(value)))
    if problems:
        raise InputError(problems)
    return dict(document)
