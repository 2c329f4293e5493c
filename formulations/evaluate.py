"""The evaluator: what a plan is worth, from the instance alone. Every method's plan is scored here."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from coplace.formulations.rules import STRUCTURE, Occupancy, Violation, job_violations, speed_of
from coplace.formulations.scoring import Scoring
from coplace.instances.instance import Instance
from coplace.instances.job import Job
from coplace.instances.plan import WORKER, Allocation, Plan


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What a plan does for one job that it runs.

    Attributes:
        gpu_type: of the workers.
        workers, servers, span: counts.
        level: pressure level that the job feels; index into the ladder.
        speed: v in samples/s.
        effective_speed: e in samples/s, restart included.
        value: λ · U, the job's part of the objective.
        weight: λ.
        kept: runs exactly what it ran before.
    """

    gpu_type: str
    workers: int
    servers: int
    span: int
    level: int
    speed: float
    effective_speed: float
    value: float
    weight: float
    kept: bool


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Objective of a plan and the outcome of each job that it runs, by name."""

    objective: float
    jobs: dict[str, JobOutcome]


def evaluate(instance: Instance, plan: Plan, scoring: Scoring | None = None) -> Evaluation:
    """Score *plan*: Σ_j λ_j · U(e_j / v0_j), docs/model.md.

    A plan that breaks a rule is scored too: jobs whose own tasks break ``unknown``, ``gang``, ``profile``, ``gpu-type``
    or ``speed`` count as running nothing, and nodes above the highest pressure level as running at it.
    """
    scoring = scoring or Scoring(instance)
    occupancy = Occupancy(scoring)
    planned = [(job, plan[job.name]) for job in instance.jobs if job.name in plan]
    for job, allocation in planned:
        occupancy.add(job, allocation)
    sound = [(job, allocation) for job, allocation in planned if runs(job_violations(scoring, job, allocation))]
    return outcomes(scoring, occupancy, sound)


def runs(violations: Iterable[Violation]) -> bool:
    """Whether a job whose own tasks break those rules counts as running something."""
    return not any(violation.rule in STRUCTURE or violation.rule == "speed" for violation in violations)


def outcomes(scoring: Scoring, occupancy: Occupancy, planned: Iterable[tuple[Job, Allocation]]) -> Evaluation:
    """Score the jobs *planned*, whose allocations have a speed, on nodes as full as *occupancy* says."""
    instance = scoring.instance
    top = len(scoring.levels) - 1
    found = {}
    for job, allocation in planned:
        j = scoring.index[job.name]
        level = min(top, max(occupancy.level(name) for name in allocation.nodes))
        speed = speed_of(scoring, job, allocation, level)
        kept = allocation.same_as(job.current)
        found[job.name] = JobOutcome(
            gpu_type=instance.node[next(iter(allocation.tasks[WORKER]))].gpu_type,
            workers=allocation.workers,
            servers=allocation.servers,
            span=allocation.span,
            level=level,
            speed=speed,
            effective_speed=float(scoring.effective(j, speed, kept)),
            value=float(scoring.value(j, speed, kept)),
            weight=scoring.weights[j],
            kept=kept,
        )
    return Evaluation(math.fsum(outcome.value for outcome in found.values()), found)
