"""Lines: for jobs with many worker counts, one choice per counts of servers, with the value piecewise linear in w."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.candidates import servers_fit, within_quota
from coplace.formulations.hosts import NodeArrays
from coplace.formulations.memory import ps_memory_grid
from coplace.formulations.mesh import open_mesh
from coplace.formulations.piecewise import Piecewise, fit
from coplace.formulations.scoring import Scoring
from coplace.formulations.spans import NOWHERE, fewest_nodes
from coplace.formulations.speed import Configurations
from coplace.instances.demand import predicted_ps_memory
from coplace.instances.job import Job

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Line(NamedTuple):
    """One way to start a job or to move it to, for every worker count between two.

    Like a column of :class:`~coplace.formulations.columns.ColumnSet`, but for w and what depends on it.

    Attributes:
        gpu_type: index into the instance's ``gpu_types``.
        servers: count.
        worker_profile, ps_profile: indices of the request profiles.
        span: most distinct nodes.
        level: highest pressure level that a node in use may run at.
        memory_base, memory_per_worker, memory_floor: MiB of one server, see :meth:`ps_memory`.
        curve: value λ · U by worker count, restart included.
    """

    gpu_type: int
    servers: int
    worker_profile: int
    ps_profile: int
    span: int
    level: int
    memory_base: int
    memory_per_worker: int
    memory_floor: int
    curve: Piecewise

    @property
    def least_workers(self) -> int:
        """Fewest workers."""
        return self.curve.xs[0]

    @property
    def most_workers(self) -> int:
        """Most workers."""
        return self.curve.xs[-1]

    def ps_memory(self, workers: int) -> int:
        """MiB of one server: max(floor, base + per_worker · w)."""
        return max(self.memory_floor, self.memory_base + self.memory_per_worker * workers)

    def allows(self, shape: tuple[int, int, int, int, int]) -> bool:
        """Whether it stands for placements of this GPU type, these counts of workers and servers, and profiles."""
        gpu_type, workers, *others = shape
        same = gpu_type == self.gpu_type and tuple(others) == (self.servers, self.worker_profile, self.ps_profile)
        return same and self.least_workers <= workers <= self.most_workers

    @property
    def corners(self) -> tuple[int, ...]:
        """Worker counts between which the value and the memory of a server are both linear, ascending."""
        counts = set(self.curve.xs)
        if self.memory_per_worker:
            below = (self.memory_floor - self.memory_base) // self.memory_per_worker
            counts |= {w for w in (below, below + 1) if self.least_workers < w < self.most_workers}
        return tuple(sorted(counts))


class JobLines(NamedTuple):
    """The lines of one job, and how far their values are from the truth at most.

    Attributes:
        lines: ways to start it or to move it to.
        error: most that any placement's value exceeds that of the best line which allows it, ≥ 0.
        excess: most that a line's value exceeds the value of its configuration at its span and level, ≥ 0.
    """

    lines: tuple[Line, ...]
    error: float
    excess: float


def job_lines(scoring: Scoring, nodes: NodeArrays, j: int, tolerance: float) -> JobLines:
    """Lines of job *j* that together miss its values by at most *tolerance* of its best value.

    A line stands for every placement with its counts and profiles that uses at most ``span`` nodes, all at levels ≤
    ``level``. The tolerance is spent in this order:

    * only some spans have lines, and a smaller span counts as the next larger one that has: up to a third;
    * counts are left out at which fewer tasks, none of them larger, are about as good: up to a third;
    * curves are interpolated: what is left.

    Left out at no loss are worker counts at which fewer workers are as fast, and levels at which a higher one is.

    Args:
        scoring: of the instance.
        nodes: of the instance.
        j: position of the job.
        tolerance: share of the job's best value, 0 ≤ tolerance < 1.
    """
    grid = _Grid(scoring, nodes, j)
    best = grid.best()
    if best <= 0:
        return JobLines((), 0.0, 0.0)
    budget = tolerance * best
    spans, span_loss = _thin_spans(grid, budget / 3)
    tables = list(grid.tables(spans))
    server_loss = max(_drop_counts(table, budget / 3) for table in tables)
    left = max(0.0, budget - span_loss - server_loss)
    lines = tuple(line for table in tables for line in _fitted(grid, table, left))
    error = max((line.curve.error_below for line in lines), default=0.0)
    excess = max((line.curve.error_above for line in lines), default=0.0)
    return JobLines(lines, error + span_loss + server_loss, excess)


class _Grid:
    """What a job could do, on the axes [type, worker profile, ps profile, p, level, w].

    Attributes:
        types: GPU types as (index into the job's types, index into the instance's); empty if the job cannot run.
        w, p: counts.
        fewest: nodes that a configuration needs at least; all axes.
        allowed: what nodes can host and the quota allows; all axes.
        memory: MiB of one server by [ps profile, p, w].
        most_nodes: largest span of all.
    """

    def __init__(self, scoring: Scoring, nodes: NodeArrays, j: int) -> None:
        instance = scoring.instance
        self.scoring, self.j = scoring, j
        self.job: Job = instance.jobs[j]
        job = self.job
        limits = nodes.limits(job)
        cluster_type = {gpu_type: t for t, gpu_type in enumerate(instance.gpu_types)}
        known = [(i, cluster_type[t]) for i, t in enumerate(job.types) if t in cluster_type]
        self.types = [(i, t) for i, t in known if limits[t].nodes and scoring.weights[j] > 0]
        if not self.types:
            return
        worker_counts = range(job.worker.min, job.worker.max + 1)
        server_counts = range(job.min_servers, job.max_servers + 1)
        self.w, self.p = np.array(worker_counts), np.array(server_counts)
        by_w = ps_memory_grid(job, worker_counts, server_counts)  # [ps profile, w, p]
        hosted = servers_fit(job, by_w, limits)[None, None]
        hosted = hosted & within_quota(instance, job, by_w, self.w, self.p)[None]
        most = instance.rules.max_tasks_per_node
        fewest = fewest_nodes(job, limits, [t for _, t in self.types], self.w, self.p, by_w, most)
        shape = (*fewest.shape[:2], *by_w.shape, fewest.shape[-1])
        everywhere = np.minimum(np.broadcast_to(fewest, shape), NOWHERE).astype(np.int64)
        self.fewest: Ints = everywhere.transpose(0, 1, 2, 4, 5, 3)
        self.allowed: Bools = hosted.swapaxes(-1, -2)[..., None, :] & (self.fewest < NOWHERE)
        self.memory: Ints = by_w.swapaxes(-1, -2)
        self.most_nodes = min(int(self.w[-1] + self.p[-1]), sum(limit.nodes for limit in limits))

    def best(self) -> float:
        """The job's best value: each count at its least span; 0 if it cannot run."""
        if not self.types:
            return 0.0
        return float(self.values(self.fewest).max(initial=0.0, where=self.allowed))

    def values(self, span: int | Ints) -> Floats:
        """Value at *span* nodes, 0 without a speed; *span* broadcasts against the axes, the result has them all."""
        i_type, worker_profile, ps_profile, servers, pressure, workers = open_mesh(
            [i for i, _ in self.types], range(self.allowed.shape[1]), range(self.allowed.shape[2]), self.p,
            self.scoring.levels, self.w,
        )  # fmt: skip
        k = Configurations(i_type, workers, servers, np.asarray(span), pressure, worker_profile, ps_profile)
        speed = np.broadcast_to(self.scoring.model.predict(self.job, k).mean, self.allowed.shape)
        return np.asarray(self.scoring.value(self.j, speed, kept=False))

    def tables(self, spans: list[int]) -> Iterator[_Table]:
        """For each type and pair of profiles all that its lines are made of."""
        value = np.stack([self.values(span) for span in spans], axis=-2)  # [type, a, b, p, level, span, w]
        reached = self.fewest[..., None, :] <= np.array(spans)[:, None]
        alive = self.allowed[..., None, :] & reached & (value > 0)
        for t, (_, gpu_type) in enumerate(self.types):
            for a in range(alive.shape[1]):
                for b in range(alive.shape[2]):
                    _drop_levels_and_spans(value[t, a, b], alive[t, a, b])
                    yield _Table(gpu_type, a, b, spans, value[t, a, b], alive[t, a, b], self.memory[b])


