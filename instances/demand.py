"""What one task asks of its node. Parameter-server memory depends on the counts."""

from __future__ import annotations

import math

from coplace.instances.cluster import Vector
from coplace.instances.job import Job, PsMemory
from coplace.instances.plan import WORKER, Allocation, Role


def predicted_ps_memory(model: PsMemory, workers: int, servers: int) -> int:
    """Memory of one parameter server in MiB, rounded up, for w workers and p servers.

    base + imbalance · (model / p) · copies + w · receive_buffer (see :class:`PsMemory`).
    """
    shard = model.imbalance * model.model * model.copies / servers
    # A hair below the next integer, so that an exact quotient such as 1.1 · 100 = 110.00000000000001 stays exact.
    return model.base + math.ceil(shard - 1e-6) + workers * model.receive_buffer


def ps_memory(job: Job, workers: int, servers: int, profile: int) -> int:
    """Memory in MiB that each server of *job* is granted: the prediction, at least the profile's memory."""
    assert job.ps is not None
    floor = job.ps.profiles[profile].memory
    model = job.ps.memory_model
    return floor if model is None else max(floor, predicted_ps_memory(model, workers, servers))


def demand(job: Job, role: Role, workers: int, servers: int, profile: int) -> Vector:
    """Demand of one task of *role* in the order of RESOURCES (GPUs, milli-cores, MiB)."""
    if role == WORKER:
        chosen = job.worker.profiles[profile]
        return (job.worker.gpu, chosen.cpu, chosen.memory)
    assert job.ps is not None
    return (0, job.ps.profiles[profile].cpu, ps_memory(job, workers, servers, profile))


def task_demand(job: Job, role: Role, allocation: Allocation) -> Vector:
    """Demand of one task of *role* when *job* runs *allocation*."""
    return demand(job, role, allocation.workers, allocation.servers, allocation.profile(role))
