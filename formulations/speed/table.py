"""Measured speeds, interpolated between their points and never extrapolated."""

from __future__ import annotations

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
        self.grid = np.stack([_grid(speed, t, job.worker.max, job.max_servers) for t in job.types])
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
        return self.grid[t, k.workers, k.servers] / (computation + communication)


def _grid(speed: TableSpeed, gpu_type: str, max_workers: int, max_servers: int) -> NDArray[np.float64]:
    """Interpolated speed by [w, p] for w ≤ max_workers, p ≤ max_servers; 0 where the table says nothing."""
    points: dict[int, dict[int, float]] = {}
    for point in speed.points:
        if point.gpu_type == gpu_type:
            points.setdefault(point.servers, {})[point.workers] = point.speed
    measured = sorted(points)
    workers = np.arange(max_workers + 1)
    lines = np.full((len(measured), max_workers + 1), np.nan)  # first along w, for each measured p
    for row, servers in enumerate(measured):
        known = sorted(points[servers])
        lines[row] = np.interp(workers, known, [points[servers][w] for w in known], left=np.nan, right=np.nan)
    grid = np.zeros((max_workers + 1, max_servers + 1))
    counts = np.arange(max_servers + 1)
    for w in workers:  # then along p, between the server counts that have a value at this w
        have = ~np.isnan(lines[:, w])
        if have.any():
            known_p = np.array(measured)[have]
            grid[w] = np.interp(counts, known_p, lines[have, w], left=0.0, right=0.0)
    return grid
