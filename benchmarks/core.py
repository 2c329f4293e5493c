"""What every user waits for: start, reading, candidates and the greedy method."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from importlib.resources import as_file, files
from pathlib import Path

from benchmarks.measure import cpu_of_call, cpu_of_command
from benchmarks.registry import Figure, Target, benchmark

SEED = 1
RUN_CLI = "import sys; from coplace.cli.main import main; sys.exit(main())"


@benchmark("core", "start, reading 20,000 jobs, candidates and greedy up to 2,000 nodes × 4,000 jobs")
def core(smoke: bool) -> Iterable[Figure]:
    """Seconds of CPU time; plans and candidates of generated clusters with parameter-server jobs (``ps-mix``)."""
    repeats = 1 if smoke else 5
    yield _import(repeats)
    yield _command_line(repeats)
    yield _load(jobs=20 if smoke else 20_000)
    yield from _candidates(nodes=10 if smoke else 2_000, jobs=20 if smoke else 4_000)
    if smoke:
        yield _greedy(nodes=10, jobs=20, limit=1.0)
    else:
        yield _greedy(nodes=200, jobs=400, limit=1.0)
        yield _greedy(nodes=2_000, jobs=4_000, limit=15.0)


def _import(repeats: int) -> Figure:
    seconds = cpu_of_command([sys.executable, "-c", "import coplace"], repeats)
    return Figure("import coplace", seconds, "s", Target("<=", 0.3))


def _command_line(repeats: int) -> Figure:
    with as_file(files("coplace.instances") / "examples" / "five-lines.yaml") as example:
        command = [sys.executable, "-c", RUN_CLI, "solve", str(example), "--json", "--method", "greedy"]
        seconds = cpu_of_command(command, repeats)
    return Figure("coplace solve five-lines.yaml --method greedy", seconds, "s", Target("<=", 1.0))


def _load(jobs: int) -> Figure:
    from coplace.instances import read_instance, write_instance
    from coplace.instances.generation import generate

    instance = generate("ps-mix", nodes=max(1, jobs // 10), jobs=jobs, seed=SEED)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "instance.json"
        write_instance(instance, path)
        seconds, _ = cpu_of_call(lambda: read_instance(path))
    return Figure(f"read {jobs:,} jobs from JSON", seconds, "s", Target("<=", 3.0))


def _candidates(nodes: int, jobs: int) -> Iterable[Figure]:
    from coplace.formulations.candidates import candidates
    from coplace.formulations.scoring import Scoring
    from coplace.instances.generation import generate

    instance = generate("ps-mix", nodes=nodes, jobs=jobs, seed=SEED)
    seconds, scoring = cpu_of_call(lambda: Scoring(instance))
    yield Figure(f"reference speeds and weights of {jobs:,} jobs", seconds, "s")
    seconds, _ = cpu_of_call(lambda: candidates(instance, scoring))
    yield Figure(f"candidates of {jobs:,} jobs", seconds, "s", Target("<=", 2.0))


def _greedy(nodes: int, jobs: int, limit: float) -> Figure:
    from coplace.instances.generation import generate
    from coplace.solver import solve

    instance = generate("ps-mix", nodes=nodes, jobs=jobs, seed=SEED)
    seconds, _ = cpu_of_call(lambda: solve(instance, method="greedy"), repeats=3 if jobs <= 1_000 else 1)
    return Figure(f"greedy, {nodes:,} nodes × {jobs:,} jobs", seconds, "s", Target("<=", limit))
