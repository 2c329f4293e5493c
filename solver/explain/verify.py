"""A change counts only if a plan of the changed instance runs the job, keeps every rule and is worth no less."""

from __future__ import annotations

from coplace.formulations.evaluate import evaluate
from coplace.formulations.scoring import Scoring
from coplace.formulations.speed import SpeedModel
from coplace.instances.instance import Instance
from coplace.instances.plan import Allocation, Plan
from coplace.solver.check import check
from coplace.solver.explain.changes.change import Change
from coplace.solver.explain.report import Counterfactual
from coplace.solver.explain.start import start
from coplace.solver.packing import Packer
from coplace.solver.state import State


def verified(change: Change, job: str, model: SpeedModel | None = None) -> Counterfactual | None:
    """*change* with a checked plan of its instance that runs *job*; None if none is found.

    All jobs but those that the change itself moves keep exactly their tasks. Everything is computed anew from the
    changed instance, weights included, since they depend on all jobs.
    """
    scoring = Scoring(change.instance, model)
    plan = change.plan or _with_start(scoring, change.without, job)
    if plan is None:
        return None
    report = check(change.instance, plan, scoring)
    before = evaluate(change.instance, change.without, scoring).objective
    if not report.feasible or job not in plan or not report.objective >= before:
        return None
    outcome = report.evaluation.jobs[job]
    return Counterfactual(
        change.kind, change.words, change.share, outcome, report.objective - before, change.cost, change.instance,
        change.without, plan,
    )  # fmt: skip


def _with_start(scoring: Scoring, plan: Plan, job: str) -> Plan | None:
    """*plan* with *job* started where it gains most; None if it has no room or gains nothing."""
    state = State(scoring, plan)
    found = start(state, Packer(state), scoring.index[job])
    if found is None:
        return None
    return with_allocation(scoring.instance, plan, {job: found[1].allocation(state.nodes.names)})


def with_allocation(instance: Instance, plan: Plan, changed: dict[str, Allocation]) -> Plan:
    """*plan* with other tasks for some jobs, in the order of the instance."""
    allocations = plan.allocations | changed
    return Plan.model_construct(
        allocations={job.name: allocations[job.name] for job in instance.jobs if job.name in allocations}
    )