class _Table(NamedTuple):
    """The values of one GPU type and pair of profiles.

    Attributes:
        gpu_type: index into the instance's ``gpu_types``.
        worker_profile, ps_profile: indices.
        spans: chosen ones, ascending.
        value: by [p, level, span, w].
        alive: which of them are to be on a line; same shape.
        memory: MiB of one server by [p, w].
    """

    gpu_type: int
    worker_profile: int
    ps_profile: int
    spans: list[int]
    value: Floats
    alive: Bools
    memory: Ints


def _thin_spans(grid: _Grid, budget: float) -> tuple[list[int], float]:
    """Spans such that counting any span as the next of them loses at most *budget*, and what it loses at most.

    From the largest span downwards, each as far from the one before as the budget lets it; values never rise with the
    span, so the distance is found by bisection.
    """
    tasks = grid.w + grid.p[:, None, None]  # [p, 1, w]
    chosen: list[int] = []
    most_lost = 0.0
    top = grid.most_nodes
    smallest = int(grid.fewest.min(initial=top, where=grid.allowed))
    while top >= smallest:
        at_top = grid.values(top)
        here = grid.allowed & (grid.fewest <= top)

        def loss(span: int, at_top: Floats = at_top, here: Bools = here) -> float:
            """Most that is lost when all spans from *span* count as the top: each w loses most at its least span."""
            least = np.maximum(span, grid.fewest)
            return float((grid.values(least) - at_top).max(initial=0.0, where=here & (least <= tasks)))

        low, high, lost = smallest, top, 0.0  # the group is high … top
        while low < high:
            middle = (low + high) // 2
            loses = loss(middle)
            if loses <= budget:
                high, lost = middle, loses
            else:
                low = middle + 1
        chosen.append(top)
        most_lost = max(most_lost, lost)
        top = high - 1
    return chosen[::-1], most_lost


