"""The front door of explanations."""

from __future__ import annotations

from coplace.formulations.scoring import Scoring
from coplace.formulations.speed import SpeedModel
from coplace.instances.consistency import nearest
from coplace.instances.errors import InputError, Problem
from coplace.instances.instance import Instance
from coplace.instances.plan import Plan
from coplace.solver.check import check
from coplace.solver.explain.cluster import cluster
from coplace.solver.explain.pending_job import waiting_job
from coplace.solver.explain.report import Explanation
from coplace.solver.explain.running_job import running_job


def explain(
    instance: Instance,
    plan: Plan,
    job: str | None = None,
    *,
    verify: int = 0,
    time_limit: float = 10.0,
    seed: int = 0,
    model: SpeedModel | None = None,
) -> Explanation:
    """Explain what *plan* does for a job, or what more of anything would be worth to the cluster.

    Args:
        instance: what the plan was made for.
        plan: a feasible plan of it.
        job: name of the job to explain; None = the cluster.
        verify: of the cluster's what-ifs, how many of the best are measured by solving the changed instance.
        time_limit: seconds of wall time: for the changes that may admit a waiting job, or for those solves.
        seed: for those solves.
        model: predicts speeds; by default the forms and tables in the instance are taken as they are.

    Returns:
        A :class:`~coplace.solver.explain.report.WaitingJob`, a ``RunningJob`` or, without a job, a ``Cluster``.

    Raises:
        InputError: no such job, a plan that breaks a rule of the instance, or a limit out of range.
    """
    if not time_limit > 0:
        raise InputError([Problem("time_limit", "must be above 0 seconds", str(time_limit))])
    if not verify >= 0:
        raise InputError([Problem("verify", "must not be negative", str(verify))])
    if job is not None and job not in instance.job:
        raise InputError([Problem("job", "must be a job of the instance", repr(job), nearest(job, instance.job))])
    scoring = Scoring(instance, model)
    broken = check(instance, plan, scoring).violations
    if broken:
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        mend = "coplace check lists what it breaks; only a plan that keeps every rule can be explained"
        raise InputError([Problem("plan", "must keep every rule of the instance", f"{broken[0]}{more}", mend)])
    if job is None:
        return cluster(scoring, plan, verify, time_limit, seed)
    if job in plan:
        return running_job(scoring, plan, job)
    return waiting_job(scoring, plan, job, time_limit)
