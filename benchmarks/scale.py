"""How far plans are from the best as clusters grow, how long they take, and what other methods find in that time.

``--most-nodes 200`` leaves out larger clusters, ``--most-nodes 25000`` adds the largest; ``--plots DIR`` draws.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import MeasurementError
from benchmarks.plots import Curve, find_matplotlib, gap_against_time, time_against_size
from benchmarks.registry import WISHES, Figure, Target, benchmark
from benchmarks.scale_row import Outcome, Spec

RUN_CLI = "import sys; from coplace.cli.main import main; sys.exit(main())"

MOST_NODES = 10_000
"""Largest cluster without ``--most-nodes``, so that all is done in a quarter of an hour."""

MOST_NODES_EXACT, MOST_NODES_OTHERS = 200, 2_000
"""Largest clusters on which the methods indexed by node, and the others, are compared with."""

MOST_GIB = 12.0


class Row(NamedTuple):
    """A size, and what a plan of it may take and miss: seconds, relative gap."""

    nodes: int
    jobs: int
    seconds: float
    gap: float


ROWS = (
    Row(64, 100, 3, 0.01),
    Row(200, 400, 5, 0.01),
    Row(2_000, 4_000, 10, 0.01),
    Row(10_000, 20_000, 60, 0.02),
    Row(25_000, 50_000, 240, 0.03),
)

USE_OF_LIMIT = 0.9
"""Share of a row's seconds that is the solve's limit; the rest is for what a solve does after its deadline."""

FAMILIES = ("saturated", "fragmented", "big-gangs")

COUNTS = Row(256, 672, 1, 0.01)
"""2,048 GPUs and 672 jobs: for the median of such rounds Sia reports 1.3 s."""

MOST_RATIO_AGAIN = 0.15
"""Time of the next round over that of a cold solve."""


@benchmark(
    "scale", "gap, time and memory up to 25,000 nodes × 50,000 jobs; other methods, families, counts, next round"
)
def scale(smoke: bool) -> Iterable[Figure]:
    """Seconds of wall time, relative gaps (1 without a bound), GiB, and objectives over that of ``auto``."""
    if WISHES.plots is not None:
        find_matplotlib()
    rows = [Row(16, 30, 0.5, 1)] if smoke else [row for row in ROWS if row.nodes <= _most_nodes()]
    curves: list[Curve] = []
    for row in rows:
        name = f"{row.nodes:,} nodes × {row.jobs:,} jobs"
        spec = _spec(row, "ps-mix")
        outcome = yield from _size(name, spec, row)
        if outcome is not None:
            curves.append(Curve(name, row.nodes, outcome.seconds, outcome.bound, outcome.events))
            yield from _others(name, spec, outcome.objective, smoke)
    for family in FAMILIES[:1] if smoke else FAMILIES:
        for row in rows if smoke else [row for row in rows if 200 <= row.nodes <= 2_000]:
            yield from _family(_spec(row, family), row)
    yield from _counts(COUNTS._replace(nodes=4, jobs=8) if smoke else COUNTS)
    for row in rows if smoke else [row for row in rows if row.nodes == 2_000]:
        yield from _again(row)
    if WISHES.plots is not None and curves:
        gap_against_time(curves, WISHES.plots / "scale-gap.svg")
        time_against_size(curves, {row.nodes: row.seconds for row in rows}, WISHES.plots / "scale-time.svg")


def _most_nodes() -> int:
    return MOST_NODES if WISHES.most_nodes is None else WISHES.most_nodes


def _spec(row: Row, family: str) -> Spec:
    return Spec("solve", family, row.nodes, row.jobs, "auto", limit=USE_OF_LIMIT * row.seconds)


# --- rows -----------------------------------------------------------------------------------------------------------


def _size(name: str, spec: Spec, row: Row) -> Generator[Figure, None, Outcome | None]:
    """One size: what the solve says, and what ``coplace check`` makes of its files."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = _outcome(replace(spec, folder=folder))
        if isinstance(outcome, str):
            yield _failed(name, outcome)
            return None
        try:
            checked = _checked(Path(folder))
        except MeasurementError as error:
            yield _failed(f"{name}, check", str(error))
            return outcome
    yield Figure(f"{name}: time", outcome.seconds, "s", Target("<=", row.seconds))
    yield from _gap(name, outcome, row)
    largest = row.nodes == ROWS[-1].nodes
    yield Figure(f"{name}: peak memory", outcome.peak_gib, "GiB", Target("<=", MOST_GIB) if largest else None)
    yield Figure(f"{name}: feasible, says check", float(checked["feasible"]), "", Target(">=", 1.0))
    apart = abs(checked["objective"] / max(outcome.objective, 1e-9) - 1)
    yield Figure(f"{name}: objective apart from check's", apart, "", Target("<=", 1e-6))
    certified = checked.get("certified_gap")  # null, or no key at all, where the result proves nothing
    yield Figure(f"{name}: check has a bound", float(certified is not None), "", Target(">=", 1.0))
    if certified is not None:
        yield Figure(f"{name}: gap by check", certified, "", Target("<=", row.gap))
    return outcome


