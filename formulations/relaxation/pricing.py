"""What prices charge every choice, millions of them in a fraction of a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.relaxation.choices import Choices, Jobs, job_ranges
from coplace.formulations.relaxation.demands import server_demand, task_demands, worker_demand
from coplace.formulations.relaxation.rows import CPU, MEMORY, Groups, Row
from coplace.instances.cluster import RESOURCES
from coplace.instances.instance import Instance

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

CHUNK = 1 << 16
"""Choices that are priced at a time, so that what is needed on the way stays in the cache."""


class Charges(NamedTuple):
    """What prices charge for one task, by all that it depends on, so that pricing a choice takes a few look-ups.

    Attributes:
        worker: flat, by [job, worker profile, type, level].
        server: flat, by [near, job, ps profile, type, level], memory aside; near = on one node with the workers.
        memory: of a MiB of a server, flat, by [near, type, level].
        quota_memory: the same by the quota of the tenant, by [job].
        pieces: of groups of pieces larger than one, that have a price: (group, charge by [type, level], flat).
        move: what is charged for a move less.
    """

    worker: Floats
    server: Floats
    memory: Floats
    quota_memory: Floats
    pieces: list[tuple[int, Floats]]
    move: float


class Pricing:
    """Prices choices: value less the sum of price · demand over the rows."""

    def __init__(self, instance: Instance, groups: Groups, rows: list[Row], choices: Choices) -> None:
        self.choices = choices
        self._groups = groups
        jobs = choices.jobs
        self._worker_profiles, self._workers = _pieces(groups, worker_demand, jobs)
        self._ps_profiles, self._servers = _pieces(groups, server_demand, jobs)
        self._moves = next((i for i, row in enumerate(rows) if row.kind == "moves"), None)
        tenants = np.array([instance.jobs[j].tenant for j in choices.positions.tolist()])
        self._quotas = [
            (i, RESOURCES.index(str(row.resource)), np.flatnonzero(tenants == row.tenant))
            for i, row in enumerate(rows)
            if row.kind == "quota"
        ]

    def charges(self, prices: Floats) -> Charges:
        """The look-up tables of *prices*, by [row]."""
        groups, jobs = self._groups, self.choices.jobs
        by_level = groups.charges(prices)
        everywhere = np.broadcast_to(by_level[:, -1:], (len(groups.size), groups.types, groups.levels))
        cells = groups.types * groups.levels
        here = (by_level[:, :-1] + everywhere).reshape(len(groups.size), cells)
        far = everywhere.reshape(len(groups.size), cells)
        worker = (self._workers @ here).reshape(len(jobs.must_keep), self._worker_profiles, cells)
        server = np.stack([self._servers @ far, self._servers @ here])
        server = server.reshape(2, len(jobs.must_keep), self._ps_profiles, cells)
        memory = np.zeros((2, cells))
        quota_memory = np.zeros(len(jobs.must_keep))
        for g, resource in enumerate(groups.resource):
            if resource == MEMORY:
                memory += far[g], here[g]
        for i, resource, theirs in self._quotas:
            worker[theirs] += prices[i] * worker_demand(jobs, resource)[theirs, :, None]
            if resource == CPU:
                server[:, theirs] += prices[i] * jobs.server_cpu[theirs, :, None]
            elif resource == MEMORY:
                quota_memory[theirs] += prices[i]
        pieces = [(g, here[g]) for g, size in enumerate(groups.size) if size > 1 and here[g].any()]
        move = 0.0 if self._moves is None else float(prices[self._moves])
        return Charges(worker.ravel(), server.ravel(), memory.ravel(), quota_memory, pieces, move)

    def reduced(self, prices: Floats) -> tuple[Floats, Floats]:
        """Value less what *prices* charge by [choice], and the best of it by [job]: at least 0 for running nothing."""
        choices, charges = self.choices, self.charges(prices)
        reduced = np.empty(len(choices))
        best = np.where(choices.jobs.must_keep, -np.inf, 0.0)
        for first, last in job_ranges(choices.starts, CHUNK):
            start, end = int(choices.starts[first]), int(choices.starts[last])
            if start == end:
                continue
            part = reduced[start:end]
            part[:] = self._chunk(charges, slice(start, end))
            some = first + np.flatnonzero(np.diff(choices.starts[first : last + 1]))
            best[some] = np.maximum(best[some], np.maximum.reduceat(part, choices.starts[some] - start))
        return reduced, best

    def some(self, prices: Floats, chosen: Ints) -> Floats:
        """Value less what *prices* charge of the choices *chosen*."""
        return self._chunk(self.charges(prices), chosen)

    def _chunk(self, charges: Charges, at: slice | Ints) -> Floats:
        choices, groups = self.choices, self._groups
        cells = groups.types * groups.levels
        job = choices.job[at].astype(np.int64)
        cell = choices.gpu_type[at].astype(np.int64) * groups.levels + choices.level[at]
        workers, servers = choices.workers[at], choices.servers[at]
        near = choices.span[at] == 1
        of_worker = (job * self._worker_profiles + choices.worker_profile[at]) * cells + cell
        reduced = choices.value[at] - workers * charges.worker.take(of_worker)
        if servers.any():
            of_server = near * np.int64(len(charges.server) // 2)
            of_server += (job * self._ps_profiles + choices.ps_profile[at]) * cells + cell
            mib = charges.memory.take(near * np.int64(cells) + cell) + charges.quota_memory.take(job)
            reduced -= servers * (charges.server.take(of_server) + choices.server_memory[at] * mib)
        if charges.move:
            reduced += charges.move * (choices.kept[at] & choices.jobs.counts_as_move[job])
        if charges.pieces and near.any():
            self._near_pieces(charges, at, cell, near, reduced)
        return np.asarray(reduced)

    def _near_pieces(self, charges: Charges, at: slice | Ints, cell: Ints, near: Bools, reduced: Floats) -> None:
        """Charge jobs on one node for the pieces that they take in total beyond those of their tasks (in place)."""
        where = np.flatnonzero(near)
        chosen = where + at.start if isinstance(at, slice) else at[where]
        w, p = self.choices.workers[chosen].astype(np.int64), self.choices.servers[chosen].astype(np.int64)
        for group, charge in charges.pieces:
            worker, server = task_demands(self.choices, self._groups.resource[group], chosen)
            size = self._groups.size[group]
            extra = (w * worker + p * server) // size - w * (worker // size) - p * (server // size)
            reduced[where] -= charge.take(cell[where]) * extra


def _pieces(groups: Groups, demand: Callable[[Jobs, int], Ints], jobs: Jobs) -> tuple[int, Floats]:
    """Number of profiles, and pieces that one task takes by [job and profile, group]; none of servers' memory."""
    tables = [demand(jobs, resource) // size for resource, size in zip(groups.resource, groups.size, strict=True)]
    profiles = max((table.shape[1] for table in (demand(jobs, CPU), *tables)), default=1)
    shape = (len(jobs.must_keep), profiles)
    stacked = [np.broadcast_to(table, shape).ravel() for table in tables]
    return profiles, np.array(stacked, dtype=float).reshape(len(tables), shape[0] * profiles).T
