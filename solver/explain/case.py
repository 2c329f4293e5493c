"""A waiting job in its plan, as the kinds of changes look at it."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.scoring import Scoring
from coplace.instances.cluster import RESOURCES, Node, Vector
from coplace.instances.instance import Instance
from coplace.instances.job import Job
from coplace.instances.plan import Plan
from coplace.solver.check import check
from coplace.solver.explain.start import Start, best_start, start
from coplace.solver.packing import Packer
from coplace.solver.placement import Shape
from coplace.solver.smallest import SmallestShapes
from coplace.solver.state import State


class GivesWay(NamedTuple):
    """A running job without which a waiting one would start.

    Attributes:
        share: the largest share of any resource of the cluster that it takes.
        i: its position in the instance.
        found: where the waiting job would go.
    """

    share: float
    i: int
    found: Start


class Case:
    """A job that *plan* (feasible) leaves waiting.

    Attributes:
        instance, plan, scoring: what is explained.
        state: that runs the plan.
        packer: finds placements in it.
        j, job: the waiting job.
        shapes: its smallest shapes.
        top: the highest pressure level.
    """

    def __init__(self, scoring: Scoring, plan: Plan, name: str) -> None:
        self.instance: Instance = scoring.instance
        self.plan = plan
        self.scoring = scoring
        self.state = State(scoring, plan)
        self.packer = Packer(self.state)
        self.j = scoring.index[name]
        self.job: Job = self.instance.jobs[self.j]
        self.shapes: tuple[Shape, ...] = SmallestShapes(self.state).of(self.j)
        self.top = len(scoring.levels) - 1

    @cached_property
    def totals(self) -> Vector:
        """What the available nodes have together, at least 1 of each resource."""
        gpu, cpu, memory = (
            max(1, sum(node.capacity[r] for node in self.instance.nodes if node.available))
            for r in range(len(RESOURCES))
        )
        return gpu, cpu, memory

    @cached_property
    def total_pressure(self) -> int:
        """Pressure capacity of the available nodes together, at least 1."""
        return max(1, sum(node.pressure_capacity for node in self.instance.nodes if node.available))

    def share(self, amounts: Vector | NDArray[np.int64]) -> float:
        """The largest share of any resource of the cluster that *amounts* are."""
        return max(float(amount) / total for amount, total in zip(amounts, self.totals, strict=True))

    @cached_property
    def moved(self) -> int:
        """Running jobs that the plan moves."""
        return len(check(self.instance, self.plan, self.scoring).moved)

    @cached_property
    def as_it_is(self) -> Start | None:
        """Where the job could start and gain with nothing changed."""
        return start(self.state, self.packer, self.j)

    @cached_property
    def at_best(self) -> Start | None:
        """Where the job would fit with the largest gain, which may be a loss; None if it does not fit."""
        return best_start(self.state, self.packer, self.j, self.shapes)

    @cached_property
    def giving_way(self) -> list[GivesWay]:
        """The jobs, pinned ones aside, each of which holds what the waiting one needs; those that take least first."""
        state, found = self.state, []
        for i, job in enumerate(self.instance.jobs):
            if state.placements[i] is None or job.pinned:
                continue
            placement, _ = state.take(i)
            begun = start(state, self.packer, self.j)
            state.put(i, placement)
            if begun is not None:
                found.append(GivesWay(self.share(state.total(i, placement.shape)), i, begun))
        return sorted(found, key=lambda entry: (entry.share, state.values[entry.i], entry.i))

    # --- room --------------------------------------------------------------------------------------------------------

    def room(self, hosts: NDArray[np.intp], demand: Vector, intensity: int) -> NDArray[np.int64]:
        """How many tasks of that demand each of *hosts* can take, by [host]."""
        return self.packer.room(hosts, self.top, demand, intensity, self.state.free[hosts], self.state.load[hosts])

    def worker_room(self, shape: Shape) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """The open nodes of the shape's GPU type, and how many of its workers each can take."""
        hosts = self.packer.hosts(self.j, shape.gpu_type)
        return hosts, self.room(hosts, self.state.demands(self.j, shape)[0], self.state.intensities(self.j)[0])

    def quota_left(self) -> Vector:
        """What the tenant may still take, in each resource; very much where nothing limits it."""
        use = self.state.tenant_use.get(self.job.tenant)
        if use is None:
            return (_UNLIMITED, _UNLIMITED, _UNLIMITED)
        gpu, cpu, memory = (self.state.tenant_limit[self.job.tenant] - use).tolist()
        return gpu, cpu, memory

    # --- changed instances -------------------------------------------------------------------------------------------

    def with_job(self, job: Job) -> Instance:
        """The instance with another version of a job of that name."""
        return with_job(self.instance, job)

    def with_node(self, node: Node) -> Instance:
        """The instance with another version of a node of that name."""
        nodes = tuple(node if each.name == node.name else each for each in self.instance.nodes)
        return self.instance.model_copy(update={"nodes": nodes})

    def with_rules(self, **changes: object) -> Instance:
        """The instance with other site rules."""
        return self.instance.model_copy(update={"rules": self.instance.rules.model_copy(update=changes)})


def with_job(instance: Instance, job: Job) -> Instance:
    """*instance* with another version of a job of that name."""
    jobs = tuple(job if each.name == job.name else each for each in instance.jobs)
    return instance.model_copy(update={"jobs": jobs})


_UNLIMITED = 10**15
"""More than any cluster has of anything."""
