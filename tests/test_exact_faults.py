"""Whatever a solver process does, the parent comes back in time with a checked plan, and leaves nothing behind."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import coplace
from coplace.formulations.columns import column_set
from coplace.instances import Instance, Plan
from coplace.instances.generation import generate
from coplace.solver import check, solve
from coplace.solver.exact import worker as worker_module
from coplace.solver.exact.task import Ended, Task
from coplace.solver.exact.worker import Worker
from coplace.solver.result import Result

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes through /proc")

ROOT = Path(next(iter(coplace.__path__))).parent

FAKE = """
import os, pickle, signal, sys, time
from coplace.formulations.relaxation import PricedRow, Row
from coplace.instances import Allocation, Plan
from coplace.solver.exact.task import Bounded, Ended, Found, Priced, Task

def say(event):
    raw(pickle.dumps(event))

def raw(data):
    write(len(data).to_bytes(8, "little") + data)

def write(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()

open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
task = pickle.load(sys.stdin.buffer)
"""
"""The head of a child that speaks the protocol; it notes its process in a file."""


def small() -> Instance:
    """One that solvers need less than a second for."""
    return generate("ps-mix", nodes=3, jobs=5, seed=4)


@cache
def greedy() -> Result:
    return solve(small(), method="greedy")


@cache
def best() -> Result:
    return solve(small(), method="cpsat", time_limit=60)


class Fake:
    """A child by script.

    Attributes:
        worker: that starts it.
    """

    def __init__(self, folder: Path, script: str) -> None:
        path = folder / "child.py"
        path.write_text(FAKE + script, encoding="utf-8")
        self._pids = folder / "pids"
        self.worker = Worker(command=[sys.executable, str(path), str(self._pids)])

    @property
    def pids(self) -> list[int]:
        """Processes that were started."""
        return [int(line) for line in self._pids.read_text().split()] if self._pids.exists() else []


Make = Callable[[str], Fake]


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Make]:
    made: list[Fake] = []

    def make(script: str) -> Fake:
        made.append(Fake(tmp_path, script))
        return made[-1]

    yield make
    for each in made:
        each.worker.close()
        assert not any(alive(pid) for pid in each.pids)


def state(pid: int) -> str:
    """One letter as in ``ps``: R, S, Z for a zombie; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def alive(pid: int) -> bool:
    return state(pid) not in ("", "Z", "X")


def children() -> list[int]:
    """Of this process, zombies too."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = path.read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if int(parent) == os.getpid():
            found.append(int(path.parent.name))
    return found


def eventually(holds: Callable[[], bool], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def assert_sound(result: Result, problem: Instance | None = None) -> None:
    """A checked plan that is no worse than greedy's, and no claim that contradicts it."""
    problem = problem or small()
    report = check(problem, result.plan)
    assert report.feasible
    assert report.objective == result.objective
    least = greedy().objective if problem == small() else solve(problem, method="greedy").objective
    assert result.objective >= least
    assert result.bound is None or (math.isfinite(result.bound) and result.bound >= result.objective)
    assert result.gap is None or result.gap >= 0
    json.dumps(result.to_document(problem), allow_nan=False)


def assert_failed(result: Result, words: str, backend: str = "cpsat") -> None:
    assert_sound(result)
    assert result.reason == "backend_failure"
    assert result.status == "feasible"
    assert (result.bound, result.gap) == (None, None)
    assert result.detail is not None
    assert result.detail.startswith(f"{backend}: ")
    assert words in result.detail


def run(child: Fake, time_limit: float = 20, **options: Any) -> Result:
    """Solve with the child, which is gone afterwards and was waited for."""
    before = set(children())
    result = solve(small(), method="cpsat", time_limit=time_limit, worker=child.worker, **options)
    assert not any(state(pid) for pid in child.pids)
    assert set(children()) <= before
    return result


# --- children that die or hang --------------------------------------------------------------------------------------

KILL = "os.kill(os.getpid(), signal.{})"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (KILL.format("SIGKILL"), "ended by signal SIGKILL"),
        (KILL.format("SIGSEGV"), "ended by signal SIGSEGV"),
        ("os.kill(os.getpid(), 40)", "ended by signal 40"),
        ("sys.exit(1)", "ended with exit code 1"),
        ("raise RuntimeError('no such luck')", "ended with exit code 1"),
        ("sys.exit(0)", "ended with exit code 0"),
        ("say(Bounded(1e9)); sys.exit(3)", "ended with exit code 3"),
        ("write(b'abc'); sys.exit(0)", "ended with exit code 0"),
        ("write((99).to_bytes(8, 'little') + b'half'); sys.exit(0)", "ended with exit code 0"),
        ("os.close(1); time.sleep(60)", "closed its output"),
        ("say(Ended('failure', 'ValueError: no such luck'))", "ValueError: no such luck"),
    ],
)
def test_a_child_that_dies(fake: Make, script: str, words: str) -> None:
    assert_failed(run(fake(script)), words)


