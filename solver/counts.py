"""Which numbers of workers and servers of a job are looked at: no more than the cluster holds, and not too many."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from coplace.instances.job import Job
from coplace.instances.speed import TableSpeed

MOST_OPTIONS = 2_000
"""Shapes of a job above which the counts are thinned."""

FEWEST_COUNTS = 64
"""Pairs of counts that are looked at however many types and profiles there are."""


def count_ranges(job: Job, workers: range, servers: range, others: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Worker and server counts in those ranges, whose pairs times *others* come to about MOST_OPTIONS at most.

    Thinned counts are all the small ones, then ones in geometric steps, the largest, and what a table has measured.
    """
    most = max(FEWEST_COUNTS, MOST_OPTIONS // max(1, others))
    of_workers = min(len(workers), max(math.isqrt(most), most // max(1, len(servers))))
    of_servers = min(len(servers), most // max(1, of_workers))
    points = job.speed.points if isinstance(job.speed, TableSpeed) else ()
    return (
        thinned(workers, of_workers, {point.workers for point in points}),
        thinned(servers, of_servers, {point.servers for point in points}),
    )


def thinned(counts: range, most: int, besides: Iterable[int] = ()) -> NDArray[np.int64]:
    """About *most* of *counts*, at least 2, ascending; *besides* are added where the others are thinned."""
    low, high = counts.start, counts.stop - 1
    if len(counts) <= max(2, most):
        return np.arange(low, high + 1)
    small = max(1, most // 2)
    steps = np.geomspace(low + small, high, max(1, most - small)).round().astype(np.int64)
    inside = np.array([count for count in besides if count in counts], dtype=np.int64)
    return np.unique(np.concatenate((np.arange(low, low + small), steps, [high], inside)))
