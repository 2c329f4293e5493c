"""Processes that are held back get the share they should, and always go on in the end."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import psutil
import pytest

from coplace.training.nodes import throttle as module
from coplace.training.nodes.throttle import CgroupThrottle, DutyCycle, Throttle, Unavailable, pause, throttle

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs signals of POSIX")

Start = Callable[[str], psutil.Process]
BUSY = "while True: sum(range(1000))"


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python programs that run once this returns; they are killed in the end."""
    children: list[subprocess.Popen[bytes]] = []

    def begin(program: str) -> psutil.Process:
        child = subprocess.Popen([sys.executable, "-c", f"print(flush=True)\n{program}"], stdout=subprocess.PIPE)
        children.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return psutil.Process(child.pid)

    yield begin
    for child in children:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def opened(pids: list[int], share: float, how: Literal["cgroup", "duty"]) -> Throttle:
    try:
        return throttle(pids, share, how)
    except Unavailable as reason:
        pytest.skip(f"no control groups here: {reason}")


def cores(processes: list[psutil.Process], seconds: float) -> float:
    """Processor time that *processes* use per second."""

    def used() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    begun, before = time.monotonic(), used()
    time.sleep(seconds)
    return (used() - before) / (time.monotonic() - begun)


def stopped(process: psutil.Process) -> bool:
    return bool(process.status() == psutil.STATUS_STOPPED)


def soon(holds: Callable[[], bool]) -> bool:
    """Whether *holds* comes true; signals take a moment, and a busy machine more."""
    deadline = time.monotonic() + 10
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


@pytest.mark.parametrize("how", ["cgroup", "duty"])
def test_two_busy_processes_together_get_their_share(start: Start, how: Literal["cgroup", "duty"]) -> None:
    processes = [start(BUSY), start(BUSY)]
    with opened([process.pid for process in processes], 0.2, how) as held:
        assert held.share == 0.2
        assert 0.05 < cores(processes, 0.8) < 0.35
    assert soon(lambda: not any(stopped(process) for process in processes))
    assert any(cores(processes, 0.4) > 0.4 for _ in range(10))


@pytest.mark.parametrize("how", ["cgroup", "duty"])
def test_waiting_earns_no_credit(start: Start, how: Literal["cgroup", "duty"]) -> None:
    process = start("import time\ntime.sleep(0.6)\n" + BUSY)
    with opened([process.pid], 0.2, how):
        time.sleep(0.6)
        assert cores([process], 0.4) < 0.35


@pytest.mark.parametrize("how", ["cgroup", "duty"])
def test_a_process_may_end_or_come_while_others_are_held_back(start: Start, how: Literal["cgroup", "duty"]) -> None:
    brief, late = start("import time; time.sleep(0.1)"), start(BUSY)
    with opened([brief.pid, 2**22 + 1], 0.2, how) as held:
        time.sleep(0.2)
        held.add(late.pid)
        held.add(brief.pid)
        assert cores([late], 0.4) < 0.35
        late.kill()
        time.sleep(0.1)
    held.close()


def test_a_closed_control_group_is_gone_and_children_are_back(start: Start) -> None:
    process = start("import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])")
    home = Path(f"/proc/{process.pid}/cgroup").read_text(encoding="utf-8")
    held = opened([process.pid], 0.5, "cgroup")
    assert isinstance(held, CgroupThrottle)
    group = held._group
    assert group is not None
    assert soon(lambda: bool(process.children()))
    children = process.children()
    held.close()
    assert not group.exists()
    for each in (process, *children):
        assert Path(f"/proc/{each.pid}/cgroup").read_text(encoding="utf-8") == home
    for child in children:
        child.kill()


def test_without_control_groups_signals_serve(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: int) -> Path:
        raise Unavailable("none here")

    monkeypatch.setattr(module, "_group_of", none)
    with throttle([start(BUSY).pid], 0.5) as held:
        assert isinstance(held, DutyCycle)
    with pytest.raises(Unavailable, match="none here"):
        throttle([start(BUSY).pid], 0.5, "cgroup")


def test_a_whole_core_is_not_held_back_and_less_than_none_is_refused(start: Start) -> None:
    process = start(BUSY)
    with throttle([process.pid], 1.0, "duty"), throttle([process.pid], 1.0):
        assert not any(stopped(process) or time.sleep(0.002) for _ in range(50))
    with pytest.raises(ValueError, match="not above 0"):
        throttle([process.pid], 0.0)


def test_a_pause_lasts_whatever_else_holds_the_process_back(start: Start) -> None:
    process = start(BUSY)
    with throttle([process.pid], 0.5, "duty"):
        held = pause(process.pid, 60)
        assert cores([process], 0.3) < 0.05
        assert stopped(process)
        held.close()
        held.close()
        assert any(cores([process], 0.3) > 0.1 for _ in range(10))
    pause(process.pid, 0.3)
    assert soon(lambda: stopped(process))
    assert soon(lambda: not stopped(process))
    pause(2**22 + 1, 1).close()


def test_a_program_that_ends_without_closing_leaves_processes_running(start: Start) -> None:
    process = start(BUSY)
    program = f"""
import time
from coplace.training.nodes.throttle import pause, throttle
held = throttle([{process.pid}], 0.05, "duty"), pause({process.pid}, 60)
time.sleep(0.1)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
    assert soon(lambda: not stopped(process))


def test_both_versions_of_control_groups_are_given_the_quota(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "old").mkdir()
    (tmp_path / "new" / "cpu.max").touch()
    held = CgroupThrottle([], 1.0)
    held.share = 0.02
    held._limit(tmp_path / "new")
    assert (tmp_path / "new" / "cpu.max").read_text() == "1000 50000"
    held.share = 0.5
    held._limit(tmp_path / "old")
    assert (tmp_path / "old" / "cpu.cfs_quota_us").read_text() == "10000"
    assert (tmp_path / "old" / "cpu.cfs_period_us").read_text() == "20000"
