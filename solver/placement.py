"""A placement: the tasks of one job by node position, as the search handles it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from coplace.instances.plan import PS, WORKER, Allocation


class Shape(NamedTuple):
    """Counts, GPU type and profiles of a job, placement aside.

    Attributes:
        gpu_type: index into the instance's ``gpu_types``.
        workers, servers: counts.
        worker_profile, ps_profile: indices of the request profiles.
    """

    gpu_type: int
    workers: int
    servers: int
    worker_profile: int
    ps_profile: int


@dataclass(frozen=True)
class Placement:
    """A shape and where its tasks are: node position → number of tasks."""

    shape: Shape
    workers: dict[int, int]
    servers: dict[int, int] = field(default_factory=dict)

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """Positions of the nodes in use."""
        return tuple(self.workers.keys() | self.servers.keys())

    @property
    def span(self) -> int:
        """Distinct nodes in use."""
        return len(self.nodes)

    def allocation(self, names: list[str]) -> Allocation:
        """The same with node names, for a plan."""
        tasks = {WORKER: {names[n]: count for n, count in sorted(self.workers.items())}}
        profiles = {WORKER: self.shape.worker_profile} if self.shape.worker_profile else {}
        if self.servers:
            tasks[PS] = {names[n]: count for n, count in sorted(self.servers.items())}
            if self.shape.ps_profile:
                profiles[PS] = self.shape.ps_profile
        return Allocation.model_construct(tasks=tasks, profiles=profiles)
