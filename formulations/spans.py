"""The fewest nodes that hold a job's tasks, as far as each resource on its own tells."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.hosts import HostLimits, Limits, Offers
from coplace.instances.job import Job, PsSpec

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NOWHERE = 1e9
"""More nodes than there are: no node holds a task."""


def fewest_nodes(
    job: Job, limits: Limits, types: list[int], w: Ints, p: Ints, memory: Ints, most: int | None
) -> Floats:
    """Nodes that a configuration needs at least.

    With f nodes that w workers need at least, C what a node of their type offers of a resource, and s servers that any
    node holds, m nodes offer the job at most f · C + (m − f) · max(C, s · demand of a server): at least f have workers,
    and each other one has workers, too, or at most s servers. So m is at least f + (demand − f · C) / that maximum.

    Args:
        job: the job.
        limits: the most that any one node offers it.
        types: GPU types of the instance that have nodes for it.
        w, p: worker and server counts, ascending.
        memory: MiB of one server by [ps profile, w, p].
        most: tasks of a job on a node, None = any number.

    Returns:
        Shape [type, worker profile, ps profile, w, p, level], 1 in place of ps profile and p without servers; at least
        :data:`NOWHERE` where no node holds a task. Never falls with the counts, nor with the memory of a server.
    """
    offers = limits.offers(tuple(types))
    room = _worker_room(job, offers, most)[:, :, None, :]
    fewest = np.ceil(w[:, None] / np.maximum(room, 1 / NOWHERE))  # [type, worker profile, w, level]
    fewest[fewest > offers.nodes[:, None, None, None]] = NOWHERE
    fewest = fewest[:, :, None, :, None, :]
    if job.ps is None:
        return fewest
    servers = _server_room(job.ps, limits.largest, memory, most)  # [ps profile, w, p, level]
    # What nodes offer, servers and workers ask for, and all need together: CPU, memory and, where limited, intensity.
    count = 3 if offers.limited and (job.worker.intensity or job.ps.intensity) else 2
    offered = offers.pooled[:count, :, None, None, None, None]  # [resource, type, …, level]
    server = np.empty((count, *memory.shape))
    server[0] = np.array([profile.cpu for profile in job.ps.profiles])[:, None, None]
    server[1] = memory
    server[2:] = job.ps.intensity
    worker = np.array([(a.cpu, a.memory, job.worker.intensity)[:count] for a in job.worker.profiles], dtype=float).T
    needed = w[:, None] * worker[:, :, None, None, None] + p * server[:, None]
    each = np.maximum(offered, (servers * server[..., None])[:, None, None])
    extra = ((needed[:, None, ..., None] - fewest * offered) / each).max(axis=0, initial=0.0)
    if most is not None:
        extra = np.maximum(extra, (w[:, None] + p)[..., None] / most - fewest)
    np.ceil(extra, out=extra)
    if job.ps.intensity > limits.largest.capacities[0]:
        extra = np.where((servers < 1) & (p[:, None] > 0), NOWHERE, extra)
    return np.asarray(fewest + extra)


def _worker_room(job: Job, offers: Offers, most: int | None) -> Floats:
    """Most workers that one node holds, as far as each resource on its own tells; by [type, worker profile, level]."""
    room = np.full((len(offers.nodes), len(job.worker.profiles)), float(most or job.worker.max))
    for a, profile in enumerate(job.worker.profiles):
        for r, amount in enumerate((job.worker.gpu, profile.cpu, profile.memory)):
            if amount:
                np.minimum(room[:, a], offers.free[:, r] // amount, out=room[:, a])
    if job.worker.intensity:
        return np.asarray(np.minimum(room[:, :, None], (offers.capacities // job.worker.intensity)[:, None, :]))
    return np.broadcast_to(room[:, :, None], (*room.shape, offers.capacities.shape[1]))


def _server_room(ps: PsSpec, largest: HostLimits, memory: Ints, most: int | None) -> Floats:
    """Most servers that any node holds, likewise; by [ps profile, w, p, level]."""
    by_level = np.full(len(largest.capacities), float(most or ps.max))
    if ps.intensity:
        np.minimum(by_level, largest.capacities // ps.intensity, out=by_level)
    by_memory = np.where(memory > 0, largest.free[2] // np.maximum(memory, 1), ps.max)
    for b, profile in enumerate(ps.profiles):
        if profile.cpu:
            np.minimum(by_memory[b], largest.free[1] // profile.cpu, out=by_memory[b])
    return np.asarray(np.minimum(by_memory[..., None], by_level))