def _drop_levels_and_spans(value: Floats, alive: Bools) -> None:
    """Drop lines where the next level, or the next span, has the same values wherever they live (in place)."""
    for axis in (1, 2):
        v, a = np.moveaxis(value, axis, 0), np.moveaxis(alive, axis, 0)
        for i in range(len(v) - 1):
            a[i] &= ~((v[i + 1] >= v[i]) & a[i + 1] | ~a[i]).all(axis=-1, keepdims=True)


def _drop_counts(table: _Table, budget: float) -> float:
    """Drop counts at which fewer workers are as good or fewer servers, too, lose at most *budget* (in place).

    Server memory never falls with the worker count, so fewer workers never need more; fewer servers do, unless the
    profile's floor decides.

    Returns:
        The most that this loses.
    """
    value, alive, memory = table.value, table.alive, table.memory
    running_best = np.maximum.accumulate(np.where(alive, value, 0.0), axis=-1)
    alive[..., 1:] &= value[..., 1:] > running_best[..., :-1]
    most_lost = 0.0
    stand_in = np.zeros_like(value[0])  # best of what stays, over no more workers and servers; nothing is worth 0
    for p in range(len(value)):
        if p:
            stand_in = np.where(memory[p - 1] <= memory[p], stand_in, 0.0)
        lost = value[p] - stand_in
        gone = alive[p] & (lost <= budget)
        most_lost = float(lost.max(initial=most_lost, where=gone))
        alive[p] &= ~gone
        own = np.maximum.accumulate(np.where(alive[p], value[p], 0.0), axis=-1)
        stand_in = np.maximum(stand_in, own)
    return most_lost


def _fitted(grid: _Grid, table: _Table, budget: float) -> Iterator[Line]:
    """The lines of *table*, cut where the values have gaps."""
    model = grid.job.ps.memory_model if grid.job.ps else None
    floor = grid.job.ps.profiles[table.ps_profile].memory if grid.job.ps else 0
    for p, level, span in np.argwhere(table.alive.any(axis=-1)).tolist():
        servers = int(grid.p[p])
        base, per_worker = (predicted_ps_memory(model, 0, servers), model.receive_buffer) if model else (0, 0)
        has_value = table.value[p, level, span] > 0
        for start, end in _runs(table.alive[p, level, span], has_value):
            curve = fit(table.value[p, level, span, start:end], int(grid.w[start]), budget)
            yield Line(
                table.gpu_type, servers, table.worker_profile, table.ps_profile, table.spans[span], level,
                base, per_worker, floor, curve,
            )  # fmt: skip


def _runs(alive: Bools, possible: Bools) -> Iterator[tuple[int, int]]:
    """Ranges of *possible* positions without a gap, cut to the first and the last that is alive; the end is outside."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], possible, [False])).astype(np.int8))).reshape(-1, 2)
    for start, end in edges.tolist():
        inside = np.flatnonzero(alive[start:end])
        if inside.size:
            yield start + int(inside[0]), start + int(inside[-1]) + 1
