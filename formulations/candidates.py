"""Candidates: every configuration a job could run in, as columns of arrays, with the dominated ones pruned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.hosts import HostLimits, NodeArrays
from coplace.formulations.memory import ps_memory_grid
from coplace.formulations.mesh import open_mesh
from coplace.formulations.scoring import Scoring
from coplace.formulations.spans import fewest_nodes
from coplace.formulations.speed import Configurations
from coplace.instances.instance import Instance
from coplace.instances.job import Job


@dataclass(frozen=True, slots=True)
class Candidates:
    """Columns of configurations that a job may be started in or moved to; keeping a running job as it is is apart.

    A column stands for every placement with its counts and profiles on its GPU type that uses at most ``span`` nodes,
    all at pressure levels ≤ ``level``. All arrays have shape [columns]; columns of a job are consecutive.

    Attributes:
        job: position in the instance.
        gpu_type: index into the instance's ``gpu_types``.
        workers, servers, worker_profile, ps_profile, span, level: the configuration.
        ps_memory: MiB of one server.
        speed: samples/s at exactly that span and level.
        value: λ · U of it, restart included.
    """

    job: NDArray[np.int32]
    gpu_type: NDArray[np.int32]
    workers: NDArray[np.int32]
    servers: NDArray[np.int32]
    worker_profile: NDArray[np.int8]
    ps_profile: NDArray[np.int8]
    span: NDArray[np.int32]
    level: NDArray[np.int32]
    ps_memory: NDArray[np.int64]
    speed: NDArray[np.float64]
    value: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.job)

    def of(self, j: int) -> slice:
        """The columns of the job at position *j*."""
        return slice(int(np.searchsorted(self.job, j)), int(np.searchsorted(self.job, j, side="right")))


def candidates(instance: Instance, scoring: Scoring | None = None, *, prune: bool = True) -> Candidates:
    """All candidate columns of all jobs.

    Left out are configurations that cannot sit on so few nodes or at so low a level (:mod:`coplace.formulations.spans`)
    and, with *prune*, those that another column makes superfluous in every respect:

    * a larger span or a higher level at the same speed (it allows more placements);
    * fewer tasks, none of them larger, at no less speed: any placement of the dominated column becomes one of the
      dominating column by dropping tasks, and dropping tasks never raises span, pressure or the use of a quota.
    """
    scoring = scoring or Scoring(instance)
    nodes = scoring.nodes
    parts = [job_candidates(scoring, nodes, j, prune) for j in range(len(instance.jobs))]
    return _concatenate(parts)


def _concatenate(parts: Sequence[Candidates]) -> Candidates:
    columns = {f.name: np.concatenate([getattr(part, f.name) for part in (_NONE, *parts)]) for f in fields(Candidates)}
    return Candidates(**columns)


_NONE = Candidates(
    job=np.zeros(0, np.int32),
    gpu_type=np.zeros(0, np.int32),
    workers=np.zeros(0, np.int32),
    servers=np.zeros(0, np.int32),
    worker_profile=np.zeros(0, np.int8),
    ps_profile=np.zeros(0, np.int8),
    span=np.zeros(0, np.int32),
    level=np.zeros(0, np.int32),
    ps_memory=np.zeros(0, np.int64),
    speed=np.zeros(0, np.float64),
    value=np.zeros(0, np.float64),
)


def job_candidates(scoring: Scoring, nodes: NodeArrays, j: int, prune: bool) -> Candidates:
    """Columns of one job. Arrays below have the axes [type, worker profile, ps profile, w, p, level, span]."""
    instance = scoring.instance
    job = instance.jobs[j]
    if scoring.weights[j] <= 0:
        return _NONE
    limits = nodes.limits(job)
    cluster_type = {gpu_type: t for t, gpu_type in enumerate(instance.gpu_types)}
    known = [(i, cluster_type[t]) for i, t in enumerate(job.types) if t in cluster_type]
    types = [(i, t) for i, t in known if limits[t].nodes]
    if not types:
        return _NONE
    worker_counts = range(job.worker.min, job.worker.max + 1)
    server_counts = range(job.min_servers, job.max_servers + 1)
    w = np.array(worker_counts)
    p = np.array(server_counts)
    total_nodes = sum(limit.nodes for limit in limits)

    memory = ps_memory_grid(job, worker_counts, server_counts)  # [ps profile, w, p]
    hosted = servers_fit(job, memory, limits)[None, None] & within_quota(instance, job, memory, w, p)[None]
    fewest = fewest_nodes(job, limits, [t for _, t in types], w, p, memory, instance.rules.max_tasks_per_node)
    spans = np.arange(1, min(int(w[-1] + p[-1]), total_nodes) + 1)
    most = np.minimum(w[:, None] + p[None, :], total_nodes)  # [w, p]
    allowed = hosted[..., None, None] & (spans <= most[..., None])[:, :, None, :]  # without a type
    mask = allowed & (spans >= fewest[..., None])
    if not mask.any():
        return _NONE

    i_type, worker_profile, ps_profile, workers, servers, pressure, span = open_mesh(
        [i for i, _ in types], range(len(job.worker.profiles)), range(memory.shape[0]), w, p, scoring.levels, spans
    )
    k = Configurations(i_type, workers, servers, span, pressure, worker_profile, ps_profile)
    speed = np.broadcast_to(scoring.model.predict(job, k).mean, mask.shape)
    if float(speed.min()) <= 0:
        mask &= speed > 0
    if prune:
        _prune_spans_and_levels(mask, speed)
        _prune_tasks(mask, speed, memory)
    flat = np.flatnonzero(mask)
    chosen = np.unravel_index(flat, mask.shape)
    speeds = speed.reshape(-1)[flat]
    return Candidates(
        job=np.full(len(speeds), j, dtype=np.int32),
        gpu_type=np.array([t for _, t in types], dtype=np.int32)[chosen[0]],
        worker_profile=chosen[1].astype(np.int8),
        ps_profile=chosen[2].astype(np.int8),
        workers=w[chosen[3]].astype(np.int32),
        servers=p[chosen[4]].astype(np.int32),
        span=spans[chosen[6]].astype(np.int32),
        level=chosen[5].astype(np.int32),
        ps_memory=memory[chosen[2], chosen[3], chosen[4]],
        speed=speeds,
        value=scoring.value(j, speeds, kept=False),
    )


def servers_fit(job: Job, memory: NDArray[np.int64], limits: Iterable[HostLimits]) -> NDArray[np.bool_]:
    """Whether one server fits some node, by [ps profile, w, p]."""
    if job.ps is None:
        return np.ones(memory.shape, dtype=bool)
    limits = list(limits)
    cpu = max(int(limit.free[1]) for limit in limits)
    largest = max(int(limit.free[2]) for limit in limits)
    calm = max(int(limit.capacities[-1]) for limit in limits) >= job.ps.intensity
    enough_cpu = np.array([profile.cpu <= cpu and calm for profile in job.ps.profiles])
    return np.asarray((memory <= largest) & enough_cpu[:, None, None])


def within_quota(
    instance: Instance, job: Job, memory: NDArray[np.int64], w: NDArray[np.int64], p: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether the job alone stays within its tenant's quota, by [worker profile, ps profile, w, p]."""
    quota = instance.rules.quotas.get(job.tenant)
    shape = (len(job.worker.profiles), *memory.shape)
    if quota is None:
        return np.ones(shape, dtype=bool)
    allowed = np.ones(shape, dtype=bool)
    unlimited = np.iinfo(np.int64).max
    gpu, cpu, most_memory = (unlimited if limit is None else limit for limit in quota.vector)
    for i, profile in enumerate(job.worker.profiles):
        workers = w[:, None]
        allowed[i] &= workers * job.worker.gpu <= gpu
        allowed[i] &= workers * profile.memory + p * memory <= most_memory
        for s, ps_profile in enumerate(job.ps.profiles if job.ps else ()):
            allowed[i, s] &= workers * profile.cpu + p * ps_profile.cpu <= cpu
        if job.ps is None:
            allowed[i] &= workers * profile.cpu <= cpu
    return allowed


