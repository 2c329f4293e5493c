"""Which tasks run where: of one job (:class:`Allocation`) and of all (:class:`Plan`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from coplace.instances.base import Count, Name, Record

Role = Literal["worker", "ps"]
"""Role of a task: ``worker`` computes gradients, ``ps`` (parameter server) keeps parameters."""

WORKER: Role = "worker"
PS: Role = "ps"
ROLES: tuple[Role, Role] = (WORKER, PS)

TaskCount = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]


class Allocation(Record):
    """The tasks of one job: x[role, n] of one job j.

    Attributes:
        tasks: role → node → number of tasks (≥ 1).
        profiles: role → index of the request profile that all its tasks use; 0 where a role is missing.
    """

    tasks: dict[Role, dict[Name, TaskCount]]
    profiles: dict[Role, Count] = {}

    def count(self, role: Role) -> int:
        """Tasks in *role*."""
        return sum(self.tasks.get(role, {}).values())

    @property
    def workers(self) -> int:
        """Worker count w."""
        return self.count(WORKER)

    @property
    def servers(self) -> int:
        """Parameter-server count p."""
        return self.count(PS)

    def profile(self, role: Role) -> int:
        """Index of the request profile of *role*."""
        return self.profiles.get(role, 0)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Counts and profiles of workers and servers, without the nodes."""
        return (self.workers, self.servers, self.profile(WORKER), self.profile(PS))

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes in use, sorted; their number is the span m."""
        return tuple(sorted({node for placed in self.tasks.values() for node in placed}))

    @property
    def span(self) -> int:
        """Distinct nodes in use, m."""
        return len(self.nodes)

    @cached_property
    def canonical(self) -> tuple[tuple[str, int, tuple[tuple[str, int], ...]], ...]:
        """A form in which equal allocations are equal, whatever empty roles or default profiles they spell out."""
        return tuple(
            (role, self.profile(role), tuple(sorted(self.tasks[role].items())))
            for role in ROLES
            if self.tasks.get(role)
        )

    def same_as(self, other: Allocation | None) -> bool:
        """Whether both run the same tasks, with the same profiles, on the same nodes."""
        return other is not None and self.canonical == other.canonical


def _with_tasks(allocations: dict[str, Allocation]) -> dict[str, Allocation]:
    return {job: allocation for job, allocation in allocations.items() if allocation.nodes}


class Plan(Record):
    """What the cluster is to run: job → :class:`Allocation`. Jobs without an entry run nothing.

    An entry without any task says the same as no entry, and is dropped.
    """

    allocations: Annotated[dict[Name, Allocation], AfterValidator(_with_tasks)] = {}

    def __getitem__(self, job: str) -> Allocation:
        return self.allocations[job]

    def __contains__(self, job: object) -> bool:
        return job in self.allocations

    def __len__(self) -> int:
        return len(self.allocations)

    def get(self, job: str) -> Allocation | None:
        """The allocation of *job*, or None if it runs nothing."""
        return self.allocations.get(job)

    @property
    def tasks(self) -> Mapping[str, dict[Role, dict[str, int]]]:
        """x: job → role → node → number of tasks."""
        return {job: allocation.tasks for job, allocation in self.allocations.items()}
