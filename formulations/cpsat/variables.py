"""Decision variables of the CP-SAT formulation, made only where they can be above zero."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ortools.sat.python import cp_model

from coplace.formulations.columns import ColumnSet, JobColumns
from coplace.formulations.cpsat.piecewise import Encoded, encode
from coplace.formulations.lines import Line
from coplace.formulations.pressure import level_capacities
from coplace.instances.cluster import Node, Vector
from coplace.instances.demand import demand
from coplace.instances.plan import PS, WORKER, Role


class LineTerms(NamedTuple):
    """A line, its y, and the sums w and value."""

    line: Line
    chosen: cp_model.IntVar
    encoded: Encoded


class Variables:
    """Variables by the symbols of docs/formulation.md; keys are positions in the instance.

    Attributes:
        column: y by (job, column).
        kept: z by (job, level).
        workers, servers: x and s by (job, profile, node), and their upper bounds in ``most_workers``, ``most_servers``.
        used: u by (job, node), only for jobs whose span or pressure level matters.
        level: L by (node, level), only with a pressure ladder of two levels or more.
        extra_memory: D by job, MiB of one server above the least of its profile.
        line: y by (job, line).
        encoded: w and the value of a line, as sums of the variables made for it; the latter in whole units.
        line_memory: M by job, MiB of all servers of a line, where a quota asks for it.
    """

    def __init__(self, model: cp_model.CpModel, columns: ColumnSet, scale: float) -> None:
        """Make them; *scale* is whole units per unit of value."""
        self.columns = columns
        self.instance = columns.instance
        self.capacities = [level_capacities(self.instance, node) for node in self.instance.nodes]
        self.levels = len(self.capacities[0]) if self.capacities else 1
        self.column: dict[tuple[int, int], cp_model.IntVar] = {}
        self.kept: dict[tuple[int, int], cp_model.IntVar] = {}
        self.workers: dict[tuple[int, int, int], cp_model.IntVar] = {}
        self.servers: dict[tuple[int, int, int], cp_model.IntVar] = {}
        self.most_workers: dict[tuple[int, int, int], int] = {}
        self.most_servers: dict[tuple[int, int, int], int] = {}
        self.used: dict[tuple[int, int], cp_model.IntVar] = {}
        self.level: dict[tuple[int, int], cp_model.IntVar] = {}
        self.extra_memory: dict[int, cp_model.IntVar] = {}
        self.line: dict[tuple[int, int], cp_model.IntVar] = {}
        self.encoded: dict[tuple[int, int], Encoded] = {}
        self.line_memory: dict[int, cp_model.IntVar] = {}
        self.position = {node.name: n for n, node in enumerate(self.instance.nodes)}
        for j, choices in enumerate(columns.jobs):
            for k in range(len(choices.columns)):
                self.column[j, k] = model.new_bool_var(f"column_{j}_{k}")
            for i, line in enumerate(choices.lines):
                y = self.line[j, i] = model.new_bool_var(f"line_{j}_{i}")
                self.encoded[j, i] = encode(model, line.curve, y, line.curve.encoding(), f"{j}_{i}", scale)
            for ell in range(len(choices.kept)):
                self.kept[j, ell] = model.new_bool_var(f"kept_{j}_{ell}")
            self._tasks(model, j, choices)
        if self.levels > 1:
            for n in range(len(self.instance.nodes)):
                for ell in range(self.levels):
                    self.level[n, ell] = model.new_bool_var(f"level_{n}_{ell}")

    def _tasks(self, model: cp_model.CpModel, j: int, choices: JobColumns) -> None:
        """x, s and u of one job. Their upper bounds are the families ``hosts`` and ``cordon``."""
        most_workers: dict[tuple[int, int], int] = {}
        most_servers: dict[int, int] = {}
        for column in choices.columns:
            key = (column.gpu_type, column.worker_profile)
            most_workers[key] = max(most_workers.get(key, 0), column.workers)
            most_servers[column.ps_profile] = max(most_servers.get(column.ps_profile, 0), column.servers)
        for line in choices.lines:
            key = (line.gpu_type, line.worker_profile)
            most_workers[key] = max(most_workers.get(key, 0), line.most_workers)
            most_servers[line.ps_profile] = max(most_servers.get(line.ps_profile, 0), line.servers)
        needs_used = self._needs_used(choices)
        types = self.instance.gpu_types
        for n, node in enumerate(self.instance.nodes):
            here = False
            for (gpu_type, profile), most in most_workers.items():
                if types[gpu_type] == node.gpu_type:
                    most = min(most, self._fits(j, choices, WORKER, profile, n, node))
                    if most > 0:
                        self.workers[j, profile, n] = model.new_int_var(0, most, f"workers_{j}_{profile}_{n}")
                        self.most_workers[j, profile, n] = most
                        here = True
            for profile, most in most_servers.items():
                most = min(most, self._fits(j, choices, PS, profile, n, node)) if most else 0
                if most > 0:
                    self.servers[j, profile, n] = model.new_int_var(0, most, f"servers_{j}_{profile}_{n}")
                    self.most_servers[j, profile, n] = most
                    here = True
            if here and needs_used:
                self.used[j, n] = model.new_bool_var(f"used_{j}_{n}")

    def _needs_used(self, choices: JobColumns) -> bool:
        """Whether any choice limits the span below what its tasks could take, or the level below the highest."""
        return any(
            column.span < column.workers + column.servers or column.level < self.levels - 1
            for column in choices.columns
        ) or any(line.span < line.most_workers + line.servers or line.level < self.levels - 1 for line in choices.lines)

    def _fits(self, j: int, choices: JobColumns, role: Role, profile: int, n: int, node: Node) -> int:
        """Most new tasks of a role on the empty node: ``hosts``, ``cordon``, capacity, rules and highest level."""
        job = choices.job
        if not node.available or not node.matches(job.node_selector):
            return 0
        spec = job.role(role)
        assert spec is not None
        most = self.instance.rules.max_tasks_per_node or spec.max
        if node.cordoned:
            same = job.current is not None and job.current.profile(role) == profile
            most = min(most, job.current.tasks.get(role, {}).get(node.name, 0) if job.current and same else 0)
        for amount, free in zip(self.least_demand(j, role, profile), node.free, strict=True):
            if amount:
                most = min(most, free // amount)
        if spec.intensity:
            most = min(most, self.capacities[n][-1] // spec.intensity)
        return most

    def least_demand(self, j: int, role: Role, profile: int) -> Vector:
        """Demand of one task; of a server, with the least memory of any choice with that profile."""
        job = self.columns.jobs[j].job
        if role == WORKER:
            return demand(job, WORKER, 1, 1, profile)
        memory = self.ps_memories(j, profile)
        assert job.ps is not None
        return (0, job.ps.profiles[profile].cpu, min(memory))

    def ps_memories(self, j: int, profile: int) -> set[int]:
        """MiB of one server over the columns with that server profile, and the least and most over the lines."""
        choices = self.columns.jobs[j]
        memories = {column.ps_memory for column in choices.columns if column.ps_profile == profile}
        for line in choices.lines:
            if line.ps_profile == profile:
                memories |= {line.ps_memory(line.least_workers), line.ps_memory(line.most_workers)}
        return memories

    def kept_any(self, j: int) -> list[cp_model.IntVar]:
        """z of job *j* at every level; their sum is 1 if the job is kept."""
        return [self.kept[j, ell] for ell in range(len(self.columns.jobs[j].kept))]

    def columns_of(self, j: int) -> Iterable[tuple[int, cp_model.IntVar]]:
        """Position and y of every column of job *j*."""
        return ((k, self.column[j, k]) for k in range(len(self.columns.jobs[j].columns)))

    def lines_of(self, j: int) -> Iterable[LineTerms]:
        """Every line of job *j*."""
        lines = enumerate(self.columns.jobs[j].lines)
        return (LineTerms(line, self.line[j, i], self.encoded[j, i]) for i, line in lines)
