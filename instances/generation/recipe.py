"""What distinguishes one family of generated instances from another."""

from __future__ import annotations

from dataclasses import dataclass, field

from coplace.instances.generation.catalogue import RELATIVE_SPEED
from coplace.instances.generation.network import Network

Weights = tuple[tuple[int, float], ...]
"""Values with their shares, which sum to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A kind of node: GPU type, GPUs, cores, memory (GiB), pressure capacity, and its share of the nodes."""

    gpu_type: str
    gpus: int
    cores: int
    memory_gib: int
    pressure_capacity: int = 100
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How instances of a family are drawn; shares are kept exactly, up to rounding, not merely on average.

    Attributes:
        shapes: kinds of nodes. Apportioned by largest remainder, the first winning ties.
        networks: networks of the jobs, equally likely.
        worker_gpus: GPUs per worker.
        min_workers, max_workers: choices for the smallest worker count, and for the largest by GPUs per worker.
        max_servers: choices for the largest server count.
        shared_nodes: share of the nodes of which others use a part.
        odd_use: whether others use an odd number of GPUs of such a node.
        many_profiles: share of jobs whose workers choose between request profiles.
        cpus_per_gpu: CPUs per GPU of those profiles, the first being what the other jobs get.
        running: share of the jobs that run already, as far as they fit.
        gang_gpus: smallest and largest number of GPUs of the smallest gang; None: by ``min_workers``.
        demand: all jobs' smallest gangs over the GPUs of the cluster; None: by ``min_workers``.
        relative: ratios of speed between GPU types, as :data:`~.catalogue.RELATIVE_SPEED`.
    """

    shapes: tuple[Shape, ...]
    networks: tuple[Network, ...]
    worker_gpus: Weights
    min_workers: tuple[int, ...] = (1, 1, 1, 2)
    max_workers: dict[int, tuple[int, ...]]
    max_servers: tuple[int, ...] = (4, 4, 6)
    shared_nodes: float = 0.15
    odd_use: bool = False
    many_profiles: float = 0.1
    cpus_per_gpu: tuple[float, ...] = (3, 1)
    running: float = 0.3
    gang_gpus: tuple[int, int] | None = None
    demand: float | None = None
    relative: dict[str, dict[str, float]] = field(default_factory=lambda: RELATIVE_SPEED)