def test_a_child_that_dies_while_it_is_given_the_task(fake: Make) -> None:
    child = fake("")
    path = Path(child.worker._command[1])
    path.write_text(FAKE.partition("task =")[0] + "sys.stdin.buffer.read(10); sys.exit(7)", encoding="utf-8")
    assert_failed(run(child), "ended with exit code 7")


def test_an_abort_counts_as_lack_of_memory(fake: Make) -> None:
    result = run(fake(KILL.format("SIGABRT")))
    assert_sound(result)
    assert result.reason == "memory"
    assert result.detail is not None
    assert "memory" in result.detail


def test_a_plan_found_before_the_death_is_kept(fake: Make) -> None:
    assert best().objective > greedy().objective
    plan = best().plan.model_dump_json()
    script = f"say(Found(Plan.model_validate_json({plan!r}))); say(Bounded(1e9)); {KILL.format('SIGKILL')}"
    result = run(fake(script))
    assert_failed(result, "SIGKILL")
    assert result.objective == best().objective
    assert result.found_by == "cpsat"


@pytest.mark.parametrize(
    "script",
    [
        "time.sleep(60)",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass",
        "write((99).to_bytes(8, 'little') + b'half'); time.sleep(60)",
        "while True: say(Bounded(1e9))",
        "plan = task.incumbent\nwhile True: say(Found(plan))",
    ],
)
def test_a_child_that_hangs_or_never_ends_is_killed_at_the_limit(fake: Make, script: str) -> None:
    begin = time.monotonic()
    result = run(fake(script), time_limit=1.0)
    assert time.monotonic() - begin < 1.0 + 1.0 + 1.0  # the limit, the grace, and what pytest and its machine may take
    assert_sound(result)
    assert result.reason == "time"
    assert result.detail == "cpsat: the solver did not stop in time and was killed"


def test_a_child_that_does_not_read_is_killed_at_the_limit(tmp_path: Path) -> None:
    """The task is larger than what a pipe holds, so that writing it at once blocked for ever."""
    problem = generate("ps-mix", nodes=16, jobs=30, seed=1)
    pids = tmp_path / "pids"
    script = f"import os, time; open({str(pids)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    begin = time.monotonic()
    with Worker(command=[sys.executable, "-c", script]) as worker:
        result = solve(problem, method="cpsat", time_limit=2.0, worker=worker)
    assert time.monotonic() - begin < 2.0 + 1.0 + 1.0
    assert_sound(result, problem)
    assert result.reason == "time"
    assert not state(int(pids.read_text()))


@pytest.mark.parametrize("command", [["/nowhere/solver"], ["/"], [str(Path(__file__))]])
def test_a_child_that_cannot_be_started(command: list[str]) -> None:
    with Worker(command=command) as worker:
        for _ in range(2):
            result = solve(small(), method="cpsat", worker=worker)
            assert_failed(result, "cannot be started")


# --- children that write nonsense or lies ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [
        "write(os.urandom(1) * 100_000); time.sleep(60)",
        "for _ in range(1000): write(bytes(range(1, 256)) * 300)",
        "write(b'a solver that prints to its standard output\\n'); time.sleep(60)",
        "raw(b'no pickle'); time.sleep(60)",
        "raw(b''); time.sleep(60)",
        "raw(pickle.dumps(Bounded(1e9))[:-3]); time.sleep(60)",
        "raw(b'cnowhere\\nnothing\\n.'); time.sleep(60)",
        "say(None); time.sleep(60)",
        "say({'bound': 1}); time.sleep(60)",
        "say(Found({'allocations': {}})); time.sleep(60)",
        "say(Bounded('high')); time.sleep(60)",
        "say(Ended('perhaps')); time.sleep(60)",
    ],
)
def test_a_child_that_writes_no_answer(fake: Make, script: str) -> None:
    begin = time.monotonic()
    result = run(fake(script), time_limit=30)
    assert_failed(result, "wrote what is no answer")
    assert time.monotonic() - begin < 25


