"""The checker: is a plan feasible, and what is it worth? Shares nothing with the methods that make plans."""

from __future__ import annotations

from dataclasses import dataclass

from coplace.formulations.evaluate import Evaluation, outcomes, runs
from coplace.formulations.keep import displaced
from coplace.formulations.rules import Occupancy, Violation, cordon_violations, is_moved, job_violations
from coplace.formulations.scoring import Scoring
from coplace.instances.instance import Instance
from coplace.instances.plan import Plan


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Every broken rule, and the objective recomputed.

    Attributes:
        violations: broken rules; empty for a feasible plan.
        evaluation: the objective of the plan and the outcome of each job, by the evaluator.
        moved: running jobs that change, displaced ones aside.
    """

    violations: tuple[Violation, ...]
    evaluation: Evaluation
    moved: tuple[str, ...]

    @property
    def objective(self) -> float:
        """Value of the plan by the evaluator."""
        return self.evaluation.objective

    @property
    def feasible(self) -> bool:
        """Whether the plan keeps every rule."""
        return not self.violations


def check(instance: Instance, plan: Plan, scoring: Scoring | None = None) -> CheckReport:
    """Check *plan* against every rule of docs/model.md and recompute its objective."""
    scoring = scoring or Scoring(instance)
    violations = [
        Violation("unknown", f"{name} is no job of the instance", job=name)
        for name in plan.allocations
        if name not in instance.job
    ]
    occupancy = Occupancy(scoring)
    forced = displaced(instance, scoring)
    moved = []
    sound = []
    for job in instance.jobs:
        allocation = plan.get(job.name)
        if allocation is not None:
            own = list(job_violations(scoring, job, allocation))
            if runs(own):
                sound.append((job, allocation))
            violations += own
            violations += cordon_violations(scoring, job, allocation)
            occupancy.add(job, allocation)
        if is_moved(job, allocation, forced):
            moved.append(job.name)
            if job.pinned:
                what = "stopped" if allocation is None else "changed"
                violations.append(Violation("pinned", f"pinned job {job.name} is {what}", job=job.name))
    violations += occupancy.violations()
    budget = instance.rules.move_budget
    if budget is not None and len(moved) > budget:
        message = f"{len(moved)} running jobs are moved, allowed are {budget}: {', '.join(moved[:8])}"
        violations.append(Violation("move-budget", message, amount=len(moved), limit=budget))
    return CheckReport(tuple(violations), outcomes(scoring, occupancy, sound), tuple(moved))
