"""What a job does at its smallest, and how its speed grows from there."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.mesh import open_mesh
from coplace.formulations.pressure import levels
from coplace.formulations.speed import Configurations, SpeedModel
from coplace.instances.instance import Instance
from coplace.instances.job import Job

if TYPE_CHECKING:
    from coplace.formulations.memo import Memo


class Reference(NamedTuple):
    """Smallest worker count with a speed, the speed there, and the best speeds at larger counts.

    Attributes:
        workers: w0; 0 if the job has no speed at all.
        speed: v0 in samples/s; 0 likewise.
        growth_workers, growth_speeds: counts w0·2, w0·4, …, max and the best speed at or below each, in samples/s.
    """

    workers: int
    speed: float
    growth_workers: tuple[int, ...] = ()
    growth_speeds: tuple[float, ...] = ()


def references(instance: Instance, model: SpeedModel, memo: Memo | None = None) -> list[Reference]:
    """The reference of every job, in the order of the instance; *memo* remembers those of earlier rounds."""
    lowest = levels(instance)[0]
    cluster = set(instance.gpu_types)
    if memo is None:
        return [_reference(job, cluster, lowest, model) for job in instance.jobs]
    return [memo.reference(instance, job, partial(_reference, job, cluster, lowest, model)) for job in instance.jobs]


def _reference(job: Job, cluster: set[str], lowest: float, model: SpeedModel) -> Reference:
    types = [index for index, gpu_type in enumerate(job.types) if gpu_type in cluster]
    low, high = job.worker.min, job.worker.max
    if not types:
        return Reference(0, 0.0)
    counts = _doubling(low, high)
    best = _best_speeds(job, types, counts, lowest, model)
    if best[0] <= 0:  # a table with a gap at the smallest count
        first = _first_with_speed(job, types, range(low, high + 1), lowest, model)
        if first is None:
            return Reference(0, 0.0)
        counts = _doubling(first, high)
        best = _best_speeds(job, types, counts, lowest, model)
    measured = np.flatnonzero(best > 0)[1:]
    running_best = np.maximum.accumulate(best)
    growth = tuple(counts[i] for i in measured), tuple(float(running_best[i]) for i in measured)
    return Reference(counts[0], float(best[0]), *growth)


def _first_with_speed(job: Job, types: list[int], counts: range, lowest: float, model: SpeedModel) -> int | None:
    """The smallest of *counts* that has a speed; looks at a few at a time, since there may be very many."""
    for start in range(0, len(counts), _AT_A_TIME):
        some = list(counts[start : start + _AT_A_TIME])
        with_speed = np.flatnonzero(_best_speeds(job, types, some, lowest, model) > 0)
        if with_speed.size:
            return some[int(with_speed[0])]
    return None


_AT_A_TIME = 64


def _doubling(low: int, high: int) -> list[int]:
    """low, 2·low, 4·low, … below high, and high."""
    counts = []
    w = low
    while w < high:
        counts.append(w)
        w *= 2
    return [*counts, high]


def _best_speeds(
    job: Job, types: list[int], counts: list[int], lowest: float, model: SpeedModel
) -> NDArray[np.float64]:
    """Best speed over types, server counts and profiles at span 1 and the lowest level, by worker count."""
    axes = open_mesh(
        counts,
        types,
        range(job.min_servers, job.max_servers + 1),
        range(len(job.worker.profiles)),
        range(len(job.ps.profiles) if job.ps else 1),
    )
    workers, gpu_type, servers, worker_profile, ps_profile = axes
    k = Configurations(gpu_type, workers, servers, 1, lowest, worker_profile, ps_profile)
    speeds = np.broadcast_to(model.predict(job, k).mean, np.broadcast_shapes(*(axis.shape for axis in axes)))
    return np.asarray(speeds.reshape(len(counts), -1).max(axis=1))