def crowded() -> str:
    """All jobs at their most on the first node."""
    problem = small()
    node = problem.nodes[0].name
    tasks = {}
    for job in problem.jobs:
        tasks[job.name] = {"worker": {node: job.worker.max}} | ({"ps": {node: job.ps.max}} if job.ps else {})
    return repr({"allocations": {name: {"tasks": placed} for name, placed in tasks.items()}})


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        (f"Found(Plan.model_validate({crowded()}))", "capacity"),
        ("Found(Plan(allocations={'stranger': Allocation(tasks={'worker': {'n0': 1}})}))", "unknown"),
        (
            f"Found(Plan(allocations={{{small().jobs[0].name!r}: Allocation(tasks={{'worker': {{'nowhere': 1}}}})}}))",
            "unknown",
        ),
        ("Bounded(task.objective * 0.99)", "below the objective"),
        ("Bounded(0.0)", "below the objective"),
        ("Bounded(-1.0)", "below the objective"),
        ("Bounded(float('-inf'))", "-inf is no bound"),
        ("Bounded(float('inf'))", "inf is no bound"),
        ("Bounded(float('nan'))", "nan is no bound"),
        ("Priced((PricedRow(Row('moves'), float('nan')),))", "its prices are none: prices[0].price"),
        ("Priced((PricedRow(Row('pool', 'gpu', 'abacus'), 1.0),))", "must be a GPU type of the cluster"),
        ("Priced((PricedRow(Row('pool', 'gpu'), 1.0), 1.0))", "wrote what is no answer"),
        ("Ended('failure', 'the solver calls a problem infeasible that has a plan')", "infeasible"),
    ],
)
def test_a_child_that_lies(fake: Make, claim: str, words: str) -> None:
    """What it says of bounds before is forgotten too, and its claim to be done is not believed."""
    script = f"say(Bounded(task.objective * 1.5)); say({claim}); say(Ended('done')); time.sleep(60)"
    begin = time.monotonic()
    assert_failed(run(fake(script), time_limit=30), words)
    assert time.monotonic() - begin < 25


def test_a_bound_that_a_later_plan_exceeds(fake: Make) -> None:
    plan = best().plan.model_dump_json()
    script = f"say(Bounded(task.objective)); say(Found(Plan.model_validate_json({plan!r}))); time.sleep(60)"
    result = run(fake(script), time_limit=30)
    assert_failed(result, "below the objective of a plan that it found later")
    assert result.objective == best().objective


def test_a_worse_plan_changes_nothing_and_no_bound_proves_nothing(fake: Make) -> None:
    result = run_warm(fake("say(Found(Plan())); say(Ended('done')); sys.stdin.buffer.read()"))
    assert result.plan == greedy().plan
    assert (result.status, result.reason, result.bound, result.detail) == ("feasible", "finished", None, None)


def run_warm(child: Fake) -> Result:
    result = solve(small(), method="cpsat", worker=child.worker)
    assert_sound(result)
    return result


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_the_backend_is_named(fake: Make, backend: str) -> None:
    child = fake("sys.exit(5)")
    result = solve(small(), method="mip", backend=backend, worker=child.worker)
    assert_failed(result, "exit code 5", backend)


# --- the worker afterwards ------------------------------------------------------------------------------------------

FIRST_FAILS = """
if len(open(sys.argv[1]).read().split()) == 1:
    {}
say(Bounded(task.objective)); say(Ended("done")); sys.stdin.buffer.read()
"""


@pytest.mark.parametrize(
    "fault",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "write(b'garbage' * 99)",
        "say(Bounded(float('nan')))",
        "say(Ended('memory', 'no more'))",
        "os.close(1); time.sleep(60)",
    ],
)
def test_a_worker_is_usable_after_a_fault(fake: Make, fault: str) -> None:
    child = fake(FIRST_FAILS.format(fault))
    first = solve(small(), method="cpsat", worker=child.worker)
    assert first.reason in ("backend_failure", "memory")
    second = solve(small(), method="cpsat", worker=child.worker)
    assert (second.status, second.reason, second.detail) == ("optimal", "gap", None)
    assert len(child.pids) == 2
    assert not state(child.pids[0])


def test_a_worker_is_usable_after_a_time_limit(fake: Make) -> None:
    child = fake(FIRST_FAILS.format("time.sleep(60)"))
    assert solve(small(), method="cpsat", worker=child.worker, time_limit=0.7).reason == "time"
    assert solve(small(), method="cpsat", worker=child.worker).status == "optimal"


