"""How long things take, in seconds of CPU time.

CPU time, of the process and all its threads and children, is what a busy machine distorts least. It still depends on
the number of cores (libraries start a thread per core): pin to one core to compare machines, ``taskset -c 0 python -m
benchmarks core``.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

Result = TypeVar("Result")


class MeasurementError(Exception):
    """What was to be measured has failed."""


def cpu_of_call(call: Callable[[], Result], repeats: int = 3) -> tuple[float, Result]:
    """Median CPU time of *call* over *repeats* calls, and what the last one returned."""
    seconds = []
    for _ in range(repeats):
        start = _own_cpu()
        result = call()
        seconds.append(_own_cpu() - start)
    return statistics.median(seconds), result


def cpu_of_command(command: Sequence[str], repeats: int = 5) -> float:
    """Median CPU time of *command* over *repeats* runs, its children included, its output dropped.

    Raises:
        MeasurementError: the command ended with an exit code other than 0; says what it wrote last.
    """
    return statistics.median(_cpu_of_run(command) for _ in range(repeats))


def _own_cpu() -> float:
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def _cpu_of_run(command: Sequence[str]) -> float:
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines() or ["it wrote no error"]
            program = os.path.basename(command[0])
            raise MeasurementError(f"{program} ended with exit code {process.returncode}: {lines[-1]}")
    return usage.ru_utime + usage.ru_stime
