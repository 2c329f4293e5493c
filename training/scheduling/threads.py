"""How many threads each worker computes with."""

from __future__ import annotations

import math
from typing import Literal


def threads_of(wanted: int | Literal["auto"], cpu: int, workers: int, free_cores: float | None, follow: bool) -> int:
    """Threads of one worker.

    Args:
        wanted: what the job file says.
        cpu: milli-cores of the node that the job may use.
        workers: workers of the job on the node, this one included.
        free_cores: cores that the job's tasks could have at present, as the node's monitor samples it; None = unknown.
        follow: whether to follow what the monitor samples.
    """
    if wanted != "auto":
        return wanted
    cores = cpu / 1000
    if follow and free_cores is not None:
        cores = min(cores, free_cores)
    return max(1, math.floor(cores / max(workers, 1) + 0.25))
