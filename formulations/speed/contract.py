"""The contract behind which every speed model stands: thousands of configurations at once, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from coplace.instances.job import Job

Numbers = Any
"""A scalar or a NumPy array; the fields of one struct broadcast against each other."""


@dataclass(frozen=True, slots=True)
class Configurations:
    """A struct of arrays: how one job could run. Fields are integers unless stated, scalars or arrays.

    Attributes:
        gpu_type: index into the job's ``types``.
        workers: w ≥ 1.
        servers: p ≥ 0.
        span: distinct nodes m ≥ 1.
        pressure: τ of the worst node, share of its pressure capacity (float).
        worker_profile, ps_profile: indices of the request profiles.
    """

    gpu_type: Numbers
    workers: Numbers
    servers: Numbers
    span: Numbers = 1
    pressure: Numbers = 0.0
    worker_profile: Numbers = 0
    ps_profile: Numbers = 0


class Speeds(NamedTuple):
    """Training speed times statistical efficiency in samples/s; 0 where there is none. Broadcast shape of the input."""

    mean: Numbers
    lower: Numbers
    upper: Numbers


class SpeedModel(Protocol):
    """Predicts speeds. ``mean`` must not rise with span or pressure (learned models: through a monotone envelope)."""

    def predict(self, job: Job, configurations: Configurations) -> Speeds:
        """Speeds of *job* under *configurations*."""
        ...
