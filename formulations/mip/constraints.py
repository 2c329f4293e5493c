"""The constraint families of docs/formulation.md, one method each; `hosts` and `cordon` bound :class:`Variables`."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from coplace.formulations.columns import Column
from coplace.formulations.lines import Line
from coplace.formulations.mip.rows import Rows
from coplace.formulations.mip.variables import GIB, Terms, Variables
from coplace.instances.cluster import RESOURCES


class Constraints:
    """Adds the rows of one family after the other."""

    def __init__(self, variables: Variables, rows: Rows) -> None:
        self._v = variables
        self._rows = rows
        self._jobs = list(enumerate(variables.jobs))
        self._nodes = list(enumerate(variables.nodes))
        self._rules = variables.instance.rules

    def add_all(self) -> None:
        """All families but those of symmetry."""
        self._lines()
        self.choose()
        self.workers()
        self.servers()
        self.use()
        self.span()
        self.capacity()
        self.server_memory()
        self.tasks_per_node()
        self.pressure()
        self.levels()
        self.quota()
        self.pinned()
        self.move_budget()
        self.slots()

    def _lines(self) -> None:
        """What ties w[j,l] and the value of a line to y[j,l]."""
        for encoded in self._v.encoded.values():
            for row in encoded.rows:
                self._rows.add(*row)

    def choose(self) -> None:
        """A job does at most one thing: Σ_k y[j,k] + Σ_l y[j,l] + Σ_ℓ z[j,ℓ] ≤ 1."""
        for j, _ in self._jobs:
            self._rows.add(f"choose_{j}", self._v.chosen(j, lambda _: 1) + self._v.stays(j), "<=", 1)

    def workers(self) -> None:
        """As many workers as the column or the line has, on its type.

        Σ_{n of type t} x[j,a,n] = Σ_{k: t_k = t, a_k = a} w_k · y[j,k] + Σ_{l: t_l = t, a_l = a} w[j,l].
        """
        placed: dict[tuple[int, int, int], Terms] = defaultdict(list)
        for (j, a, n), x in self._v.workers.items():
            placed[j, self._v.gpu_type(n), a].append((x, 1))
        for j, view in self._jobs:
            for t, a in view.most_workers:

                def count(column: Column, key: tuple[int, int] = (t, a)) -> int:
                    return column.workers if (column.gpu_type, column.worker_profile) == key else 0

                def each(line: Line, key: tuple[int, int] = (t, a)) -> tuple[int, int]:
                    return (0, int((line.gpu_type, line.worker_profile) == key))

                self._equal(f"workers_{j}_{t}_{a}", placed[j, t, a], self._v.counted(j, count, each))

    def servers(self) -> None:
        """Servers have the profile of the choice: Σ_n s[j,b,n] = Σ_{k: b_k = b} p_k · y[j,k], lines likewise."""
        placed: dict[tuple[int, int], Terms] = defaultdict(list)
        for (j, b, _), s in self._v.servers.items():
            placed[j, b].append((s, 1))
        for j, view in self._jobs:
            for b in view.most_servers:

                def count(way: Column | Line, profile: int = b) -> int:
                    return way.servers if way.ps_profile == profile else 0

                self._equal(f"servers_{j}_{b}", placed[j, b], self._v.chosen(j, count))

    def use(self) -> None:
        """A node with tasks is in use: x[j,a,n] ≤ most · u[j,n] and s[j,b,n] ≤ most · u[j,n]."""
        for (j, n), u in self._v.used.items():
            for a, x in self._v.workers_of(j, n):
                self._rows.add(f"use_workers_{j}_{a}_{n}", [(x, 1), (u, -x.upBound)], "<=", 0)
            for b, s in self._v.servers_of(j, n):
                self._rows.add(f"use_servers_{j}_{b}_{n}", [(s, 1), (u, -s.upBound)], "<=", 0)

    def span(self) -> None:
        """At most as many nodes in use as the choice allows: Σ_n u[j,n] ≤ Σ_k m_k · y[j,k] + Σ_l m_l · y[j,l]."""
        for j, view in self._jobs:
            if self._v.span_binds(j):
                used = [(self._v.used[j, n], 1.0) for n in sorted(view.hosts) if (j, n) in self._v.used]
                self._rows.add(f"span_{j}", used + self._v.chosen(j, lambda column: -column.span), "<=", 0)

    def capacity(self) -> None:
        """Demand ≤ free: Σ_j (Σ_a demand · x[j,a,n] + Σ_b demand · s[j,b,n]) + kept demand · Σ_ℓ z[j,ℓ] ≤ free[n,r]."""
        for n, node in self._nodes:
            workers = [(x, self._v.jobs[j].worker_demand(a)) for j, a, x in self._v.workers_on[n]]
            servers = [(s, self._v.jobs[j].server_demand(b)) for j, b, s in self._v.servers_on[n]]
            for r, resource in enumerate(RESOURCES):
                terms = [(variable, one[r]) for variable, one in workers + servers if one[r]]
                for j in self._v.kept_on[n]:
                    terms += [(z, int(amount)) for z, amount in self._v.stays(j, self._v.jobs[j].kept_tasks[n][r])]
                extra = self._extra_memory(n) if resource == "memory" else []
                name = f"capacity_{n}_{resource}"
                if extra:
                    in_gib = [(variable, amount / GIB) for variable, amount in terms]
                    self._rows.add(name, in_gib + extra, "<=", node.free[r] / GIB)
                else:
                    self._rows.add_amounts(name, terms, node.free[r])

    def _extra_memory(self, n: int) -> Terms:
        """Σ_j Σ_i e[j,n,i] in GiB."""
        jobs = {j: self._v.most_servers_on(j, n) for j, _, _ in self._v.servers_on[n] if j in self._v.extra_memory}
        return [(self._v.extra[j, n, i], 1) for j, most in jobs.items() for i in range(1, most + 1)]

    def server_memory(self) -> None:
        """Every server has the memory g_k of its column: g · s[j,n] = Σ_b least g[b] · s[j,b,n] + Σ_i e[j,n,i].

        s[j,n] ≤ Σ_i q[j,n,i] with q falling in i; D[j] ≥ Σ_k (g_k − least g[b_k]) · y[j,k];
        e[j,n,i] ≥ D[j] − range · (1 − q[j,n,i]), where range is the greatest g_k − least g[b_k].

        Of a line g = max(floor, base + per worker · w) ≥ least g ≥ floor, so that with D[j] ≥ 0 the sum gains
        Σ_l ((base − least g[b_l]) · y[j,l] + per worker · w[j,l]).
        """
        for j, d in self._v.extra_memory.items():
            view = self._v.jobs[j]

            def above(column: Column, least: dict[int, int] = view.least_memory) -> float:
                return -(column.ps_memory - least[column.ps_profile]) / GIB if column.servers else 0.0

            def base(line: Line, least: dict[int, int] = view.least_memory) -> tuple[float, float]:
                if not line.servers:
                    return (0.0, 0.0)
                return (-(line.memory_base - least[line.ps_profile]) / GIB, -line.memory_per_worker / GIB)

            self._rows.add(f"extra_memory_{j}", [(d, 1.0), *self._v.counted(j, above, base)], ">=", 0)
        for (j, n, i), q in self._v.holds.items():
            d, most = self._v.extra_memory[j], self._v.jobs[j].memory_range / GIB
            row = [(self._v.extra[j, n, i], 1.0), (d, -1.0), (q, -most)]
            self._rows.add(f"server_memory_{j}_{n}_{i}", row, ">=", -most)
            if i > 1:
                self._rows.add(f"holds_order_{j}_{n}_{i}", [(self._v.holds[j, n, i - 1], 1), (q, -1)], ">=", 0)
                continue
            servers = [(s, 1.0) for _, s in self._v.servers_of(j, n)]
            holds = [(self._v.holds[j, n, h], -1.0) for h in range(1, self._v.most_servers_on(j, n) + 1)]
            self._rows.add(f"holds_{j}_{n}", servers + holds, "<=", 0)

    def tasks_per_node(self) -> None:
        """Few tasks of a job on a node: Σ_a x[j,a,n] + Σ_b s[j,b,n] ≤ most tasks of a job on a node."""
        limit = self._rules.max_tasks_per_node
        for n, _ in self._nodes if limit is not None else ():
            tasks: dict[int, Terms] = defaultdict(list)
            for j, _, variable in self._v.workers_on[n] + self._v.servers_on[n]:
                tasks[j].append((variable, 1))
            for j, terms in tasks.items():
                self._rows.add(f"tasks_per_node_{j}_{n}", terms, "<=", limit or 0)

    def pressure(self) -> None:
        """A node's level holds its load: Σ_ℓ L[n,ℓ] = 1; load of node n ≤ Σ_ℓ cap[n,ℓ] · L[n,ℓ]."""
        for n, _ in self._nodes:
            if (n, 0) not in self._v.level:
                continue
            levels = [self._v.level[n, level] for level in range(self._v.levels)]
            self._rows.add(f"level_{n}", [(level, 1) for level in levels], "==", 1)
            load: list[tuple[Any, int]] = []
            for j, _, x in self._v.workers_on[n]:
                load.append((x, self._v.jobs[j].choices.job.worker.intensity))
            for j, _, s in self._v.servers_on[n]:
                ps = self._v.jobs[j].choices.job.ps
                load.append((s, ps.intensity if ps is not None else 0))
            for j in self._v.kept_on[n]:
                load += [(z, int(amount)) for z, amount in self._v.stays(j, self._v.jobs[j].kept_tasks[n][3])]
            load = [(variable, intensity) for variable, intensity in load if intensity]
            room = [(level, -cap) for level, cap in zip(levels, self._v.capacities[n], strict=True) if cap]
            if load:
                self._rows.add_amounts(f"pressure_{n}", load + room, 0)

    def levels(self) -> None:
        """Nodes in use run at levels that the job bears, for every level ℓ but the highest.

        u[j,n] ≤ Σ_{ℓ' ≤ ℓ} L[n,ℓ'] + Σ_{k: ℓ_k > ℓ} y[j,k] and the same with lines; for kept tasks
        Σ_{ℓ' ≤ ℓ} z[j,ℓ'] ≤ Σ_{ℓ' ≤ ℓ} L[n,ℓ'].
        """
        if not self._v.capacities:
            return
        for (j, level), tolerant in self._v.tolerant.items():

            def bears(way: Column | Line, level: int = level) -> int:
                return -1 if way.level > level else 0

            self._rows.add(f"tolerant_{j}_{level}", [(tolerant, 1), *self._v.chosen(j, bears)], "==", 0)
        for level in range(self._v.levels - 1):
            for (j, n), u in self._v.used.items():
                if self._v.level_binds(j):
                    row = [(u, 1), *self._calm(n, level)]
                    if (j, level) in self._v.tolerant:
                        row.append((self._v.tolerant[j, level], -1))
                    self._rows.add(f"levels_{j}_{n}_{level}", row, "<=", 0)
            for n, _ in self._nodes:
                for j in self._v.kept_on[n]:
                    row = self._v.stays(j, up_to=level) + self._calm(n, level)
                    self._rows.add(f"levels_kept_{j}_{n}_{level}", row, "<=", 0)

    def _calm(self, n: int, level: int) -> Terms:
        """−Σ_{ℓ' ≤ ℓ} L[n,ℓ']."""
        return [(self._v.level[n, lower], -1) for lower in range(level + 1)]

    def quota(self) -> None:
        """A tenant stays within its quota: Σ demand of column k in r · y[j,k] + kept demand · Σ_ℓ z[j,ℓ] ≤ quota[r].

        Lines add what their workers and servers demand; the memory of all servers of a line is M[j].
        """
        self._line_memory()
        for tenant, quota in self._rules.quotas.items():
            views = [(j, view) for j, view in self._jobs if view.choices.job.tenant == tenant]
            for r, (resource, limit) in enumerate(zip(RESOURCES, quota.vector, strict=True)):
                if limit is None:
                    continue
                terms: Terms = []
                for j, view in views:
                    kept = sum(amounts[r] for amounts in view.kept_tasks.values())
                    terms += self._v.counted(j, lambda c, view=view, r=r: view.column_demand(c)[r], lambda _: (0, 0))  # type: ignore[misc]
                    terms += self._v.stays(j, kept)
                name = f"quota_{list(self._rules.quotas).index(tenant)}_{resource}"
                if any(view.choices.lines for _, view in views):
                    for j, view in views:
                        terms += self._v.counted(j, lambda _: 0, lambda line, view=view, r=r: view.line_demand(line, r))  # type: ignore[misc]
                    unit = GIB if resource == "memory" else 1
                    in_units = [(variable, amount / unit) for variable, amount in terms]
                    if resource == "memory":
                        in_units += [(self._v.line_memory[j], 1.0) for j, _ in views if j in self._v.line_memory]
                    self._rows.add(name, in_units, "<=", limit / unit)
                    continue
                whole = [(variable, int(amount)) for variable, amount in terms]
                self._rows.add_amounts(name, whole, limit)

    def _line_memory(self) -> None:
        """M[j] ≥ Σ_l p_l · (base · y[j,l] + per worker · w[j,l]) and M[j] ≥ Σ_l p_l · floor · y[j,l]."""
        for j, memory in self._v.line_memory.items():

            def predicted(line: Line) -> tuple[float, float]:
                return (-line.servers * line.memory_base / GIB, -line.servers * line.memory_per_worker / GIB)

            def least(line: Line) -> tuple[float, float]:
                return (-line.servers * line.memory_floor / GIB, 0.0)

            for name, amount in (("predicted", predicted), ("floor", least)):
                row = [(memory, 1.0), *self._v.counted(j, lambda _: 0.0, amount)]
                self._rows.add(f"line_memory_{name}_{j}", row, ">=", 0)

    def pinned(self) -> None:
        """A pinned job that is not displaced stays: Σ_ℓ z[j,ℓ] = 1."""
        for j, view in self._jobs:
            if view.choices.must_keep:
                self._rows.add(f"pinned_{j}", self._v.stays(j), "==", 1)

    def move_budget(self) -> None:
        """Few running jobs change: Σ over running, not displaced jobs of (1 − Σ_ℓ z[j,ℓ]) ≤ budget."""
        if self._rules.move_budget is None:
            return
        running = [j for j, view in self._jobs if view.choices.counts_as_move]
        stay = [term for j in running for term in self._v.stays(j)]
        self._rows.add("move_budget", stay, ">=", len(running) - self._rules.move_budget)

    def slots(self) -> None:
        """Whole workers fit whole nodes: Σ_{k of type t} w_k · ⌊gpus / G⌋ · y ≤ Σ_n ⌊free GPUs / G⌋ for every size G.

        Workers of lines and kept ones count likewise. Redundant for whole numbers, it tightens the relaxation.
        """
        sizes = sorted({view.choices.job.worker.gpu for _, view in self._jobs} - {0})
        for t in range(len(self._v.instance.gpu_types)):
            free = [node.free[0] for n, node in self._nodes if self._v.gpu_type(n) == t]
            for size in sizes:
                terms: Terms = []
                for j, view in self._jobs:
                    slots = view.choices.job.worker.gpu // size
                    if slots:
                        terms += self._v.counted(
                            j,
                            lambda c, t=t, s=slots: c.workers * s if c.gpu_type == t else 0,  # type: ignore[misc]
                            lambda line, t=t, s=slots: (0, s if line.gpu_type == t else 0),  # type: ignore[misc]
                        )
                        terms += self._v.stays(j, slots * self._kept_workers(j, t))
                self._rows.add(f"slots_{t}_{size}", terms, "<=", sum(gpus // size for gpus in free))

    def _kept_workers(self, j: int, t: int) -> int:
        """Current workers of a job that may stay, if they are on GPU type t."""
        current = self._v.jobs[j].choices.job.current
        if current is None or not self._v.jobs[j].kept_tasks:
            return 0
        on = current.tasks.get("worker", {})
        return sum(count for name, count in on.items() if self._v.gpu_type(self._v.node_index[name]) == t)

    def _equal(self, name: str, left: Terms, right: Terms) -> None:
        self._rows.add(name, left + [(variable, -amount) for variable, amount in right], "==", 0)
