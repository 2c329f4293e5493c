"""Of the millions of choices the few that each job is offered in the compiled search: those that are worth most."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coplace.solver.kernel.compiled import compiled

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

PER_JOB = 32
"""Options of a job."""


@compiled
def most_worth(starts: Ints, worth: Floats, skip: NDArray[np.bool_], per_job: int) -> tuple[Ints, Ints]:
    """The choices of each job that are worth most.

    Args:
        starts: first choice of each job, by [job + 1].
        worth: by [choice].
        skip: choices to leave out.
        per_job: most of a job.

    Returns:
        Positions of choices, job after job and falling by worth; and where each job starts among them, by [job + 1].
    """
    jobs = len(starts) - 1
    chosen = np.empty(jobs * per_job, dtype=np.int64)
    cut = np.zeros(jobs + 1, dtype=np.int64)
    end = 0
    for j in range(jobs):
        first = end
        for k in range(starts[j], starts[j + 1]):
            if skip[k]:
                continue
            if end - first == per_job:
                if worth[k] <= worth[chosen[end - 1]]:
                    continue
                end -= 1
            at = end
            while at > first and worth[chosen[at - 1]] < worth[k]:
                chosen[at] = chosen[at - 1]
                at -= 1
            chosen[at] = k
            end += 1
        cut[j + 1] = end
    return chosen[:end].copy(), cut