def _gap(name: str, outcome: Outcome, row: Row) -> Iterator[Figure]:
    gap = 1.0 if outcome.gap is None else outcome.gap
    yield Figure(f"{name}: gap", gap, "", Target("<=", row.gap))


def _others(name: str, spec: Spec, objective: float, smoke: bool) -> Iterator[Figure]:
    """Objectives of other methods, with the same deadline, over that of ``auto``."""
    baselines = ["sia", "sia-own"]
    others = ["greedy", *baselines] if spec.nodes <= MOST_NODES_OTHERS else []
    if spec.nodes <= MOST_NODES_EXACT:
        others = ["cpsat", *others] if smoke else ["cpsat", "mip", *others]
    for method in others:
        outcome = _outcome(replace(spec, kind="baseline" if method in baselines else "solve", method=method))
        if isinstance(outcome, str):
            yield _failed(f"{name}: {method}", outcome)
        else:
            yield Figure(f"{name}: objective of {method} over auto's", outcome.objective / max(objective, 1e-9), "")
            yield Figure(f"{name}: time of {method}", outcome.seconds, "s")


def _family(spec: Spec, row: Row) -> Iterator[Figure]:
    name = f"{spec.family}, {row.nodes:,} nodes × {row.jobs:,} jobs"
    outcome = _outcome(spec)
    if isinstance(outcome, str):
        yield _failed(name, outcome)
    else:
        yield from _gap(name, outcome, row)
        yield Figure(f"{name}: time", outcome.seconds, "s", Target("<=", row.seconds))


def _counts(row: Row) -> Iterator[Figure]:
    name = f"GPU counts only, {8 * row.nodes:,} GPUs × {row.jobs:,} jobs"
    outcome = _outcome(replace(_spec(row, "counts"), kind="counts", gap=row.gap, limit=3 * row.seconds))
    if isinstance(outcome, str):
        yield _failed(name, outcome)
        return
    yield Figure(f"{name}: time", outcome.seconds, "s", Target("<=", row.seconds))
    yield from _gap(name, outcome, row)
    for what, value in outcome.extra.items():
        timed = what == "Sia's program alone"
        yield Figure(f"{name}: {what}", value, "s" if timed else "", Target("<=", row.seconds) if timed else None)


def _again(row: Row) -> Iterator[Figure]:
    """The next round, where there is a solver that remembers the last one."""
    import coplace.solver

    name = f"next round, {row.nodes:,} nodes × {row.jobs:,} jobs"
    if not hasattr(coplace.solver, "RoundSolver"):
        print(f"scale: {name}: left out, since coplace.solver has no RoundSolver", file=sys.stderr)
        return
    outcome = _outcome(replace(_spec(row, "ps-mix"), kind="again", gap=row.gap))
    if isinstance(outcome, str):
        yield _failed(name, outcome)
        return
    yield Figure(f"{name}: time", outcome.seconds, "s")
    yield from _gap(name, outcome, row)
    for what, value in outcome.extra.items():
        ratio = what == "time over that of a cold solve"
        yield Figure(f"{name}: {what}", value, "", Target("<=", MOST_RATIO_AGAIN) if ratio else None)


def _failed(name: str, why: str) -> Figure:
    """A row that did not come to its end is a target missed, and the other rows go on."""
    print(f"scale: {name}: {why}", file=sys.stderr)
    return Figure(f"{name}: failed", 1.0, "", Target("<=", 0.0))


# --- processes ------------------------------------------------------------------------------------------------------


def _outcome(spec: Spec) -> Outcome | str:
    """The row, run by a process of its own; what went wrong, if it failed or had to be ended."""
    patience = 60 + 4 * spec.limit + spec.nodes / 50  # instances are made, written and solved up to three times
    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder) / "spec.json", Path(folder) / "outcome.json"
        given.write_text(json.dumps(asdict(spec)), encoding="utf-8")
        command = [sys.executable, "-m", "benchmarks.scale_row", str(given), str(out)]
        try:
            _run(command, patience)
        except MeasurementError as error:
            return str(error)
        return Outcome(**json.loads(out.read_text(encoding="utf-8")))


def _checked(folder: Path) -> dict[str, Any]:
    """What ``coplace check INSTANCE RESULT --json`` prints."""
    files = [str(folder / "instance.json"), str(folder / "result.json")]
    found: dict[str, Any] = json.loads(_run([sys.executable, "-c", RUN_CLI, "check", *files, "--json"], 600, {0, 3}))
    return found


def _run(command: list[str], patience: float, good: Iterable[int] = (0,)) -> str:
    """Standard output of *command*.

    Raises:
        MeasurementError: it took longer than *patience* seconds, or ended with an exit code that is not *good*.
    """
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patience, check=False
        )
    except subprocess.TimeoutExpired:
        raise MeasurementError(f"was ended after {patience:.0f} s") from None
    if done.returncode not in good:
        lines = done.stderr.strip().splitlines() or ["it wrote no error"]
        raise MeasurementError(f"ended with exit code {done.returncode}: {lines[-1]}")
    return done.stdout
