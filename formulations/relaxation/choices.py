"""All that jobs can choose from, as arrays: columns, corners of lines, and kept columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.candidates import Candidates, job_candidates
from coplace.formulations.columns import LINE_TOLERANCE, Column, ColumnSet, JobColumns, kept_values, too_many_to_count
from coplace.formulations.keep import displaced
from coplace.formulations.lines import Line, job_lines
from coplace.formulations.scoring import Scoring
from coplace.instances.demand import ps_memory
from coplace.instances.instance import Instance
from coplace.instances.job import Job
from coplace.instances.plan import PS, WORKER

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

JOBS_PER_BLOCK = 512
"""Jobs whose choices are packed together, so that those of a large instance are held but once."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """What the choices of a job have in common, by [job], and what one task asks for, by [job, profile].

    Attributes:
        worker_gpu, worker_cpu, worker_memory, worker_intensity: of one worker (GPUs, milli-cores, MiB, units).
        server_cpu, server_intensity: of one server.
        must_keep: pinned and not displaced, so that running nothing is no choice.
        counts_as_move: running and not displaced.
    """

    worker_gpu: Ints
    worker_cpu: Ints
    worker_memory: Ints
    worker_intensity: Ints
    server_cpu: Ints
    server_intensity: Ints
    must_keep: Bools
    counts_as_move: Bools

    def of(self, jobs: Ints) -> Jobs:
        """Those of some jobs."""
        return Jobs(*(getattr(self, field.name)[jobs] for field in fields(self)))


@dataclass(frozen=True)
class Choices:
    """One entry for each choice of each job; running nothing is no entry. Choices of a job are consecutive.

    Attributes:
        instance: the instance.
        positions: of the jobs in the instance, by [job].
        jobs: what they have in common.
        starts: first choice of each job, and their number, by [job + 1].
        job: which job.
        value: λ · U, restart included.
        kept: whether the job goes on exactly as it is; such choices stand last, by level.
        gpu_type: index into the instance's ``gpu_types``.
        level: highest pressure level that a node in use may run at.
        span: most distinct nodes.
        workers, servers: counts.
        worker_profile, ps_profile: indices of the request profiles.
        server_memory: MiB of one server.
        line: index of the line of which it is a corner, among those of its job; −1 for others.
        error: how much the objective of a plan can exceed what the choices offer; 0 without lines.
    """

    instance: Instance
    positions: Ints
    jobs: Jobs
    starts: Ints
    job: NDArray[np.int32]
    value: Floats
    kept: Bools
    gpu_type: NDArray[np.int16]
    level: NDArray[np.int8]
    span: NDArray[np.int32]
    workers: NDArray[np.int32]
    servers: NDArray[np.int32]
    worker_profile: NDArray[np.int8]
    ps_profile: NDArray[np.int8]
    server_memory: Ints
    line: NDArray[np.int32]
    error: float

    def __len__(self) -> int:
        return len(self.value)

    def of(self, j: int) -> slice:
        """The choices of the job at position *j*."""
        return slice(int(self.starts[j]), int(self.starts[j + 1]))

    @cached_property
    def most_value(self) -> Floats:
        """The largest amount of a value by [job], 0 without choices."""
        most = np.zeros(len(self.starts) - 1)
        some = np.flatnonzero(np.diff(self.starts))
        if some.size:
            most[some] = np.maximum.reduceat(np.abs(self.value), self.starts[some])
        return most

    def take(self, chosen: Ints) -> Choices:
        """Only the choices *chosen*, ascending; all jobs stay."""
        arrays = {name: getattr(self, name)[chosen] for name in _ARRAYS}
        return replace(self, starts=np.searchsorted(chosen, self.starts), **arrays)

    def of_jobs(self, some: Ints) -> Choices:
        """Only the jobs *some*, ascending, which are numbered anew."""
        lengths = np.diff(self.starts)[some]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        chosen = np.repeat(self.starts[some] - starts[:-1], lengths) + np.arange(starts[-1])
        arrays = {name: getattr(self, name)[chosen] for name in _ARRAYS}
        arrays["job"] = np.repeat(np.arange(len(some), dtype=np.int32), lengths)
        return replace(self, positions=self.positions[some], jobs=self.jobs.of(some), starts=starts, **arrays)


_TYPES: dict[str, Any] = {
    "job": np.int32, "value": np.float64, "kept": np.bool_, "gpu_type": np.int16, "level": np.int8, "span": np.int32,
    "workers": np.int32, "servers": np.int32, "worker_profile": np.int8, "ps_profile": np.int8,
    "server_memory": np.int64, "line": np.int32,
}  # fmt: skip
_ARRAYS = tuple(_TYPES)

_Rows = list[tuple[float, ...]]
"""Choices one by one: the fields of :data:`_TYPES` without the job."""


def choices_of(columns: ColumnSet) -> Choices:
    """The choices of *columns*: of each job columns, then corners of lines, then kept columns."""
    blocks = _Blocks()
    for j, choices in enumerate(columns.jobs):
        rows = [_column_row(column) for column in choices.columns]
        rows += _line_rows(choices.lines)
        rows += _kept_rows(columns.instance, choices.job, choices.kept)
        blocks.add_rows(j, rows)
    return blocks.choices(columns.instance, columns.jobs, columns.error)


def all_choices(instance: Instance, scoring: Scoring | None = None) -> Choices:
    """All choices of *instance*, without Python objects for columns: for instances of any size.

    Only jobs with millions of configurations get lines in place of columns.
    """
    scoring = scoring or Scoring(instance)
    gone = displaced(instance, scoring)
    blocks = _Blocks()
    about: list[JobColumns] = []
    error = 0.0
    for j, job in enumerate(instance.jobs):
        running = job.running and job.name not in gone
        kept = kept_values(scoring, j, job)
        entry = JobColumns(job, (), kept, job.pinned and running, running)
        if not entry.must_keep and too_many_to_count(instance, job):
            fitted = job_lines(scoring, scoring.nodes, j, LINE_TOLERANCE)
            error += fitted.error
            blocks.add_rows(j, _line_rows(fitted.lines))
        elif not entry.must_keep:
            find = partial(job_candidates, scoring, scoring.nodes, j, True)
            blocks.add(find() if scoring.memo is None else scoring.memo.candidates(scoring, j, find))
        if kept:
            blocks.add_rows(j, _kept_rows(instance, job, kept))
        about.append(entry)
    return blocks.choices(instance, about, error)


class _Blocks:
    """Collects choices job by job and packs them as it goes."""

    def __init__(self) -> None:
        self._loose: list[dict[str, Any]] = []
        self._packed: dict[str, list[NDArray[Any]]] = {name: [] for name in _ARRAYS}

    def add(self, found: Candidates) -> None:
        """The columns of a job that are worth anything."""
        named: dict[str, Any] = {
            "job": found.job, "value": found.value, "gpu_type": found.gpu_type, "level": found.level,
            "span": found.span, "workers": found.workers, "servers": found.servers,
            "worker_profile": found.worker_profile, "ps_profile": found.ps_profile, "server_memory": found.ps_memory,
        }  # fmt: skip
        if len(found) and found.value.min() <= 0:
            named = {name: array[found.value > 0] for name, array in named.items()}
        if len(named["job"]):
            self._add(named)

    def add_rows(self, j: int, rows: _Rows) -> None:
        """Choices of job *j* one by one."""
        if rows:
            table = np.array(rows, dtype=float).T
            named = dict(zip(_ARRAYS[1:], table, strict=True))
            self._add(named | {"job": np.full(len(rows), j)})

    def _add(self, named: dict[str, Any]) -> None:
        self._loose.append(named)
        if len(self._loose) >= JOBS_PER_BLOCK:
            self._pack()

    def _pack(self) -> None:
        for name, kind in _TYPES.items():
            missing = -1 if name == "line" else 0
            parts = [
                each[name] if name in each else np.full(len(each["job"]), missing, dtype=kind) for each in self._loose
            ]
            self._packed[name].append(np.concatenate(parts, dtype=kind, casting="unsafe"))
        self._loose.clear()

    def choices(self, instance: Instance, about: Sequence[JobColumns], error: float) -> Choices:
        """All that was added."""
        if self._loose:
            self._pack()
        arrays: dict[str, NDArray[Any]] = {}
        for name, kind in _TYPES.items():  # field by field, so that little is held twice
            arrays[name] = np.concatenate([np.zeros(0, dtype=kind), *self._packed.pop(name)])
        starts = np.searchsorted(arrays["job"], np.arange(len(about) + 1))
        everyone = np.arange(len(about))
        return Choices(instance=instance, positions=everyone, jobs=_jobs(about), starts=starts, error=error, **arrays)


def _column_row(column: Column) -> tuple[float, ...]:
    return (
        column.value, 0, column.gpu_type, column.level, column.span, column.workers, column.servers,
        column.worker_profile, column.ps_profile, column.ps_memory, -1,
    )  # fmt: skip


def _line_rows(lines: Iterable[Line]) -> _Rows:
    """The corners of lines: between them value and demand are linear in the worker count."""
    return [
        (
            line.curve(w), 0, line.gpu_type, line.level, line.span, w, line.servers, line.worker_profile,
            line.ps_profile, line.ps_memory(w), number,
        )
        for number, line in enumerate(lines)
        for w in line.corners
    ]  # fmt: skip


def _kept_rows(instance: Instance, job: Job, kept: Sequence[float]) -> _Rows:
    if not kept or job.current is None:
        return []
    current = job.current
    gpu_type = instance.gpu_types.index(instance.node[next(iter(current.tasks[WORKER]))].gpu_type)
    w, p, profile = current.workers, current.servers, current.profile(PS)
    memory = ps_memory(job, w, p, profile) if p else 0
    return [
        (value, 1, gpu_type, level, current.span, w, p, current.profile(WORKER), profile, memory, -1)
        for level, value in enumerate(kept)
    ]


def _jobs(about: Sequence[JobColumns]) -> Jobs:
    jobs = [entry.job for entry in about]
    servers = [job.ps.profiles if job.ps else () for job in jobs]
    return Jobs(
        worker_gpu=np.array([job.worker.gpu for job in jobs], dtype=np.int64),
        worker_cpu=_padded([[profile.cpu for profile in job.worker.profiles] for job in jobs]),
        worker_memory=_padded([[profile.memory for profile in job.worker.profiles] for job in jobs]),
        worker_intensity=np.array([job.worker.intensity for job in jobs], dtype=np.int64),
        server_cpu=_padded([[profile.cpu for profile in profiles] for profiles in servers]),
        server_intensity=np.array([job.ps.intensity if job.ps else 0 for job in jobs], dtype=np.int64),
        must_keep=np.array([entry.must_keep for entry in about], dtype=bool),
        counts_as_move=np.array([entry.counts_as_move for entry in about], dtype=bool),
    )


def _padded(rows: list[list[int]]) -> Ints:
    """Lists as the rows of an array, with zeros behind the shorter ones."""
    table = np.zeros((len(rows), max((len(row) for row in rows), default=0) or 1), dtype=np.int64)
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
    return table


def job_ranges(starts: Ints, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of jobs, first and one behind the last, that have at most *most* choices together or are one job."""
    jobs, first = len(starts) - 1, 0
    while first < jobs:
        last = int(np.searchsorted(starts, starts[first] + most, side="right")) - 1
        last = min(max(last, first + 1), jobs)
        yield first, last
        first = last
