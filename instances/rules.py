"""Site rules and goals."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from coplace.instances.base import Count, Name, Number, Record
from coplace.instances.quantities import TotalCpu, TotalGpus, TotalMemory
from coplace.instances.speed import AtLeastOne

Goal = Literal["jct", "throughput", "fairness", "makespan", "deadline"]
"""What a round maximises; see docs/model.md."""

GOALS: tuple[Goal, ...] = ("jct", "throughput", "fairness", "makespan", "deadline")


class Quota(Record):
    """Most that a tenant's jobs may use at once, all tasks together; None = no limit."""

    gpu: TotalGpus | None = None
    cpu: TotalCpu | None = None
    memory: TotalMemory | None = None

    @property
    def vector(self) -> tuple[int | None, int | None, int | None]:
        """The limits in the order of :data:`~coplace.instances.cluster.RESOURCES`."""
        return (self.gpu, self.cpu, self.memory)


class SiteRules(Record):
    """Rules of the site that every plan keeps.

    Attributes:
        quotas: tenant → quota.
        max_tasks_per_node: most tasks of one job on one node, all roles together.
        move_budget: most running jobs that one round may move, resize or stop (lost capacity aside).
    """

    quotas: dict[Name, Quota] = {}
    max_tasks_per_node: AtLeastOne | None = None
    move_budget: Count | None = None


PressureLevels = tuple[Annotated[Number, Field(ge=1e-6, le=1000)], ...]
"""Ladder τ of pressure levels, ascending; the last is the highest pressure a node may run at. Empty: off."""
