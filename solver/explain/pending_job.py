"""A waiting job: what holds it, and the smallest change of each kind that admits it."""

from __future__ import annotations

import time

from coplace.formulations.scoring import Scoring
from coplace.instances.plan import Plan
from coplace.solver.explain.case import Case
from coplace.solver.explain.changes import KINDS, NOTHING, Change
from coplace.solver.explain.report import Counterfactual, WaitingJob
from coplace.solver.explain.verify import verified
from coplace.solver.pending import pending_jobs

AFTER_QUOTA = ("weight", "minimum", "profile", "uncordon", "capacity", "shrink", "stop", "node")
"""Kinds that are tried on top of a raised quota, where that alone does not admit the job."""


def waiting_job(scoring: Scoring, plan: Plan, name: str, time_limit: float) -> WaitingJob:
    """Explain the waiting job *name*; kinds that are not reached within *time_limit* seconds are named."""
    deadline = time.monotonic() + time_limit
    (pending,) = (entry for entry in pending_jobs(scoring, plan) if entry.job == name)
    case = Case(scoring, plan, name)
    if case.as_it_is is not None:
        now = Change(NOTHING, "nothing: it fits and gains as things stand", 0.0, case.instance, plan)
        found = verified(now, name, scoring.model)
        if found is not None:
            return WaitingJob(name, pending, (found,))
    counterfactuals, not_tried = _smallest_of(case, tuple(KINDS), deadline)
    if not not_tried and all(found.kind != "quota" for found in counterfactuals):
        pairs, not_tried = _beyond_the_quota(case, deadline)
        counterfactuals += pairs
    return WaitingJob(name, pending, _ranked(counterfactuals), not_tried)


def _smallest_of(case: Case, kinds: tuple[str, ...], deadline: float) -> tuple[list[Counterfactual], tuple[str, ...]]:
    """The first verified change of each kind, and the kinds that the deadline cut off."""
    found: list[Counterfactual] = []
    for number, kind in enumerate(kinds):
        for change in KINDS[kind](case):
            if time.monotonic() > deadline:
                return found, kinds[number:]
            counterfactual = verified(change, case.job.name, case.scoring.model)
            if counterfactual is not None:
                found.append(counterfactual)
                break
    return found, ()


def _beyond_the_quota(case: Case, deadline: float) -> tuple[list[Counterfactual], tuple[str, ...]]:
    """Pairs of changes: a raised quota, and what holds the job then."""
    raised = next(KINDS["quota"](case), None)
    if raised is None:
        return [], ()
    after = Case(Scoring(raised.instance, case.scoring.model), case.plan, case.job.name)
    found, not_tried = _smallest_of(after, AFTER_QUOTA, deadline)
    pairs = [
        Counterfactual(
            f"quota+{second.kind}", f"{raised.words}, and {second.change}", raised.share + second.share,
            second.outcome, second.gain, second.cost, second.instance, second.without, second.plan,
        )
        for second in found
    ]  # fmt: skip
    return pairs, tuple(f"quota+{kind}" for kind in not_tried)


def _ranked(found: list[Counterfactual]) -> tuple[Counterfactual, ...]:
    """By size; equal ones in the order of the kinds, which they come in."""
    return tuple(sorted(found, key=lambda counterfactual: counterfactual.share))
