"""What the exact formulations choose from: columns of every job, kept columns, and lines for jobs with many counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from coplace.formulations.candidates import candidates
from coplace.formulations.keep import displaced
from coplace.formulations.rules import job_violations, speed_of
from coplace.formulations.scoring import Scoring
from coplace.instances.instance import Instance
from coplace.instances.job import Job
from coplace.instances.plan import PS, WORKER, Allocation


class Column(NamedTuple):
    """One way to start a job or to move it to.

    Attributes:
        gpu_type: index into the instance's ``gpu_types``.
        workers, servers: counts.
        worker_profile, ps_profile: indices of the request profiles.
        span: most distinct nodes.
        level: highest pressure level that a node in use may run at.
        ps_memory: MiB of one server.
        value: λ · U, restart included.
    """

    gpu_type: int
    workers: int
    servers: int
    worker_profile: int
    ps_profile: int
    span: int
    level: int
    ps_memory: int
    value: float


@dataclass(frozen=True, slots=True)
class JobColumns:
    """The choices of one job.

    Attributes:
        job: the job.
        columns: ways to start it or to move it to; empty for a pinned job that is kept.
        kept: value of running exactly what runs now, by the pressure level it may feel; empty if it cannot go on.
        must_keep: pinned and not displaced.
        counts_as_move: running and not displaced, so that anything but keeping it is a move.
    """

    job: Job
    columns: tuple[Column, ...]
    kept: tuple[float, ...]
    must_keep: bool
    counts_as_move: bool


@dataclass(frozen=True, slots=True)
class ColumnSet:
    """The choices of all jobs, in the order of the instance.

    Attributes:
        instance: the instance.
        jobs: one entry per job.
        error: how much the objective of any plan can exceed what the columns give it; 0 without lines.
    """

    instance: Instance
    jobs: tuple[JobColumns, ...]
    error: float = 0.0

    def shape_of(self, allocation: Allocation) -> tuple[int, int, int, int, int]:
        """GPU type, counts and profiles of *allocation*: the first fields of the columns that it is a placement of."""
        on = self.instance.node[next(iter(allocation.tasks[WORKER]))].gpu_type
        profiles = (allocation.profile(WORKER), allocation.profile(PS))
        return (self.instance.gpu_types.index(on), allocation.workers, allocation.servers, *profiles)

    def restricted(self, keep: list[list[bool]]) -> ColumnSet:
        """The same with only the columns that *keep* names, by [job][column]; kept columns stay."""
        jobs = tuple(
            replace(job, columns=tuple(column for column, stays in zip(job.columns, mask, strict=True) if stays))
            for job, mask in zip(self.jobs, keep, strict=True)
        )
        return replace(self, jobs=jobs)


def column_set(instance: Instance, scoring: Scoring | None = None) -> ColumnSet:
    """All columns of *instance*."""
    scoring = scoring or Scoring(instance)
    found = candidates(instance, scoring)
    fields = (
        found.gpu_type, found.workers, found.servers, found.worker_profile, found.ps_profile, found.span, found.level,
        found.ps_memory, found.value,
    )  # fmt: skip
    rows = list(zip(*(field.tolist() for field in fields), strict=True))
    starts = np.searchsorted(found.job, np.arange(len(instance.jobs) + 1)).tolist()
    gone = displaced(instance, scoring)
    jobs = []
    for j, job in enumerate(instance.jobs):
        kept = _kept_values(scoring, j, job)
        counts = job.running and job.name not in gone
        must_keep = job.pinned and counts
        columns = () if must_keep else tuple(Column(*row) for row in rows[starts[j] : starts[j + 1]] if row[-1] > 0)
        jobs.append(JobColumns(job, columns, kept, must_keep, counts))
    return ColumnSet(instance, tuple(jobs))


def _kept_values(scoring: Scoring, j: int, job: Job) -> tuple[float, ...]:
    """K_jℓ by level; empty where the current tasks break a rule of their own."""
    if job.current is None or job_violations(scoring, job, job.current):
        return ()
    if not all(scoring.instance.node[name].available for name in job.current.nodes):
        return ()
    levels = range(len(scoring.levels))
    speeds = [speed_of(scoring, job, job.current, level) for level in levels]
    return tuple(float(scoring.value(j, speed, kept=True)) for speed in speeds)
