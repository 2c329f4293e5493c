"""What the exact formulations choose from: columns of every job, kept columns, and lines for jobs with many counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from coplace.formulations.candidates import Candidates, job_candidates
from coplace.formulations.hosts import NodeArrays
from coplace.formulations.keep import displaced
from coplace.formulations.lines import Line, job_lines
from coplace.formulations.rules import job_violations, speed_of
from coplace.formulations.scoring import Scoring
from coplace.instances.instance import Instance
from coplace.instances.job import Job
from coplace.instances.plan import PS, WORKER, Allocation

Counts = Literal["auto", "columns", "lines"]

MANY_COUNTS = 64
"""Worker counts of a job above which lines are thought of."""

MANY_COLUMNS = 1_000
"""Columns of such a job above which it gets lines instead; with fewer, lines make models neither smaller nor easier."""

MOST_CELLS = 4_000_000
"""Configurations, pruned or not, of such a job above which it gets lines without a look at its columns."""

LINE_TOLERANCE = 1e-2
"""How far lines may miss the values of a job, as a share of its best value."""


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
        lines: ways to start it or to move it to, for many worker counts each; a job has these or columns.
    """

    job: Job
    columns: tuple[Column, ...]
    kept: tuple[float, ...]
    must_keep: bool
    counts_as_move: bool
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnSet:
    """The choices of all jobs, in the order of the instance.

    Attributes:
        instance: the instance.
        jobs: one entry per job.
        error: how much the objective of any plan can exceed the best that the choices offer; 0 without lines.
        excess: how much what the choices promise can exceed the objective of the plan; 0 without lines.
    """

    instance: Instance
    jobs: tuple[JobColumns, ...]
    error: float = 0.0
    excess: float = 0.0

    def shape_of(self, allocation: Allocation) -> tuple[int, int, int, int, int]:
        """GPU type, counts and profiles of *allocation*: the first fields of the columns that it is a placement of."""
        on = self.instance.node[next(iter(allocation.tasks[WORKER]))].gpu_type
        profiles = (allocation.profile(WORKER), allocation.profile(PS))
        return (self.instance.gpu_types.index(on), allocation.workers, allocation.servers, *profiles)

    def restricted(self, keep: list[list[bool]], lines: list[list[bool]] | None = None) -> ColumnSet:
        """The same with only the columns that *keep* names, by [job][column]; kept columns stay.

        Likewise with the lines that *lines* names, by [job][line]; all of them if it is None.
        """
        jobs = tuple(
            replace(job, columns=tuple(column for column, stays in zip(job.columns, mask, strict=True) if stays))
            for job, mask in zip(self.jobs, keep, strict=True)
        )
        if lines is not None:
            jobs = tuple(
                replace(job, lines=tuple(line for line, stays in zip(job.lines, mask, strict=True) if stays))
                for job, mask in zip(jobs, lines, strict=True)
            )
        return replace(self, jobs=jobs)


def column_set(
    instance: Instance, scoring: Scoring | None = None, *, counts: Counts = "auto", tolerance: float = LINE_TOLERANCE
) -> ColumnSet:
    """All choices of *instance*.

    Args:
        instance: the instance.
        scoring: of it.
        counts: how worker counts are offered: each as columns of its own, all as lines, or as lines where a job has
            more than :data:`MANY_COUNTS` of them and more than :data:`MANY_COLUMNS` columns.
        tolerance: of lines, as a share of the job's best value.
    """
    scoring = scoring or Scoring(instance)
    nodes = NodeArrays(instance)
    gone = displaced(instance, scoring)
    jobs = []
    error = excess = 0.0
    for j, job in enumerate(instance.jobs):
        kept = kept_values(scoring, j, job)
        running = job.running and job.name not in gone
        columns: tuple[Column, ...] = ()
        lines: tuple[Line, ...] = ()
        must_keep = job.pinned and running
        if not must_keep:
            unseen = counts == "lines" or (counts == "auto" and too_many_to_count(instance, job))
            found = None if unseen else job_candidates(scoring, nodes, j, True)
            if found is None or (counts == "auto" and _many_counts(job) and len(found) > MANY_COLUMNS):
                fitted = job_lines(scoring, nodes, j, tolerance)
                lines, error, excess = fitted.lines, error + fitted.error, excess + fitted.excess
            else:
                columns = _columns(found)
        jobs.append(JobColumns(job, columns, kept, must_keep, running, lines))
    return ColumnSet(instance, tuple(jobs), error, excess)


def _many_counts(job: Job) -> bool:
    return job.worker.max - job.worker.min >= MANY_COUNTS


def too_many_to_count(instance: Instance, job: Job) -> bool:
    """Whether the columns of a job with many counts are too many even to be counted."""
    if not _many_counts(job):
        return False
    workers, servers = job.worker.max - job.worker.min + 1, job.max_servers - job.min_servers + 1
    profiles = len(job.worker.profiles) * (len(job.ps.profiles) if job.ps else 1)
    types = len(set(job.types) & set(instance.gpu_types))
    spans = min(job.worker.max + job.max_servers, len(instance.nodes))
    return workers * servers * profiles * types * (len(instance.pressure_levels) or 1) * spans > MOST_CELLS


def _columns(found: Candidates) -> tuple[Column, ...]:
    fields = (
        found.gpu_type, found.workers, found.servers, found.worker_profile, found.ps_profile, found.span, found.level,
        found.ps_memory, found.value,
    )  # fmt: skip
    return tuple(Column(*row) for row in zip(*(field.tolist() for field in fields), strict=True) if row[-1] > 0)


def kept_values(scoring: Scoring, j: int, job: Job) -> tuple[float, ...]:
    """K_jℓ by level; empty where the current tasks break a rule of their own."""
    if job.current is None or job_violations(scoring, job, job.current):
        return ()
    if not all(scoring.instance.node[name].available for name in job.current.nodes):
        return ()
    levels = range(len(scoring.levels))
    speeds = [speed_of(scoring, job, job.current, level) for level in levels]
    return tuple(float(scoring.value(j, speed, kept=True)) for speed in speeds)
