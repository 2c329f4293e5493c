"""Rows that leave one of many equal solutions, and the order that they ask for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from itertools import pairwise

from coplace.formulations.mip.objective import value
from coplace.formulations.mip.rows import Rows
from coplace.formulations.mip.variables import JobView, Variables


class Symmetry:
    """Classes of nodes and of jobs that are alike in everything, each of two members or more, in their order.

    Both orders can be kept at once: swapping alike jobs leaves the GPUs taken on a node, and swapping alike nodes
    leaves every job's value.

    Attributes:
        nodes, jobs: the classes.
    """

    def __init__(self, variables: Variables) -> None:
        self._v = variables
        occupied = {name for job in variables.instance.jobs if job.current is not None for name in job.current.nodes}
        nodes: dict[Hashable, list[int]] = defaultdict(list)
        for n, node in enumerate(variables.nodes):
            if node.name not in occupied:
                labels = tuple(sorted(node.labels.items()))
                key = (node.gpu_type, node.free, node.pressure_capacity, labels, node.cordoned, node.available)
                nodes[key].append(n)
        jobs: dict[Hashable, list[int]] = defaultdict(list)
        for j, view in enumerate(variables.jobs):
            if view.choices.columns or view.choices.lines:
                jobs[_likeness(view)].append(j)
        self.nodes = [members for members in nodes.values() if len(members) > 1]
        self.jobs = [members for members in jobs.values() if len(members) > 1]

    def add_all(self, rows: Rows) -> None:
        """Both families."""
        self.equal_nodes(rows)
        self.equal_jobs(rows)

    def equal_nodes(self, rows: Rows) -> None:
        """Of nodes alike in everything, on which nothing of ours runs, the earlier has no fewer GPUs taken."""
        for members in self.nodes:
            for earlier, later in pairwise(members):
                less = [(x, -gpus) for x, gpus in self._v.gpus_taken(later)]
                rows.add(f"equal_nodes_{earlier}_{later}", self._v.gpus_taken(earlier) + less, ">=", 0, real=True)

    def equal_jobs(self, rows: Rows) -> None:
        """Of jobs alike in everything, the earlier has no lower value."""
        for members in self.jobs:
            choices = self._v.jobs[members[0]].choices
            highest = [max(line.curve.vs) for line in choices.lines]
            most = max(*(column.value for column in choices.columns), *highest, *choices.kept, 0.0)
            for earlier, later in pairwise(members):
                more = [(variable, amount / most) for variable, amount in value(self._v, earlier)]
                less = [(variable, -amount / most) for variable, amount in value(self._v, later)]
                rows.add(f"equal_jobs_{earlier}_{later}", more + less, ">=", 0, real=True)


def _likeness(view: JobView) -> Hashable:
    """Equal for jobs that differ in nothing that the model knows of."""
    choices, job = view.choices, view.choices.job
    return (
        choices.columns,
        choices.lines,
        choices.kept,
        choices.must_keep,
        choices.counts_as_move,
        job.tenant,
        job.worker.model_dump_json(),
        "" if job.ps is None else job.ps.model_dump_json(),
        tuple(sorted(job.node_selector.items())),
        None if job.current is None else job.current.canonical,
    )
