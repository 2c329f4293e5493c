"""Measured speeds, interpolated between their points and never extrapolated."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.speed.contract import Configurations, Numbers
from coplace.formulations.speed.slowdown import slowdowns
from coplace.formulations.speed.stretch import phi, psi
from coplace.instances.job import Job
from coplace.instances.speed import TableSpeed


class TableForm:
    """v = measured(w, p) / ((1 − share)·φ·s_w + share·ψ·s_p): rule of :class:`~coplace.instances.speed.TableSpeed`."""

    def __init__(self, job: Job, speed: TableSpeed) -> None:
        self.measured = Measured(job, speed)
        self.share = speed.communication_share
        self.interference, self.spread = speed.interference, speed.spread
        self.worker_slowdown = slowdowns(job, job.worker)
        self.ps_slowdown = slowdowns(job, job.ps)

    def __call__(self, k: Configurations) -> Numbers:
        """Speeds in samples/s under *k*."""
        t = k.gpu_type
        computation = (
            (1.0 - self.share) * self.worker_slowdown[t, k.worker_profile] * phi(self.interference, k.pressure)
        )
        communication = self.share * self.ps_slowdown[t, k.ps_profile] * psi(self.spread, k.span)
        return self.measured(t, k.workers, k.servers) / (computation + communication)


class Measured:
    """Interpolated speed by GPU type, w and p; 0 where the table says nothing.

    What is kept grows with the worker counts that are asked for, not with those that the job allows, and ends with the
    largest measured counts: a job may allow ten thousand workers and a thousand servers.
    """

    def __init__(self, job: Job, speed: TableSpeed) -> None:
        points = [point for point in speed.points if point.gpu_type in job.types]
        self._most_workers = min(job.worker.max, max((point.workers for point in points), default=0))
        self._most_servers = min(job.max_servers, max((point.servers for point in points), default=0))
        self._points: list[dict[int, dict[int, float]]] = [{} for _ in job.types]  # by [type][p][w]
        for point in points:
            self._points[job.types.index(point.gpu_type)].setdefault(point.servers, {})[point.workers] = point.speed
        # Row of (type, w) in the speeds by p; −1 = not yet asked for. Row 0 and the last column are outside the table.
        self._row = np.full((len(job.types), self._most_workers + 2), -1, dtype=np.int32)
        self._row[:, -1] = 0
        self._speeds = np.zeros((1, self._most_servers + 2))

    def __call__(self, gpu_type: Numbers, workers: Numbers, servers: Numbers) -> Numbers:
        """Speeds, before any stretch, in samples/s."""
        if type(workers) is int and type(servers) is int and type(gpu_type) is int:
            w, p = min(workers, self._most_workers + 1), min(servers, self._most_servers + 1)
            if self._row[gpu_type, w] < 0:
                self._interpolate(gpu_type, np.array([w]))
            return float(self._speeds[self._row[gpu_type, w], p])
        w, p = np.minimum(workers, self._most_workers + 1), np.minimum(servers, self._most_servers + 1)
        row = self._row[gpu_type, w]
        if (row < 0).any():
            types, counts = (axis[row < 0] for axis in np.broadcast_arrays(gpu_type, w))
            for t in np.unique(types).tolist():
                self._interpolate(t, np.unique(counts[types == t]))
            row = self._row[gpu_type, w]
        return self._speeds[row, p]

    def _interpolate(self, t: int, workers: NDArray[np.integer[Any]]) -> None:
        """Add the rows of those worker counts on one type."""
        points = self._points[t]
        measured = sorted(points)
        lines = np.full((len(measured), len(workers)), np.nan)  # first along w, for each measured p
        for line, servers in zip(lines, measured, strict=True):
            known = sorted(points[servers])
            line[:] = np.interp(workers, known, [points[servers][w] for w in known], left=np.nan, right=np.nan)
        speeds = np.zeros((len(workers), self._most_servers + 2))
        counts = np.arange(self._most_servers + 1)
        for i in range(len(workers)):  # then along p, between the server counts that have a value at this w
            have = ~np.isnan(lines[:, i])
            if have.any():
                speeds[i, :-1] = np.interp(counts, np.array(measured)[have], lines[have, i], left=0.0, right=0.0)
        self._row[t, workers] = len(self._speeds) + np.arange(len(workers))
        self._speeds = np.concatenate((self._speeds, speeds))
