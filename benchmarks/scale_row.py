"""One row of the benchmark ``scale``, in a process of its own: ``python -m benchmarks.scale_row SPEC OUT``.

A process of its own has a peak memory of its own, and can be ended when it hangs.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from coplace.instances import Instance
    from coplace.solver import Result

Kind = Literal["solve", "baseline", "counts", "again"]


@dataclass(frozen=True, slots=True)
class Spec:
    """What a row runs.

    Attributes:
        kind: ``solve``, ``baseline``, ``counts`` (GPU counts only) or ``again`` (a second round after a first).
        family, nodes, jobs: the instance, of seed 1.
        method: of ``solve``, or the baseline.
        limit: seconds that it may take.
        gap: relative gap at which to stop.
        folder: where ``instance.json`` and ``result.json`` are left, if anywhere.
    """

    kind: Kind
    family: str
    nodes: int
    jobs: int
    method: str
    limit: float
    gap: float = 1e-4
    folder: str | None = None


@dataclass(slots=True)
class Outcome:
    """What came of it.

    Attributes:
        seconds: wall time of the solve.
        objective: of the plan, by the evaluator.
        gap: to the solver's bound; None without one.
        bound: that bound.
        peak_gib: largest memory of this process and of its largest child together.
        events: seconds and objective of each plan that was better than the ones before.
        extra: figures of one kind of row alone.
    """

    seconds: float
    objective: float
    gap: float | None = None
    bound: float | None = None
    peak_gib: float = 0.0
    events: list[tuple[float, float]] = field(default_factory=list)
    extra: dict[str, float] = field(default_factory=dict)


SEED = 1


def run(spec: Spec) -> Outcome:
    """Run the row in this process."""
    outcome = {"solve": _solve, "baseline": _baseline, "counts": _counts, "again": _again}[spec.kind](spec)
    peaks = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    outcome.peak_gib = sum(peaks) / 2**20  # KiB on Linux
    return outcome


def _generated(spec: Spec) -> Instance:
    from coplace.instances.generation import generate

    return generate(spec.family, nodes=spec.nodes, jobs=spec.jobs, seed=SEED)


def _solve(spec: Spec) -> Outcome:
    instance = _generated(spec)
    result, outcome = _solved(instance, spec)
    if spec.folder is not None:
        from coplace.instances import write_instance

        write_instance(instance, Path(spec.folder) / "instance.json")
        document = result.to_document(instance)
        (Path(spec.folder) / "result.json").write_text(json.dumps(document), encoding="utf-8")
    return outcome


def _solved(instance: Instance, spec: Spec) -> tuple[Result, Outcome]:
    from coplace.solver import solve

    events: list[tuple[float, float]] = []
    begin = time.perf_counter()

    def progress(rung: str, objective: float, *_: object) -> None:
        events.append((time.perf_counter() - begin, objective))

    result = solve(
        instance, method=spec.method, time_limit=spec.limit, gap=spec.gap, seed=SEED, progress=progress
    )  # fmt: skip
    seconds = time.perf_counter() - begin
    events.append((seconds, result.objective))
    return result, Outcome(seconds, result.objective, result.gap, result.bound, events=events)


def _baseline(spec: Spec) -> Outcome:
    from coplace.formulations.scoring import Scoring
    from coplace.solver import check
    from coplace.solver.baselines import BASELINES

    instance = _generated(spec)
    begin = time.perf_counter()
    scoring = Scoring(instance)
    plan = BASELINES[spec.method](instance, scoring, spec.limit)
    seconds = time.perf_counter() - begin
    report = check(instance, plan, scoring)
    assert report.feasible, report.violations[:3]
    return Outcome(seconds, report.objective)


# --- GPU counts only ------------------------------------------------------------------------------------------------


def _counts(spec: Spec) -> Outcome:
    """Nodes of 8 GPUs, workers of one GPU that ask for nothing else, no servers, span and pressure without effect."""
    from coplace.formulations.scoring import Scoring
    from coplace.instances import Plan
    from coplace.solver.baselines.counts_ilp import choose
    from coplace.solver.baselines.sia import POWER, sia_options, sia_program, sia_worth
    from coplace.solver.state import State

    instance = counts_only(spec.nodes, spec.jobs)
    _, outcome = _solved(instance, spec)
    state = State(Scoring(instance), Plan())
    options = sia_options(state)
    program = sia_program(state, options, sia_worth(state.scoring, options, POWER))
    begin = time.perf_counter()
    chosen = choose(program, spec.limit)
    outcome.extra = {
        "Sia's program alone": time.perf_counter() - begin,
        "configurations": float(len(options)),
        "jobs that it runs": float(len(chosen)),
    }
    return outcome


def counts_only(nodes: int, jobs: int) -> Instance:
    """All-reduce jobs of up to 64 workers for which only the number and the type of GPUs matters."""
    from coplace.instances import Resources
    from coplace.instances.generation import generate
    from coplace.instances.speed import AllReduceSpeed

    given = generate("allreduce-mix", nodes=nodes, jobs=jobs, seed=SEED, pressure=False, moves=False)
    plain = []
    for job in given.jobs:
        assert isinstance(job.speed, AllReduceSpeed)
        types = {
            gpu_type: each.model_copy(
                update={"latency_inter": each.latency_intra, "transfer_inter": each.transfer_intra}
            )
            for gpu_type, each in job.speed.types.items()
        }
        profile = job.worker.profiles[0].model_copy(update={"cpu": 0, "memory": 0})
        worker = job.worker.model_copy(update={"gpu": 1, "min": 1, "max": 64, "profiles": (profile,)})
        plain.append(job.model_copy(update={"worker": worker, "speed": job.speed.model_copy(update={"types": types})}))
    equal = tuple(node.model_copy(update={"gpu": 8, "used": Resources()}) for node in given.nodes)
    return given.model_copy(update={"nodes": equal, "jobs": tuple(plain)})


# --- a second round -------------------------------------------------------------------------------------------------


MORE_THAN_REACHED = 1.1
"""Gap that the second round is asked for, over that of the first."""


def _again(spec: Spec) -> Outcome:
    """A round, then the next after 1 % of the jobs have gone and as many have come: from what is known, and cold.

    Both are asked for a gap that the first round has shown to be within reach.
    """
    import coplace.solver

    instance = _generated(spec)
    rounds: Any = getattr(coplace.solver, "RoundSolver")()  # noqa: B009, since it may not be there
    with rounds:
        first = rounds.solve(instance, time_limit=spec.limit, gap=spec.gap)
        after = next_round(instance, first, spec.family, share=0.01)
        gap = max(spec.gap, MORE_THAN_REACHED * (first.gap or 0.0))
        begin = time.perf_counter()
        warm = rounds.solve(after, time_limit=spec.limit, gap=gap)
        seconds = time.perf_counter() - begin
    cold, outcome = _solved(after, replace(spec, gap=gap))
    return Outcome(
        seconds,
        warm.objective,
        warm.gap,
        warm.bound,
        extra={
            "time over that of a cold solve": seconds / outcome.seconds,
            "objective over that of a cold solve": warm.objective / max(cold.objective, 1e-9),
            "jobs moved": float(len(warm.moved)),
            "jobs moved by a cold solve": float(len(cold.moved)),
        },
    )


def next_round(instance: Instance, result: Result, family: str, share: float) -> Instance:
    """*instance* running the plan of *result*, with that share of its jobs gone and as many new ones waiting."""
    from coplace.instances.generation import generate

    count = max(1, round(share * len(instance.jobs)))
    step = len(instance.jobs) // count
    gone = {instance.jobs[i * step].name for i in range(count)}
    fresh = generate(family, nodes=len(instance.nodes), jobs=count, seed=SEED + 1, moves=False).jobs
    jobs = [
        job.model_copy(update={"current": result.plan.get(job.name)}) for job in instance.jobs if job.name not in gone
    ]
    jobs += [job.model_copy(update={"name": f"new-{job.name}"}) for job in fresh]
    return instance.model_copy(update={"jobs": tuple(jobs)})


def main(arguments: list[str]) -> None:
    """Run the row that the first file describes, and write what came of it to the second."""
    spec, out = arguments
    outcome = run(Spec(**json.loads(Path(spec).read_text(encoding="utf-8"))))
    Path(out).write_text(json.dumps(asdict(outcome)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
