"""Slowdown factors of request profiles as matrices, so that a form can index them by configuration."""

from __future__ import annotations

import numpy as np

from coplace.formulations.speed.lookup import Lookup
from coplace.instances.job import Job, PsSpec, WorkerSpec


def slowdowns(job: Job, role: WorkerSpec | PsSpec | None) -> Lookup:
    """Factor ≥ 1 by [index into ``job.types``, profile]; a single 1 per type for a role the job does not have."""
    if role is None:
        return Lookup(np.ones((len(job.types), 1)))
    return Lookup(np.array([[profile.slowdown_on(t) for profile in role.profiles] for t in job.types]))