def _prune_spans_and_levels(mask: NDArray[np.bool_], speed: NDArray[np.float64]) -> None:
    """Drop a column where the next span, or the next level, is as fast (in place)."""
    wider = speed[..., 1:] >= speed[..., :-1]
    if wider.any():
        mask[..., :-1] &= ~(mask[..., 1:] & wider)
    rougher = speed[..., 1:, :] >= speed[..., :-1, :]
    if rougher.any():
        mask[..., :-1, :] &= ~(mask[..., 1:, :] & rougher)


def _prune_tasks(mask: NDArray[np.bool_], speed: NDArray[np.float64], memory: NDArray[np.int64]) -> None:
    """Drop a column where fewer tasks, none of them larger, are as fast (in place).

    Server memory never falls with the worker count, so fewer workers at equal servers never need more; fewer servers
    do, unless the profile's floor decides.
    """
    no_larger = memory[:, :, :-1] <= memory[:, :, 1:]  # whether p servers are no larger than p + 1, [ps profile, w, p]
    best = speed.copy()  # over w' ≤ w; a speed of 0 dominates nothing, since it is masked
    for w in range(1, mask.shape[3]):  # a loop, since maximum.accumulate takes three times as long
        mask[:, :, :, w] &= best[:, :, :, w - 1] < speed[:, :, :, w]
        np.maximum(best[:, :, :, w - 1], speed[:, :, :, w], out=best[:, :, :, w])
    if not no_larger.any():
        return
    for p in range(1, mask.shape[4]):  # now also over admissible p' ≤ p
        fewer_servers = np.where(no_larger[None, None, :, :, p - 1, None, None], best[:, :, :, :, p - 1], 0.0)
        mask[:, :, :, :, p] &= fewer_servers < speed[:, :, :, :, p]
        np.maximum(best[:, :, :, :, p], fewer_servers, out=best[:, :, :, :, p])
