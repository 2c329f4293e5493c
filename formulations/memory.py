"""Parameter-server memory over whole grids of counts; :mod:`coplace.instances.demand` holds the model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coplace.instances.demand import predicted_ps_memory
from coplace.instances.job import Job

Counts = range | NDArray[np.int64]
"""Numbers of tasks."""


def ps_memory_grid(job: Job, workers: Counts, servers: Counts) -> NDArray[np.int64]:
    """Memory of one server in MiB by [ps profile, worker count, server count]; zeros for a job without servers."""
    if job.ps is None:
        return np.zeros((1, len(workers), len(servers)), dtype=np.int64)
    floor = np.array([profile.memory for profile in job.ps.profiles], dtype=np.int64)[:, None, None]
    model = job.ps.memory_model
    if model is None:
        return np.broadcast_to(floor, (len(floor), len(workers), len(servers)))
    # The model is a term in p plus a term in w.
    by_servers = np.array([predicted_ps_memory(model, 0, int(p)) for p in servers], dtype=np.int64)
    by_workers = np.array(workers, dtype=np.int64) * model.receive_buffer
    return np.asarray(np.maximum(floor, by_workers[:, None] + by_servers[None, :]))
