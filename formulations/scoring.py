"""All that scoring needs and that depends on the instance alone: reference speeds, weights, horizons, utilities."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from coplace.formulations.hosts import NodeArrays
from coplace.formulations.memo import Memo
from coplace.formulations.pressure import levels
from coplace.formulations.reference import references
from coplace.formulations.speed import SpeedModel, StatedSpeeds
from coplace.formulations.speed.contract import Numbers
from coplace.formulations.weights import job_weights
from coplace.instances.instance import Instance
from coplace.instances.job import Job
from coplace.instances.plan import Plan

MIN_HORIZON_SECONDS = 900.0
"""Shortest time that a decision is expected to last when only experience tells."""


class Scoring:
    """Turns speeds into values. Arrays are by job, in the order of the instance.

    Attributes:
        instance: what is scored.
        model: the speed model.
        levels: τ of each pressure level.
        references: w0, v0 and the growth from there.
        reference, reference_workers: v0 in samples/s, and w0.
        weights: λ.
        index: job name → position.
        kept: what keep-current keeps, once it has been asked; to be read only.
        memo: what earlier rounds found out; None without any, and with a model that may look at anything of a job.
    """

    def __init__(self, instance: Instance, model: SpeedModel | None = None, memo: Memo | None = None) -> None:
        self.instance = instance
        self.memo = memo if model is None else None
        self.model: SpeedModel = model or StatedSpeeds(self.memo)
        self.levels = levels(instance)
        self.references = found = references(instance, self.model, self.memo)
        self.reference_workers = [reference.workers for reference in found]
        self.reference = [reference.speed for reference in found]
        self.weights = [float(weight) for weight in job_weights(instance, found)]
        self.index = {job.name: j for j, job in enumerate(instance.jobs)}
        self.kept: Plan | None = None
        self._horizon = [horizon_seconds(instance, job) for job in instance.jobs]
        self._scale = [self._utility_scale(job, v0) for job, v0 in zip(instance.jobs, self.reference, strict=True)]

    @cached_property
    def nodes(self) -> NodeArrays:
        """The nodes as arrays."""
        return NodeArrays(self.instance)

    def effective(self, j: int, speed: Numbers, kept: bool) -> Numbers:
        """e in samples/s: the mean speed over the expected time, restart included. Scalar or array like *speed*.

        e = v if *kept*, else v · H / (H + δ) with H = min(horizon, W/v).
        """
        job = self.instance.jobs[j]
        if kept or job.restart_seconds == 0:
            return speed
        if job.remaining is None:
            horizon: Numbers = self._horizon[j]
        else:
            # H = min(horizon, W/v), written so that speed 0 needs no division
            larger = max if isinstance(speed, float) else np.maximum
            horizon = job.remaining / larger(speed, job.remaining / self._horizon[j])
        return speed * horizon / (horizon + job.restart_seconds)

    def value(self, j: int, speed: Numbers, kept: bool) -> Numbers:
        """λ · U(e / v0) of job *j* at *speed* (samples/s), 0 at speed 0. Scalar or array like *speed*."""
        if self.weights[j] == 0:
            return speed * 0.0
        s = self.effective(j, speed, kept) / self._scale[j]
        if self.instance.goal == "fairness":
            s = np.log1p(s)
        elif self.instance.goal == "deadline":
            s = np.minimum(1.0, s)
        return self.weights[j] * s

    def _utility_scale(self, job: Job, reference: float) -> float:
        """What e is measured against: v0, or for the goal deadline the speed that meets it."""
        if self.instance.goal == "deadline" and job.remaining is not None and (job.deadline_seconds or 0) > 0:
            assert job.deadline_seconds is not None
            return job.remaining / job.deadline_seconds
        return reference


def horizon_seconds(instance: Instance, job: Job) -> float:
    """How long a decision about *job* is expected to last: the instance's horizon, else the job's experience."""
    if instance.horizon_seconds is not None:
        return instance.horizon_seconds
    return max(MIN_HORIZON_SECONDS, job.age_seconds / (job.restarts + 1))
