"""Keep-current: the running plan without the jobs that no longer fit. Feasible by construction."""

from __future__ import annotations

from coplace.formulations.rules import Occupancy, job_violations
from coplace.formulations.scoring import Scoring
from coplace.instances.instance import Instance
from coplace.instances.plan import Plan


def keep_current(instance: Instance, scoring: Scoring | None = None) -> Plan:
    """What runs now, less the jobs that lost capacity or a tightened rule has ended.

    Jobs are kept one after the other as long as no rule breaks: pinned ones first, then by falling own weight, then in
    the order of the instance. *scoring* remembers the answer.
    """
    scoring = scoring or Scoring(instance)
    if scoring.kept is None:
        scoring.kept = _keep_current(instance, scoring)
    return scoring.kept


def _keep_current(instance: Instance, scoring: Scoring) -> Plan:
    running = sorted((job for job in instance.jobs if job.running), key=lambda job: (not job.pinned, -job.weight))
    occupancy = Occupancy(scoring)
    kept = {}
    for job in running:
        assert job.current is not None
        if job_violations(scoring, job, job.current):
            continue
        occupancy.add(job, job.current)
        if occupancy.fits(job, job.current):
            kept[job.name] = job.current
        else:
            occupancy.add(job, job.current, sign=-1)
    return Plan.model_construct(allocations={job.name: kept[job.name] for job in instance.jobs if job.name in kept})


def displaced(instance: Instance, scoring: Scoring | None = None) -> frozenset[str]:
    """Running jobs that keep-current drops; whatever becomes of them is no move."""
    kept = keep_current(instance, scoring)
    return frozenset(job.name for job in instance.jobs if job.running and job.name not in kept)
