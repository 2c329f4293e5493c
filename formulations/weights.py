"""λ: what each job's speed is worth to the goal."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.reference import Reference
from coplace.instances.instance import Instance
from coplace.instances.job import Job


def job_weights(instance: Instance, references: Sequence[Reference]) -> NDArray[np.float64]:
    """λ_j ≥ 0 by job in the order of the instance, the job's own weight included; 0 for a job without any speed."""
    runnable = np.array([reference.speed > 0 for reference in references], dtype=bool)
    if instance.goal == "jct":
        weights = _flow_time_weights(instance, references, runnable)
    elif instance.goal == "makespan":
        weights = _relative_sizes(instance, references, runnable)
    else:
        weights = np.ones(len(instance.jobs))
    return np.asarray(weights * runnable * np.array([job.weight for job in instance.jobs]))


def size(job: Job, reference: Reference) -> float:
    """Seconds of work left at the reference speed, W/v0; with W unknown, the seconds of service attained.

    The latter ranks jobs by least attained service (Nuyens and Wierman, Performance Evaluation 2008): of heavy-tailed
    sizes, those that ran longest have most left.
    """
    if job.remaining is not None:
        return job.remaining / reference.speed
    return job.attained_gpu_seconds / max(1, reference.workers * job.worker.gpu)


def elasticity(references: Sequence[Reference]) -> float:
    """q with speed-up ≈ g^q: least squares through the origin over all jobs' growth points, in [0.05, 0.95].

    The points are ln(best speed / v0) over ln(w / w0); 0.5 if there is none.
    """
    xy = xx = 0.0
    for reference in references:
        for workers, speed in zip(reference.growth_workers, reference.growth_speeds, strict=True):
            x = math.log(workers / reference.workers)
            xy += x * math.log(speed / reference.speed)
            xx += x * x
    return min(0.95, max(0.05, xy / xx)) if xx > 0 else 0.5


def _flow_time_weights(
    instance: Instance, references: Sequence[Reference], runnable: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """λ = i · (1 − (1 − 1/i)^a)^(1/a), i the rank by size (1 = longest), a = 1/(1 − q).

    Maximising Σ λ_i θ_i^q over shares θ of one resource then gives θ_i ∝ i^a − (i − 1)^a, heSRPT's share (Berg,
    Vesilo, Harchol-Balter, arXiv:1903.09346). Written with log1p and expm1, since (1 − 1/i)^a nears 1 for long queues.
    """
    weights = np.zeros(len(instance.jobs))
    active = [j for j, ok in enumerate(runnable) if ok]
    sizes = np.array([size(instance.jobs[j], references[j]) for j in active])
    longest_first = np.array(active, dtype=np.intp)[np.argsort(-sizes, kind="stable")]
    a = 1.0 / (1.0 - elasticity([references[j] for j in active]))
    rank = np.arange(1, len(active) + 1, dtype=float)
    with np.errstate(divide="ignore"):  # log1p(−1) = −∞ at rank 1, where λ = 1
        share = -np.expm1(a * np.log1p(-1.0 / rank))
    weights[longest_first] = rank * share ** (1.0 / a)
    return weights


def _relative_sizes(
    instance: Instance, references: Sequence[Reference], runnable: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """W/v0 over its mean: longest first. A job of unknown length counts as one of mean length: 1.

    The service attained would not do: it is 0 for a job that has not run, which would then be worth nothing.
    """
    known = np.array([job.remaining is not None for job in instance.jobs], dtype=bool) & runnable
    weights = np.ones(len(instance.jobs))
    if known.any():
        sizes = np.array([size(instance.jobs[j], references[j]) for j in np.flatnonzero(known).tolist()])
        weights[known] = sizes / (float(sizes.mean()) or 1.0)
    return weights
