"""What the exact formulations reach: gaps and times of both, lines against columns, and whether all solvers agree."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from importlib import import_module
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from benchmarks.measure import cpu_of_command
from benchmarks.registry import Figure, Target, benchmark

if TYPE_CHECKING:
    from coplace.formulations.columns import ColumnSet
    from coplace.instances import Instance
    from coplace.solver.result import Result

SEED = 1
LIMIT = 20.0
"""Seconds of wall time that a solve may take."""

RUN_CLI = "import sys; from coplace.cli.main import main; sys.exit(main())"


@benchmark("exact", "gaps and times of CP-SAT and MIP, lines against columns, agreement with brute force")
def exact(smoke: bool) -> Iterable[Figure]:
    """Relative gaps to a solver's bound, 1 without one, and seconds of wall time, of generated ``ps-mix`` clusters."""
    yield from _without_pressure("cpsat", smoke, Target("<=", 1e-3), Target("<=", LIMIT))
    yield from _without_pressure("mip", smoke)
    for nodes, jobs in [(2, 3)] if smoke else [(8, 14), (16, 30), (32, 50), (64, 100)]:
        yield from _with_pressure(nodes, jobs, smoke)
    yield _command_line(repeats=1 if smoke else 5)
    yield from _lines(smoke)
    yield from _agreement(seeds=3 if smoke else 500)


def _without_pressure(method: str, smoke: bool, gap: Target | None = None, wall: Target | None = None) -> list[Figure]:
    from coplace.instances.generation import generate

    nodes, jobs = (3, 4) if smoke else (64, 100)
    instance = generate("ps-mix", nodes=nodes, jobs=jobs, seed=SEED, pressure=False, moves=False)
    result = _solved(instance, method, smoke, gap=1e-3)
    return _gap_and_time(f"{method}, {nodes} nodes × {jobs} jobs, nothing runs, no pressure", result, gap, wall)


def _with_pressure(nodes: int, jobs: int, smoke: bool) -> list[Figure]:
    from coplace.instances.generation import generate

    instance = generate("ps-mix", nodes=nodes, jobs=jobs, seed=SEED)
    return _gap_and_time(f"cpsat, {nodes} nodes × {jobs} jobs", _solved(instance, "cpsat", smoke))


def _solved(instance: Instance, method: str, smoke: bool, gap: float = 1e-4) -> Result:
    from coplace.solver import solve

    return solve(instance, method=method, gap=gap, time_limit=1.0 if smoke else LIMIT, seed=SEED)


def _gap_and_time(name: str, result: Result, gap: Target | None = None, wall: Target | None = None) -> list[Figure]:
    found = 1.0 if result.gap is None else result.gap
    return [Figure(f"{name}: gap", found, "", gap), Figure(f"{name}: wall time", result.wall_seconds, "s", wall)]


def _command_line(repeats: int) -> Figure:
    with as_file(files("coplace.instances") / "examples" / "five-lines.yaml") as example:
        command = [sys.executable, "-c", RUN_CLI, "solve", str(example), "--method", "cpsat", "--json"]
        seconds = cpu_of_command(command, repeats)
    return Figure("coplace solve five-lines.yaml --method cpsat, CPU with the solver process", seconds, "s",
                  Target("<=", 2.0))  # fmt: skip


# --- lines ----------------------------------------------------------------------------------------------------------


def _lines(smoke: bool) -> Iterable[Figure]:
    """The same jobs, each with worker counts up to 512, offered as columns and as lines."""
    from coplace.formulations.columns import column_set

    instance = _many_counts(nodes=4, jobs=3, most=32) if smoke else _many_counts(nodes=64, jobs=20, most=512)
    begin = time.perf_counter()
    columns = column_set(instance, counts="columns")
    yield Figure("columns: time to list them", time.perf_counter() - begin, "s")
    begin = time.perf_counter()
    lines = column_set(instance, counts="lines")
    yield Figure("lines: time to fit them", time.perf_counter() - begin, "s")
    best = 0.0
    for name, choices in (("columns", columns), ("lines", lines)):
        yield Figure(f"{name}: choices", float(_choices(choices)), "")
        variables, seconds, objective, gap = _by_cpsat(choices, 1.0 if smoke else LIMIT)
        yield Figure(f"{name}: variables of CP-SAT", float(variables), "")
        yield Figure(f"{name}: time to build and solve to 0.1 %", seconds, "s")
        yield Figure(f"{name}: gap", gap, "")
        best = max(best, objective)
        if name == "lines":
            yield Figure("lines: stated error over the objective", lines.error / max(best, 1e-9), "")
            yield Figure("lines: objective below the better of both", 1 - objective / max(best, 1e-9), "")


