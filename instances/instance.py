"""An instance: everything that one scheduling round decides from."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from pydantic import AfterValidator, model_validator

from coplace.instances.base import Name, Positive, Record
from coplace.instances.cluster import Node, expand
from coplace.instances.consistency import inconsistencies
from coplace.instances.errors import InputError
from coplace.instances.job import Job
from coplace.instances.plan import Plan
from coplace.instances.rules import Goal, PressureLevels, SiteRules

VERSION: Literal["coplace/v1"] = "coplace/v1"
"""Version of the file format that this package reads and writes."""


class Instance(Record):
    """Nodes, jobs, site rules and the goal of one round.

    Attributes:
        version: of the file format.
        name: for reports.
        nodes: the cluster; counted groups are replaced by their members.
        jobs: active jobs, waiting and running.
        rules: site rules.
        goal: what the round maximises.
        pressure_levels: ladder of pressure levels; empty = pressure is not modelled.
        horizon_seconds: time a decision is expected to last; None = from each job's experience.

    Raises:
        pydantic.ValidationError: a value is out of its range.
        InputError: the values contradict each other (unknown node, more running tasks than fit …).
    """

    version: Literal["coplace/v1"] = VERSION
    name: Name | None = None
    nodes: Annotated[tuple[Node, ...], AfterValidator(expand)]
    jobs: tuple[Job, ...] = ()
    rules: SiteRules = SiteRules()
    goal: Goal = "jct"
    pressure_levels: PressureLevels = ()
    horizon_seconds: Positive | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Instance:
        problems = inconsistencies(self)
        if problems:
            raise InputError(problems)
        return self

    @cached_property
    def node(self) -> dict[str, Node]:
        """Nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def job(self) -> dict[str, Job]:
        """Jobs by name."""
        return {job.name: job for job in self.jobs}

    @cached_property
    def gpu_types(self) -> tuple[str, ...]:
        """GPU types of the nodes, sorted."""
        return tuple(sorted({node.gpu_type for node in self.nodes}))

    @cached_property
    def current(self) -> Plan:
        """What runs now."""
        return Plan.model_construct(allocations={job.name: job.current for job in self.jobs if job.current is not None})
