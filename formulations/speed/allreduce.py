"""Ring all-reduce (Patarasuk and Yuan, JPDC 2009): computation, latency and bandwidth, inside and between nodes."""

from __future__ import annotations

import numpy as np

from coplace.formulations.speed.contract import Configurations, Numbers
from coplace.formulations.speed.lookup import Lookup
from coplace.formulations.speed.slowdown import slowdowns
from coplace.formulations.speed.stretch import phi, psi
from coplace.instances.job import Job
from coplace.instances.speed import AllReduceSpeed


class AllReduceForm:
    """T = (a·B/w + b)·φ + (latency·(w − 1) + transfer·2(w − 1)/w)·ψ; v = B / T."""

    def __init__(self, job: Job, speed: AllReduceSpeed) -> None:
        rows = [speed.types[t] for t in job.types]
        self.a, self.b = (Lookup(column) for column in np.array([[r.a, r.b] for r in rows]).T)
        # [type, 0 = inside one node, 1 = between nodes]
        self.latency = Lookup(np.array([[r.latency_intra, r.latency_inter] for r in rows]))
        self.transfer = Lookup(np.array([[r.transfer_intra, r.transfer_inter] for r in rows]))
        self.worker_slowdown = slowdowns(job, job.worker)
        self.interference, self.spread = speed.interference, speed.spread
        self.batch = speed.batch

    def __call__(self, k: Configurations) -> Numbers:
        """Speeds in samples/s under *k*."""
        t, w = k.gpu_type, k.workers
        between = int(k.span > 1) if type(k.span) is int else (k.span > 1).astype(np.intp)
        computation = (self.a[t] * self.batch / w + self.b[t]) * self.worker_slowdown[t, k.worker_profile]
        ring = self.latency[t, between] * (w - 1) + self.transfer[t, between] * 2 * (w - 1) / w
        step_time = computation * phi(self.interference, k.pressure) + ring * psi(self.spread, k.span)
        return self.batch / step_time
