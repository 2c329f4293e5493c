"""Variables of the formulation, created only where they can be above 0, and the sums of them that rows are made of.

Indices: j job, k column of the job, l its line, a and b request profiles, n node, ℓ level, i-th server of a job on a
node, all counted from 0 but i, which is counted from 1. In memory of servers the unit is GiB, so that coefficients stay
small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from coplace.formulations.columns import Column, ColumnSet, JobColumns
from coplace.formulations.lines import Line
from coplace.formulations.mip.piecewise import Encoded, encode
from coplace.formulations.pressure import level_capacities
from coplace.instances.cluster import RESOURCES, Vector
from coplace.instances.demand import demand, task_demand
from coplace.instances.job import RoleSpec
from coplace.instances.plan import PS, ROLES, WORKER, Role

GIB = 1024
"""MiB in a GiB."""

Terms = list[tuple[Any, float]]
"""A linear sum: variables, each at most once, with their coefficients."""


@dataclass(slots=True)
class JobView:
    """What rows need of one job.

    Attributes:
        choices: its columns, lines and kept values.
        most_workers: most workers by (GPU type, profile a), of the columns and lines that have them.
        most_servers: most servers by profile b.
        least_memory: least MiB of one server by profile b.
        memory_range: most MiB by which a column's or a line's server exceeds that.
        kept_tasks: GPUs, milli-cores, MiB and intensity of the current tasks by node; empty if they cannot stay.
        hosts: nodes on which it may start a task.
    """

    choices: JobColumns
    most_workers: dict[tuple[int, int], int] = field(default_factory=dict)
    most_servers: dict[int, int] = field(default_factory=dict)
    least_memory: dict[int, int] = field(default_factory=dict)
    memory_range: int = 0
    kept_tasks: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)
    hosts: set[int] = field(default_factory=set)

    def worker_demand(self, a: int) -> Vector:
        """GPUs, milli-cores and MiB of one worker."""
        return demand(self.choices.job, WORKER, 1, 1, a)

    def server_demand(self, b: int) -> Vector:
        """GPUs, milli-cores and least MiB of one server."""
        assert self.choices.job.ps is not None
        return (0, self.choices.job.ps.profiles[b].cpu, self.least_memory[b])

    def column_demand(self, column: Column) -> Vector:
        """GPUs, milli-cores and MiB of all tasks of a column."""
        worker = self.worker_demand(column.worker_profile)
        gpu, cpu, memory = (column.workers * amount for amount in worker)
        if self.choices.job.ps is not None:
            cpu += column.servers * self.choices.job.ps.profiles[column.ps_profile].cpu
            memory += column.servers * column.ps_memory
        return (gpu, cpu, memory)

    def line_demand(self, line: Line, r: int) -> tuple[int, int]:
        """Demand of a line in resource r, fixed and for each worker, without the memory of its servers."""
        job = self.choices.job
        servers = line.servers * job.ps.profiles[line.ps_profile].cpu if job.ps is not None else 0
        return (servers if RESOURCES[r] == "cpu" else 0, self.worker_demand(line.worker_profile)[r])


class Variables:
    """The variables by their indices, as docs/formulation.md names them, and sums of them.

    Attributes:
        column: y[j,k].
        kept: z[j,ℓ].
        workers, servers: x[j,a,n] and s[j,b,n].
        used: u[j,n], of jobs whose span or level can bind.
        level: L[n,ℓ], where there is a ladder.
        tolerant: Σ_{k: ℓ_k > ℓ} y[j,k] by [j,ℓ], so that `levels` need not repeat that sum for every node.
        extra_memory: D[j] in GiB.
        holds: q[j,n,i].
        extra: e[j,n,i] in GiB.
        line: y[j,l].
        encoded: w[j,l] and the value of a line, as sums of the variables made for it.
        line_memory: M[j] in GiB, where a quota asks for it.
    """

    def __init__(self, columns: ColumnSet, problem: Any) -> None:
        self.columns = columns
        self.instance = columns.instance
        self.nodes = columns.instance.nodes
        self._problem = problem
        self.column: dict[tuple[int, int], Any] = {}
        self.kept: dict[tuple[int, int], Any] = {}
        self.workers: dict[tuple[int, int, int], Any] = {}
        self.servers: dict[tuple[int, int, int], Any] = {}
        self.used: dict[tuple[int, int], Any] = {}
        self.level: dict[tuple[int, int], Any] = {}
        self.tolerant: dict[tuple[int, int], Any] = {}
        self.extra_memory: dict[int, Any] = {}
        self.holds: dict[tuple[int, int, int], Any] = {}
        self.extra: dict[tuple[int, int, int], Any] = {}
        self.line: dict[tuple[int, int], Any] = {}
        self.encoded: dict[tuple[int, int], Encoded] = {}
        self.line_memory: dict[int, Any] = {}
        ladder = bool(self.instance.pressure_levels)
        self.capacities = [level_capacities(self.instance, node) for node in self.nodes] if ladder else []
        self.levels = len(self.instance.pressure_levels) or 1
        self._type = {name: t for t, name in enumerate(self.instance.gpu_types)}
        self.node_index = {node.name: n for n, node in enumerate(self.nodes)}
        self.workers_on: list[list[tuple[int, int, Any]]] = [[] for _ in self.nodes]
        self.servers_on: list[list[tuple[int, int, Any]]] = [[] for _ in self.nodes]
        self.kept_on: list[list[int]] = [[] for _ in self.nodes]
        self.jobs = [self._view(choices) for choices in columns.jobs]
        self._create()

    # --- data -------------------------------------------------------------------------------------------------------

    def _view(self, choices: JobColumns) -> JobView:
        view = JobView(choices)
        ways: list[tuple[Column | Line, int, int, int]] = [  # most workers, least and most MiB of one server
            (column, column.workers, column.ps_memory, column.ps_memory) for column in choices.columns
        ]
        for line in choices.lines:
            least, most = line.ps_memory(line.least_workers), line.ps_memory(line.most_workers)
            ways.append((line, line.most_workers, least, most))
        for way, workers, least, _ in ways:
            key = (way.gpu_type, way.worker_profile)
            view.most_workers[key] = max(view.most_workers.get(key, 0), workers)
            if way.servers:
                b = way.ps_profile
                view.most_servers[b] = max(view.most_servers.get(b, 0), way.servers)
                view.least_memory[b] = min(view.least_memory.get(b, least), least)
        for way, _, _, most in ways:
            if way.servers:
                view.memory_range = max(view.memory_range, most - view.least_memory[way.ps_profile])
        current = choices.job.current
        if choices.kept and current is not None:
            for role in ROLES:
                spec = choices.job.role(role)
                if spec is None:
                    continue
                one = (*task_demand(choices.job, role, current), spec.intensity)
                for name, count in current.tasks.get(role, {}).items():
                    n = self.node_index[name]
                    gpu, cpu, memory, intensity = view.kept_tasks.get(n, (0, 0, 0, 0))
                    view.kept_tasks[n] = (
                        gpu + count * one[0],
                        cpu + count * one[1],
                        memory + count * one[2],
                        intensity + count * one[3],
                    )
        view.hosts = {n for n in range(len(self.nodes)) if self.hosts(view, n)} if ways else set()
        return view

    def gpu_type(self, n: int) -> int:
        """Index of the node's GPU type, as columns have it."""
        return self._type[self.nodes[n].gpu_type]

    def fits(self, view: JobView, role: RoleSpec, one: Vector, n: int) -> int:
        """How many tasks that demand *one* each the empty node holds."""
        room = self.instance.rules.max_tasks_per_node or role.max
        for amount, free in zip(one, self.nodes[n].free, strict=True):
            if amount:
                room = min(room, free // amount)
        if role.intensity and self.capacities:
            room = min(room, self.capacities[n][-1] // role.intensity)
        return room

    def hosts(self, view: JobView, n: int) -> bool:
        """No task on a lost node, nor on one without the labels of `node_selector`: there is no x[j,a,n], s[j,b,n]."""
        node = self.nodes[n]
        return node.available and node.matches(view.choices.job.node_selector)

    def cordon(self, view: JobView, role: Role, profile: int, n: int, room: int) -> int:
        """On a cordoned node x[j,a,n] and s[j,b,n] ≤ the current tasks there with that profile."""
        node, current = self.nodes[n], view.choices.job.current
        if not node.cordoned:
            return room
        if current is None or current.profile(role) != profile:
            return 0
        return min(room, current.tasks.get(role, {}).get(node.name, 0))

    def span_binds(self, j: int) -> bool:
        """Whether a column or a line allows fewer nodes than its tasks could spread over."""
        choices, hosts = self.jobs[j].choices, len(self.jobs[j].hosts)
        return any(c.span < min(c.workers + c.servers, hosts) for c in choices.columns) or any(
            line.span < min(line.most_workers + line.servers, hosts) for line in choices.lines
        )

    def level_binds(self, j: int) -> bool:
        """Whether a column or a line bears less than the highest level."""
        return any(level < self.levels - 1 for level in self._levels_borne(j))

    def _levels_borne(self, j: int) -> set[int]:
        """Levels of columns and lines."""
        choices = self.jobs[j].choices
        return {column.level for column in choices.columns} | {line.level for line in choices.lines}

    # --- creation ---------------------------------------------------------------------------------------------------

    def new(self, name: str, most: float, whole: bool = True) -> Any:
        """A variable from 0 to *most*."""
        category = "Integer" if whole else "Continuous"
        add = getattr(self._problem, "add_variable", None)
        if add is not None:
            return add(name, 0, most, category)
        import pulp

        return pulp.LpVariable(name, 0, most, category)  # before PuLP 3.3

    def _create(self) -> None:
        for j, view in enumerate(self.jobs):
            for k in range(len(view.choices.columns)):
                self.column[j, k] = self.new(f"column_{j}_{k}", 1)
            for number, line in enumerate(view.choices.lines):
                name = f"{j}_{number}"
                y = self.line[j, number] = self.new(f"line_{name}", 1)
                self.encoded[j, number] = encode(self.new, line.curve, y, line.curve.encoding(), name)
            for level in range(len(view.choices.kept)):
                self.kept[j, level] = self.new(f"kept_{j}_{level}", 1)
            for n in view.kept_tasks:
                self.kept_on[n].append(j)
            placed = self._create_workers(j, view) | self._create_servers(j, view)
            if self.span_binds(j) or self.level_binds(j):
                for n in sorted(placed):
                    self.used[j, n] = self.new(f"used_{j}_{n}", 1)
            self._create_tolerant(j, view)
            self._create_memory(j, view)
        for n in range(len(self.nodes) if self.capacities else 0):
            if self.workers_on[n] or self.servers_on[n] or self.kept_on[n]:
                for level in range(self.levels):
                    self.level[n, level] = self.new(f"level_{n}_{level}", 1)

    def _create_workers(self, j: int, view: JobView) -> set[int]:
        job, nodes = view.choices.job, set()
        for (t, a), most in view.most_workers.items():
            one = view.worker_demand(a)
            for n in view.hosts:
                if self.gpu_type(n) != t:
                    continue
                room = self.cordon(view, WORKER, a, n, min(most, self.fits(view, job.worker, one, n)))
                if room > 0:
                    x = self.workers[j, a, n] = self.new(f"workers_{j}_{a}_{n}", room)
                    self.workers_on[n].append((j, a, x))
                    nodes.add(n)
        return nodes

    def _create_servers(self, j: int, view: JobView) -> set[int]:
        job, nodes = view.choices.job, set()
        for b, most in view.most_servers.items():
            assert job.ps is not None
            one = view.server_demand(b)
            for n in view.hosts:
                room = self.cordon(view, PS, b, n, min(most, self.fits(view, job.ps, one, n)))
                if room > 0:
                    s = self.servers[j, b, n] = self.new(f"servers_{j}_{b}_{n}", room)
                    self.servers_on[n].append((j, b, s))
                    nodes.add(n)
        return nodes

    def _create_tolerant(self, j: int, view: JobView) -> None:
        if self.level_binds(j):
            for level in range(self.levels - 1):
                if any(borne > level for borne in self._levels_borne(j)):
                    self.tolerant[j, level] = self.new(f"tolerant_{j}_{level}", 1, whole=False)

    def _create_memory(self, j: int, view: JobView) -> None:
        quota = self.instance.rules.quotas.get(view.choices.job.tenant)
        if quota is not None and quota.memory is not None:
            most = max((line.servers * line.ps_memory(line.most_workers) for line in view.choices.lines), default=0)
            if most:
                self.line_memory[j] = self.new(f"line_memory_{j}", most / GIB, whole=False)
        if not view.memory_range:
            return
        extra = view.memory_range / GIB
        self.extra_memory[j] = self.new(f"extra_memory_{j}", extra, whole=False)
        for n in sorted(view.hosts):
            for i in range(1, self.most_servers_on(j, n) + 1):
                self.holds[j, n, i] = self.new(f"holds_{j}_{n}_{i}", 1)
                self.extra[j, n, i] = self.new(f"extra_{j}_{n}_{i}", extra, whole=False)

    def most_servers_on(self, j: int, n: int) -> int:
        """Most servers of a job on a node, by the bounds of s[j,b,n]."""
        return max((int(s.upBound) for _, s in self.servers_of(j, n)), default=0)

    # --- sums -------------------------------------------------------------------------------------------------------

    def chosen(self, j: int, weight: Callable[[Column | Line], float]) -> Terms:
        """Σ_k weight(k) · y[j,k] + Σ_l weight(l) · y[j,l], of what does not depend on the worker count."""
        choices = self.jobs[j].choices
        terms: Terms = [(self.column[j, k], amount) for k, c in enumerate(choices.columns) if (amount := weight(c))]
        lines = enumerate(choices.lines)
        return terms + [(self.line[j, number], amount) for number, line in lines if (amount := weight(line))]

    def counted(
        self, j: int, of_column: Callable[[Column], float], of_line: Callable[[Line], tuple[float, float]]
    ) -> Terms:
        """Σ_k of_column(k) · y[j,k] + Σ_l (fixed · y[j,l] + per worker · w[j,l]), both numbers by *of_line*."""
        choices = self.jobs[j].choices
        terms: Terms = [(self.column[j, k], amount) for k, c in enumerate(choices.columns) if (amount := of_column(c))]
        for number, line in enumerate(choices.lines):
            fixed, per_worker = of_line(line)
            amounts: dict[Any, float] = {self.line[j, number]: fixed}  # w[j,l] may hold y[j,l] too
            for variable, count in self.encoded[j, number].workers if per_worker else ():
                amounts[variable] = amounts.get(variable, 0) + per_worker * count
            terms += [(variable, amount) for variable, amount in amounts.items() if amount]
        return terms

    def stays(self, j: int, factor: float = 1.0, up_to: int | None = None) -> Terms:
        """factor · Σ_ℓ z[j,ℓ], of all levels or of those ≤ *up_to*; empty with factor 0."""
        kept = range(len(self.jobs[j].choices.kept) if factor else 0)
        return [(self.kept[j, level], factor) for level in kept if up_to is None or level <= up_to]

    def workers_of(self, j: int, n: int) -> list[tuple[int, Any]]:
        """Profile a and x[j,a,n]."""
        profiles = range(len(self.jobs[j].choices.job.worker.profiles))
        return [(a, self.workers[j, a, n]) for a in profiles if (j, a, n) in self.workers]

    def servers_of(self, j: int, n: int) -> list[tuple[int, Any]]:
        """Profile b and s[j,b,n]."""
        return [(b, self.servers[j, b, n]) for b in self.jobs[j].most_servers if (j, b, n) in self.servers]

    def gpus_taken(self, n: int) -> Terms:
        """GPUs that workers of jobs that start or move take on a node."""
        return [(x, gpu) for j, _, x in self.workers_on[n] if (gpu := self.jobs[j].choices.job.worker.gpu)]
