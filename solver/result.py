"""What a solve returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from coplace.formulations.evaluate import JobOutcome
from coplace.formulations.relaxation.rows import PricedRow
from coplace.instances.instance import Instance
from coplace.instances.plan import Allocation, Plan

RESULT_VERSION = "coplace.result/v1"

Status = Literal["optimal", "feasible"]
Reason = Literal["finished", "gap", "time", "memory", "interrupted", "backend_failure"]
"""Why a solve stopped: its method ran to its end, the gap asked for was reached, a limit was hit, …"""


@dataclass(frozen=True, slots=True)
class Pending:
    """A job that the plan leaves waiting.

    Attributes:
        job: its name.
        rule: what holds it: ``capacity``, ``fragmentation``, ``quota``, ``pressure``, ``cordon``, ``selector``,
            ``speed``, ``tasks-per-node``, ``value`` (it fits, and starting it gains nothing) or ``search`` (left out).
        resource: the resource that holds it, where it is one.
        reason: a sentence with amounts that holds for this plan.
    """

    job: str
    rule: str
    resource: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Result:
    """A checked plan and what is known about it.

    Attributes:
        status: ``optimal`` if proven within the gap asked for, else ``feasible``.
        reason: why the solve stopped.
        objective: of the plan, by the evaluator.
        bound: proven upper bound on every plan's objective by a solver; None if unknown.
        gap: (bound − objective) / max(bound, 1e-9); None if unknown.
        certified_bound: upper bound that :func:`~coplace.solver.certificate.certify` recomputes from the prices; None
            without prices.
        certified_gap: the gap with that bound; None if unknown.
        prices: rows with a price above 0, sorted; None if the method has none.
        detail: more about the reason after a failure; None otherwise.
        wall_seconds: time that the solve took.
        method: the method that was asked for.
        found_by: the rung that found the plan.
        seed: seed of the solve.
        plan: what the cluster is to run.
        jobs: outcome of each job that the plan runs.
        pending: the other jobs and why they wait.
        moved: running jobs that are moved, resized or stopped: what the move budget counts, so without the displaced.
        displaced: running jobs that lost capacity or a tightened rule has ended.
        instance_sha256: hash of the instance.
    """

    status: Status
    reason: Reason
    objective: float
    bound: float | None
    gap: float | None
    certified_bound: float | None
    certified_gap: float | None
    prices: tuple[PricedRow, ...] | None
    detail: str | None
    wall_seconds: float
    method: str
    found_by: str
    seed: int
    plan: Plan
    jobs: dict[str, JobOutcome]
    pending: tuple[Pending, ...]
    moved: tuple[str, ...]
    displaced: tuple[str, ...]
    instance_sha256: str

    def to_document(self, instance: Instance) -> dict[str, Any]:
        """The result as one JSON object, described in docs/file-format.md."""
        return {
            "version": RESULT_VERSION,
            "instance": {"name": instance.name, "sha256": self.instance_sha256, "goal": instance.goal},
            "status": self.status,
            "reason": self.reason,
            "objective": self.objective,
            "bound": self.bound,
            "gap": self.gap,
            "certified_bound": self.certified_bound,
            "certified_gap": self.certified_gap,
            "detail": self.detail,
            "wall_seconds": round(self.wall_seconds, 6),
            "method": self.method,
            "found_by": self.found_by,
            "seed": self.seed,
            "plan": {name: self._planned(instance, name) for name in self.plan.allocations},
            "pending": [
                {"job": p.job, "rule": p.rule, "resource": p.resource, "reason": p.reason} for p in self.pending
            ],
            "moved": list(self.moved),
            "displaced": list(self.displaced),
            "prices": None
            if self.prices is None
            else [{"row": row.kind, "key": row.key(), "price": price} for row, price in self.prices],
        }

    def _planned(self, instance: Instance, name: str) -> dict[str, Any]:
        allocation, outcome = self.plan[name], self.jobs[name]
        pressure = instance.pressure_levels[outcome.level] if instance.pressure_levels else None
        return {
            "gpu_type": outcome.gpu_type,
            "workers": outcome.workers,
            "servers": outcome.servers,
            "span": outcome.span,
            "pressure": pressure,
            "speed": outcome.speed,
            "value": outcome.value,
            "change": change_of(instance, name, allocation),
            "tasks": {role: dict(placed) for role, placed in allocation.tasks.items()},
            "profiles": dict(allocation.profiles),
        }


def change_of(instance: Instance, name: str, planned: Allocation) -> Literal["kept", "started", "resized", "moved"]:
    """What becomes of the job: ``resized`` where its counts or profiles change, ``moved`` where only its nodes do."""
    current = instance.job[name].current
    if current is None:
        return "started"
    if planned.same_as(current):
        return "kept"
    return "moved" if current.shape == planned.shape else "resized"
