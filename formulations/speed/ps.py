"""Parameter-server forms (Peng et al., Optimus, EuroSys 2018, section 3.2), with φ and ψ."""

from __future__ import annotations

import numpy as np

from coplace.formulations.speed.contract import Configurations, Numbers
from coplace.formulations.speed.lookup import Lookup
from coplace.formulations.speed.slowdown import slowdowns
from coplace.formulations.speed.stretch import phi, psi
from coplace.instances.job import Job
from coplace.instances.speed import PsAsyncSpeed, PsSyncSpeed


class _PsForm:
    def __init__(self, job: Job, speed: PsSyncSpeed | PsAsyncSpeed) -> None:
        rows = [speed.types[t] for t in job.types]
        columns = np.array([[r.a, r.b, r.c, r.d, r.e] for r in rows]).T
        self.a, self.b, self.c, self.d, self.e = (Lookup(column) for column in columns)
        self.worker_slowdown = slowdowns(job, job.worker)
        self.ps_slowdown = slowdowns(job, job.ps)
        self.interference, self.spread = speed.interference, speed.spread
        self.batch = speed.batch

    def _communication(self, k: Configurations) -> Numbers:
        """(c·w/p + d·w + e·p) · slowdown · ψ, seconds per step."""
        t, w, p = k.gpu_type, k.workers, k.servers
        seconds = self.c[t] * w / p + self.d[t] * w + self.e[t] * p
        return seconds * self.ps_slowdown[t, k.ps_profile] * psi(self.spread, k.span)

    def _computation(self, k: Configurations, samples: Numbers) -> Numbers:
        """(a·samples + b) · slowdown · φ, seconds per step of one worker."""
        t = k.gpu_type
        seconds = (self.a[t] * samples + self.b[t]) * self.worker_slowdown[t, k.worker_profile]
        return seconds * phi(self.interference, k.pressure)


class PsSyncForm(_PsForm):
    """T = (a·B/w + b)·φ + (c·w/p + d·w + e·p)·ψ; v = B / T."""

    def __call__(self, k: Configurations) -> Numbers:
        """Speeds in samples/s under *k*."""
        step_time = self._computation(k, self.batch / k.workers) + self._communication(k)
        return self.batch / step_time


class PsAsyncForm(_PsForm):
    """T = (a·β + b)·φ + (c·w/p + d·w + e·p)·ψ; v = w·β / T / (1 + staleness_cost·(w − 1))."""

    def __init__(self, job: Job, speed: PsAsyncSpeed) -> None:
        super().__init__(job, speed)
        self.staleness_cost = speed.staleness_cost

    def __call__(self, k: Configurations) -> Numbers:
        """Speeds in samples/s under *k*."""
        step_time = self._computation(k, self.batch) + self._communication(k)
        efficiency = 1.0 / (1.0 + self.staleness_cost * (k.workers - 1))
        return k.workers * self.batch / step_time * efficiency