def _many_counts(nodes: int, jobs: int, most: int) -> Instance:
    """All-reduce jobs on clusters of one GPU a worker, whose largest count is *most*."""
    from coplace.instances.generation import generate

    instance = generate("allreduce-mix", nodes=nodes, jobs=jobs, seed=SEED, pressure=False, moves=False)
    wide = tuple(
        job.model_copy(update={"worker": job.worker.model_copy(update={"gpu": 1, "min": 1, "max": most})})
        for job in instance.jobs
    )
    larger = tuple(
        node.model_copy(update={"gpu": 8 * node.gpu, "cpu": 8 * node.cpu, "memory": 8 * node.memory})
        for node in instance.nodes
    )
    return instance.model_copy(update={"nodes": larger, "jobs": wide})


def _choices(columns: ColumnSet) -> int:
    return sum(len(choices.columns) + len(choices.lines) for choices in columns.jobs)


def _by_cpsat(columns: ColumnSet, limit: float) -> tuple[int, float, float, float]:
    """Variables, wall seconds, objective of the plan by the evaluator, gap to the bound."""
    from coplace.formulations.cpsat import CpsatModel
    from coplace.formulations.evaluate import evaluate
    from coplace.instances import Plan

    begin = time.perf_counter()
    model = CpsatModel(columns)
    left = max(0.1, limit - (time.perf_counter() - begin))
    solution = model.solve(time_limit=left, gap=1e-3, seed=SEED)
    seconds = time.perf_counter() - begin
    objective = evaluate(columns.instance, solution.plan or Plan()).objective
    gap = 1.0 if solution.bound is None else max(0.0, 1 - objective / max(solution.bound, 1e-9))
    return len(model.proto.proto.variables), seconds, objective, gap


# --- agreement ------------------------------------------------------------------------------------------------------


def _agreement(seeds: int) -> Iterable[Figure]:
    """Tiny instances on which each solver's plan has the objective that going through all plans finds, within 1e-6."""
    from coplace.formulations.columns import column_set
    from coplace.formulations.cpsat import CpsatModel
    from coplace.formulations.evaluate import evaluate
    from coplace.formulations.mip import MipModel, available_backends

    tiny_instance = import_module("tests.oracle.tiny").tiny_instance
    best_plan = import_module("tests.oracle.enumerate").best_plan
    others = [name for name, version in available_backends().items() if not version.startswith("not available")]
    agreed, seconds = dict.fromkeys(["cpsat", *others], 0), dict.fromkeys(["brute force", "cpsat", *others], 0.0)
    for seed in range(seeds):
        instance = tiny_instance(seed)
        begin = time.perf_counter()
        best, _ = best_plan(instance)
        seconds["brute force"] += time.perf_counter() - begin
        columns = column_set(instance)
        for name in agreed:
            begin = time.perf_counter()
            if name == "cpsat":
                solution = CpsatModel(columns).solve(time_limit=30, gap=0, workers=1)
            else:
                solution = MipModel(columns).solve(backend=name, time_limit=30, gap=0 if name == "highs" else 1e-9)
            seconds[name] += time.perf_counter() - begin
            if solution.status == "optimal" and solution.plan is not None:
                value = evaluate(instance, solution.plan).objective
                agreed[name] += abs(value - best) <= 1e-6 * max(best, 1e-3)
    for name, count in agreed.items():
        yield Figure(f"{name}: agrees with brute force, of {seeds}", float(count), "", Target(">=", seeds))
    for name, spent in seconds.items():
        yield Figure(f"{name}: wall time for these", spent, "s")