def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Processes that workers start from now on."""
    pids: list[int] = []

    class Popen(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            pids.append(self.pid)

    monkeypatch.setattr(worker_module.subprocess, "Popen", Popen)  # type: ignore[attr-defined]
    return pids


def test_one_process_serves_several_solves(monkeypatch: pytest.MonkeyPatch) -> None:
    pids = started(monkeypatch)
    with Worker() as worker:
        for method in ("cpsat", "mip", "prices", "cpsat"):
            limit = 1 if method == "prices" else 60  # that one is done only when its time is over
            assert_sound(solve(small(), method=method, time_limit=limit, worker=worker))
        assert len(pids) == 1
        assert alive(pids[0])
    assert not state(pids[0])


def test_a_solve_without_a_worker_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    pids = started(monkeypatch)
    solve(small(), method="cpsat", time_limit=60)
    assert len(pids) == 1
    assert not state(pids[0])


# --- the real child -------------------------------------------------------------------------------------------------


def hard() -> Instance:
    """No solver proves its optimum within a minute."""
    return generate("ps-mix", nodes=24, jobs=40, seed=1)


@pytest.mark.parametrize("method", ["cpsat", "mip"])
def test_a_real_child_that_is_killed_from_outside(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = started(monkeypatch)
    problem = hard()

    def kill() -> None:
        assert eventually(lambda: bool(pids))
        time.sleep(2)
        os.kill(pids[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with Worker() as worker:
        result = solve(problem, method=method, time_limit=60, gap=0, worker=worker)
        killer.join()
        assert result.wall_seconds < 50
        assert_sound(result, problem)
        assert result.reason == "backend_failure"
        assert result.detail == f"{'highs' if method == 'mip' else 'cpsat'}: the solver process ended by signal SIGKILL"
        assert solve(small(), method=method, time_limit=60, worker=worker).status == "optimal"
    assert not any(state(pid) for pid in pids)


@pytest.mark.parametrize("memory_mib", [16, 200, 400])
def test_a_real_child_that_runs_out_of_memory(memory_mib: int) -> None:
    problem = generate("ps-mix", nodes=64, jobs=100, seed=1)
    result = solve(problem, method="cpsat", time_limit=30, memory_mib=memory_mib)
    assert_sound(result, problem)
    assert result.reason == "memory"
    assert result.detail is not None
    assert result.detail.startswith("cpsat: ")


@pytest.mark.parametrize("method", ["cpsat", "mip"])
def test_an_interrupt_returns_at_once_with_the_best_plan_so_far(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = started(monkeypatch)
    problem, asked = hard(), threading.Event()
    since: list[float] = []

    def ask() -> None:
        assert eventually(lambda: bool(pids))
        time.sleep(2)
        since.append(time.monotonic())
        asked.set()

    asker = threading.Thread(target=ask)
    asker.start()
    result = solve(problem, method=method, time_limit=60, gap=0, interrupted=asked.is_set)
    asker.join()
    assert time.monotonic() - since[0] < 3
    assert_sound(result, problem)
    assert (result.reason, result.detail) == ("interrupted", None)
    assert len(pids) == 1
    assert not state(pids[0])


def test_an_exception_in_the_parent_ends_the_child(fake: Make) -> None:
    """As Ctrl-C does in Python; a child that went on would answer the next solve with what belongs to this one."""
    child = fake("say(Bounded(1e9)); time.sleep(60)")

    def interrupted() -> bool:
        if child.pids:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt) as kept:
        solve(small(), method="cpsat", worker=child.worker, interrupted=interrupted)
    assert not any(state(pid) for pid in child.pids)
    del kept


def test_events_that_nobody_waits_for_end_the_child(fake: Make) -> None:
    child = fake("say(Bounded(1e9)); say(Bounded(1e8)); time.sleep(60)")
    task = Task(column_set(small()), "cpsat", Plan(), 0.0, 20.0, 0.0)
    events = child.worker.solve(task, lambda: False)
    next(events)
    events.close()
    assert not any(state(pid) for pid in child.pids)
    assert not any(isinstance(event, Ended) for event in events)


PARENT = """
import sys
from coplace.instances.generation import generate
from coplace.solver import solve
from coplace.solver.exact.worker import Worker
problem = generate("ps-mix", nodes=24, jobs=40, seed=1)
with Worker() as worker:
    print("ready", flush=True)
    solve(problem, method=sys.argv[1], backend=sys.argv[2], time_limit=100, gap=0, worker=worker)
"""


@pytest.mark.parametrize(("method", "backend"), [("cpsat", "highs"), ("mip", "highs"), ("mip", "cbc")])
def test_nothing_goes_on_when_the_parent_is_killed(method: str, backend: str) -> None:
    """A search of minutes went on with nobody to tell, and so did the solver that it had started."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, method, backend], stdout=subprocess.PIPE, env=environment
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        wanted = 2 if backend == "cbc" else 1
        try:
            begun = eventually(lambda: len(descendants(parent.pid)) >= wanted or parent.poll() is not None, seconds=90)
            assert begun, "no solver was started"
            time.sleep(2)  # into the search
            offspring = descendants(parent.pid)
            # By then a solver may have closed a stage and the next may not have begun; the child is always there.
            assert offspring
            assert parent.poll() is None, "the solve ended before it could be killed"
        finally:
            parent.kill()
    gone = eventually(lambda: not any(alive(pid) for pid in offspring), seconds=10)
    for pid in offspring:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    assert gone


def descendants(root: int) -> list[int]:
    """Processes below *root* that run."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, layer = [], [root]
    while layer:
        layer = [pid for pid, parent in parents.items() if parent in layer and alive(pid)]
        found += layer
    return found
