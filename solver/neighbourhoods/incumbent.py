"""The plan that neighbourhoods are taken from, with what choosers look at."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.columns import ColumnSet
from coplace.formulations.rules import is_moved
from coplace.formulations.scoring import Scoring
from coplace.instances.plan import Plan
from coplace.solver.state import State


class Incumbent:
    """A plan and its state, changed together.

    Attributes:
        scoring: of the instance.
        instance: the instance.
        columns: what its jobs choose from.
        plan: the plan.
        state: the same by position.
    """

    def __init__(self, scoring: Scoring, columns: ColumnSet, plan: Plan) -> None:
        self.scoring = scoring
        self.instance = scoring.instance
        self.columns = columns
        self.plan = plan
        self.state = State(scoring, plan)

    def replace(self, plan: Plan) -> None:
        """Take another feasible plan; the work is in proportion to the jobs that differ."""
        state, changed = self.state, []
        for j, job in enumerate(self.instance.jobs):
            old, new = self.plan.get(job.name), plan.get(job.name)
            if old is not new and not (old is not None and old.same_as(new)):
                changed.append(j)
                if state.placements[j] is not None:
                    state.take(j)
        for j in changed:
            allocation = plan.get(self.instance.jobs[j].name)
            if allocation is not None:
                kept = state.kept_placements[j]
                same = kept is not None and allocation.same_as(self.instance.jobs[j].current)
                state.put(j, kept if same and kept is not None else state.placement_of(allocation))
        self.plan = plan

    def free_to_change(self, j: int) -> bool:
        """Whether job *j* is not pinned and could run at all."""
        choices = self.columns.jobs[j]
        return not choices.must_keep and bool(choices.columns or choices.lines or choices.kept)

    def waiting(self) -> list[int]:
        """Jobs that run nothing and could."""
        return [j for j, placement in enumerate(self.state.placements) if placement is None and self.free_to_change(j)]

    def moved(self) -> set[int]:
        """Running jobs that the plan changes, displaced ones aside."""
        jobs = enumerate(self.instance.jobs)
        return {j for j, job in jobs if is_moved(job, self.plan.get(job.name), self.displaced)}

    @cached_property
    def displaced(self) -> frozenset[str]:
        """Running jobs that cannot go on as they are."""
        kept, jobs = self.state.kept_placements, self.instance.jobs
        return frozenset(job.name for job, own in zip(jobs, kept, strict=True) if job.running and own is None)

    @cached_property
    def usable(self) -> NDArray[np.intp]:
        """Nodes that are not lost."""
        return np.flatnonzero(self.state.nodes.available)

    @cached_property
    def best_values(self) -> list[float]:
        """The most that each job could be worth, by [job]."""
        return [
            max(
                (*(c.value for c in choices.columns), *(max(line.curve.vs) for line in choices.lines), *choices.kept),
                default=0.0,
            )
            for choices in self.columns.jobs
        ]

    def hosts(self, j: int) -> list[int]:
        """Nodes on which workers of job *j* may run: of a type that a choice has, with its labels, ascending."""
        nodes, choices = self.state.nodes, self.columns.jobs[j]
        types = {column.gpu_type for column in choices.columns} | {line.gpu_type for line in choices.lines}
        return [n for n in nodes.selected(choices.job).tolist() if int(nodes.gpu_type[n]) in types and nodes.open[n]]
