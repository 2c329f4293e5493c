"""What an explanation says, as data: of a waiting job, of a job that runs, of the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from coplace.formulations.evaluate import JobOutcome
from coplace.instances.instance import Instance
from coplace.instances.plan import Allocation, Plan
from coplace.solver.result import Pending

EXPLANATION_VERSION = "coplace.explanation/v1"


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """A change that would admit a waiting job; a plan of the changed instance in which the job runs has been checked.

    Attributes:
        kind: of change, one of :data:`~coplace.solver.explain.changes.KINDS`, or two joined by ``+``.
        change: what changes, in words.
        share: the largest share of any resource of the cluster that the change adds, takes or gives up.
        outcome: what the job would get.
        gain: of the objective on the changed instance, by starting the job.
        cost: what the job that has to give way is worth less by the change, on the instance as it is; 0 without one.
        instance: the changed instance.
        without: its plan before the job starts: the given one, as far as the change leaves it.
        plan: its plan with the job.
    """

    kind: str
    change: str
    share: float
    outcome: JobOutcome
    gain: float
    cost: float
    instance: Instance
    without: Plan
    plan: Plan

    def to_document(self, job: str) -> dict[str, Any]:
        """All but the instance and the plans, of which only the tasks of *job* are said."""
        return {
            "kind": self.kind,
            "change": self.change,
            "share": self.share,
            "gain": self.gain,
            "cost": self.cost,
            "would_run": run_document(self.plan[job], self.outcome),
        }


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """Why a job waits, and what would admit it.

    Attributes:
        job: its name.
        pending: what holds it in this plan.
        counterfactuals: the smallest change of each kind that was found, smallest first.
        not_tried: kinds for which the time did not suffice.
    """

    job: str
    pending: Pending
    counterfactuals: tuple[Counterfactual, ...]
    not_tried: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """As one JSON object, described in docs/how-to-explain.md."""
        return {
            "version": EXPLANATION_VERSION,
            "about": "waiting",
            "job": self.job,
            "rule": self.pending.rule,
            "resource": self.pending.resource,
            "reason": self.pending.reason,
            "changes": [found.to_document(self.job) for found in self.counterfactuals],
            "not_tried": list(self.not_tried),
        }


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way to run a job, the rest of the plan as it is.

    Attributes:
        allocation: its tasks.
        gpu_type: of the workers.
        value: λ · U of the job, restart included.
        gain: in the objective over the job running nothing: the value less what its pressure costs others.
    """

    allocation: Allocation
    gpu_type: str
    value: float
    gain: float

    def to_document(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"value": self.value, "gain": self.gain} | _tasks_document(self.allocation, self.gpu_type)


@dataclass(frozen=True, slots=True)
class RunningJob:
    """Why a job runs as it does.

    Attributes:
        job: its name.
        change: ``kept``, ``started``, ``resized`` or ``moved``.
        allocation, outcome: what it gets.
        gain: what the objective would lose if it ran nothing, the rest of the plan as it is.
        restart_cost: how much more it would be worth if starting or moving it cost no time.
        pressure_cost: what its pressure costs the jobs beside it; its value less ``gain``.
        stayed: it as it ran until now, beside the rest of the plan; None if it did not run or that no longer fits.
        stayed_held: why it could not have stayed; None if it could, or did not run.
        runner_up: the next best way to run it that was found; None if there is none or it is pinned.
        gave_way: jobs that ran on nodes where it gets tasks, and what the plan does to each: ``stopped``, ``moved`` …
        next_in_line: the waiting job that would gain most if this one ran nothing; None if none would fit and gain.
        next_gain: what that one would gain.
    """

    job: str
    change: Literal["kept", "started", "resized", "moved"]
    allocation: Allocation
    outcome: JobOutcome
    gain: float
    restart_cost: float
    pressure_cost: float
    stayed: Alternative | None
    stayed_held: str | None
    runner_up: Alternative | None
    gave_way: dict[str, str]
    next_in_line: str | None
    next_gain: float

    def to_document(self) -> dict[str, Any]:
        """As one JSON object, described in docs/how-to-explain.md."""
        return {
            "version": EXPLANATION_VERSION,
            "about": "running",
            "job": self.job,
            "change": self.change,
            "runs": run_document(self.allocation, self.outcome),
            "gain": self.gain,
            "restart_cost": self.restart_cost,
            "pressure_cost": self.pressure_cost,
            "stayed": self.stayed and self.stayed.to_document(),
            "stayed_held": self.stayed_held,
            "runner_up": self.runner_up and self.runner_up.to_document(),
            "gave_way": self.gave_way,
            "next_in_line": self.next_in_line,
            "next_gain": self.next_gain,
        }


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A change of the cluster or its rules, what prices estimate of it, and what a solve has measured.

    Attributes:
        kind: ``node``, ``quota``, ``uncordon`` or ``move-budget``.
        change: what changes, in words.
        estimate: by how much the bound rises, at the prices of the instance as it is: an estimate of what the objective
            gains, and no bound of that.
        measured: by how much the best plan found of the changed instance is worth more than the best plan found of
            the instance as it is, both searched alike; None if that was not tried.
    """

    kind: str
    change: str
    estimate: float
    measured: float | None = None

    def to_document(self, objective: float) -> dict[str, Any]:
        """As a JSON object; shares are of *objective*."""
        return {
            "kind": self.kind,
            "change": self.change,
            "estimate": self.estimate,
            "estimate_share": _of(self.estimate, objective),
            "measured": self.measured,
            "measured_share": None if self.measured is None else _of(self.measured, objective),
        }


@dataclass(frozen=True, slots=True)
class Cluster:
    """What more of anything would be worth.

    Attributes:
        objective: of the plan.
        bound: no plan is worth more, by the same prices.
        searched: objective of the best plan of the instance as it is that the measurements found; None without any.
        what_ifs: by falling estimate.
    """

    objective: float
    bound: float
    searched: float | None
    what_ifs: tuple[WhatIf, ...]

    def to_document(self) -> dict[str, Any]:
        """As one JSON object, described in docs/how-to-explain.md."""
        return {
            "version": EXPLANATION_VERSION,
            "about": "cluster",
            "objective": self.objective,
            "bound": self.bound,
            "searched": self.searched,
            "what_ifs": [what_if.to_document(self.objective) for what_if in self.what_ifs],
        }


Explanation = WaitingJob | RunningJob | Cluster
"""What :func:`~coplace.solver.explain.explain` returns."""


def run_document(allocation: Allocation, outcome: JobOutcome) -> dict[str, Any]:
    """What a job gets, under the names that a result uses."""
    return {
        "span": outcome.span,
        "speed": outcome.speed,
        "value": outcome.value,
    } | _tasks_document(allocation, outcome.gpu_type)


def _tasks_document(allocation: Allocation, gpu_type: str) -> dict[str, Any]:
    return {
        "gpu_type": gpu_type,
        "workers": allocation.workers,
        "servers": allocation.servers,
        "tasks": {role: dict(placed) for role, placed in allocation.tasks.items()},
        "profiles": dict(allocation.profiles),
    }


def _of(amount: float, whole: float) -> float | None:
    return amount / whole if whole > 0 else None
