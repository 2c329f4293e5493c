"""Constraint families of the CP-SAT formulation, one method each; equations in docs/formulation.md."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from ortools.sat.python import cp_model

from coplace.formulations.cpsat.variables import Variables
from coplace.instances.cluster import Vector
from coplace.instances.demand import demand, task_demand
from coplace.instances.plan import PS, ROLES, WORKER

Term = tuple[cp_model.IntVar, int]


class Constraints:
    """Adds the families to a model."""

    def __init__(self, model: cp_model.CpModel, variables: Variables) -> None:
        self.model = model
        self.v = variables
        self.instance = variables.instance
        self.jobs = variables.columns.jobs
        self.workers_at: dict[tuple[int, int], list[tuple[int, cp_model.IntVar]]] = defaultdict(list)
        self.servers_at: dict[tuple[int, int], list[tuple[int, cp_model.IntVar]]] = defaultdict(list)
        for (j, profile, n), x in variables.workers.items():
            self.workers_at[j, n].append((profile, x))
        for (j, profile, n), s in variables.servers.items():
            self.servers_at[j, n].append((profile, s))
        self.jobs_at: dict[int, list[int]] = defaultdict(list)
        for j, n in dict.fromkeys((*self.workers_at, *self.servers_at)):
            self.jobs_at[n].append(j)
        self.most_extra: dict[int, int] = {}
        self.server_memories: dict[tuple[int, int], list[tuple[cp_model.IntVar, cp_model.IntVar]]] = {}
        self.kept_at: dict[int, list[int]] = defaultdict(list)
        for j, choices in enumerate(self.jobs):
            if choices.kept and choices.job.current is not None:
                for name in choices.job.current.nodes:
                    self.kept_at[variables.position[name]].append(j)

    def add_all(self) -> None:
        """Every family; ``hosts`` and ``cordon`` are bounds of the variables."""
        self.choose()
        self.pinned()
        self.workers()
        self.servers()
        self.use()
        self.span()
        self.capacity()
        self.tasks_per_node()
        self.pressure()
        self.levels()
        self.quota()
        self.move_budget()
        self.slots()

    # --- one job --------------------------------------------------------------------------------------------------

    def choose(self) -> None:
        """At most one way to run a job: Σ_k y[j,k] + Σ_l y[j,l] + Σ_ℓ z ≤ 1."""
        for j in range(len(self.jobs)):
            ways = [*self.v.kept_any(j), *(y for _, y in self.v.columns_of(j))]
            ways += [chosen for _, chosen, _ in self.v.lines_of(j)]
            if len(ways) > 1:
                self.model.add_at_most_one(ways)

    def pinned(self) -> None:
        """A pinned job that is not displaced is kept: Σ_ℓ z = 1."""
        for j, choices in enumerate(self.jobs):
            if choices.must_keep:
                self.model.add_exactly_one(self.v.kept_any(j))

    def workers(self) -> None:
        """Σ_{n of type t} x[j,a,n] = Σ_{k: t_k = t, a_k = a} w_k · y[j,k] + Σ_{l: t_l = t, a_l = a} w[j,l]."""
        types = self.instance.gpu_types
        tasks: dict[tuple[int, str, int], list[Term]] = defaultdict(list)
        for (j, profile, n), x in self.v.workers.items():
            tasks[j, self.instance.nodes[n].gpu_type, profile].append((x, 1))
        for j, choices in enumerate(self.jobs):
            for k, y in self.v.columns_of(j):
                column = choices.columns[k]
                tasks[j, types[column.gpu_type], column.worker_profile].append((y, -column.workers))
            for line, _, encoded in self.v.lines_of(j):
                tasks[j, types[line.gpu_type], line.worker_profile] += _times(encoded.workers, -1)
        for terms in tasks.values():
            self._add(terms, 0, 0)

    def servers(self) -> None:
        """Σ_n s[j,b,n] = Σ_{k: b_k = b} p_k · y[j,k] + Σ_{l: b_l = b} p_l · y[j,l]."""
        tasks: dict[tuple[int, int], list[Term]] = defaultdict(list)
        for (j, profile, _), s in self.v.servers.items():
            tasks[j, profile].append((s, 1))
        for j, choices in enumerate(self.jobs):
            for k, y in self.v.columns_of(j):
                if choices.columns[k].servers:
                    tasks[j, choices.columns[k].ps_profile].append((y, -choices.columns[k].servers))
            for line, chosen, _ in self.v.lines_of(j):
                if line.servers:
                    tasks[j, line.ps_profile].append((chosen, -line.servers))
        for terms in tasks.values():
            self._add(terms, 0, 0)

    def use(self) -> None:
        """Tasks only on used nodes: x ≤ most · u and s ≤ most · u."""
        for tasks, most in ((self.v.workers, self.v.most_workers), (self.v.servers, self.v.most_servers)):
            for key, x in tasks.items():
                u = self.v.used.get((key[0], key[2]))
                if u is not None:
                    self.model.add(x <= most[key] * u)

    def span(self) -> None:
        """Σ_n u[j,n] ≤ Σ_k m_k · y[j,k] + Σ_l m_l · y[j,l]."""
        used: dict[int, list[Term]] = defaultdict(list)
        for (j, _), u in self.v.used.items():
            used[j].append((u, 1))
        for j, terms in used.items():
            spans = [(y, -self.jobs[j].columns[k].span) for k, y in self.v.columns_of(j)]
            spans += [(chosen, -line.span) for line, chosen, _ in self.v.lines_of(j)]
            self._add([*terms, *spans], None, 0)

    def tasks_per_node(self) -> None:
        """Σ_a x[j,a,n] + Σ_b s[j,b,n] ≤ most tasks of a job on a node."""
        most = self.instance.rules.max_tasks_per_node
        if most is None:
            return
        for j, n in dict.fromkeys((*self.workers_at, *self.servers_at)):
            self._add([(x, 1) for _, x in (*self.workers_at[j, n], *self.servers_at[j, n])], None, most)

    # --- one node -------------------------------------------------------------------------------------------------

    def capacity(self) -> None:
        """Σ demand · tasks (kept ones too) ≤ free, for every node and resource; memory through ``server_memory``."""
        for n, node in enumerate(self.instance.nodes):
            memory_binds = self._memory_binds(n)
            for r in range(3):
                if r == 2 and not memory_binds:
                    continue
                terms: list[Term] = []
                for j in self.jobs_at[n]:
                    for profile, x in self.workers_at[j, n]:
                        terms.append((x, self.v.least_demand(j, WORKER, profile)[r]))
                    for profile, s in self.servers_at[j, n]:
                        terms.append((s, self.v.least_demand(j, PS, profile)[r]))
                    if r == 2:
                        terms += self.server_memory(j, n)
                for j in self.kept_at[n]:
                    amount = self._kept_demand(j, n)[r]
                    terms += [(z, amount) for z in self.v.kept_any(j)]
                self._add(terms, None, node.free[r])

    def server_memory(self, j: int, n: int) -> list[Term]:
        """MiB of the servers of job *j* on node *n* above the least of their profile: Σ_i e[j,n,i].

        e[j,n,i] ≥ D[j] where s ≥ i, with D[j] ≥ Σ_k (g_k − least g) · y[j,k]. Of a line
        g = max(floor, base + per worker · w) ≥ least g ≥ floor, so that with D[j] ≥ 0 the sum gains
        Σ_l ((base − least g) · y[j,l] + per worker · w[j,l]).
        """
        most = sum(self.v.most_servers[j, b, n] for b, _ in self.servers_at[j, n])
        greatest = max(
            (max(memories) - min(memories) for b, _ in self.servers_at[j, n] if (memories := self.v.ps_memories(j, b))),
            default=0,
        )
        if not most or not greatest:
            return []
        if j not in self.v.extra_memory:
            above = [
                (y, self.jobs[j].columns[k].ps_memory - min(self.v.ps_memories(j, self.jobs[j].columns[k].ps_profile)))
                for k, y in self.v.columns_of(j)
                if self.jobs[j].columns[k].servers
            ]
            most_extra = [amount for _, amount in above]
            for line, chosen, encoded in self.v.lines_of(j):
                if line.servers:
                    least = min(self.v.ps_memories(j, line.ps_profile))
                    most_extra.append(line.ps_memory(line.most_workers) - least)
                    above.append((chosen, line.memory_base - least))
                    above += _times(encoded.workers, line.memory_per_worker)
            self.most_extra[j] = max(most_extra)
            self.v.extra_memory[j] = self.model.new_int_var(0, self.most_extra[j], f"extra_memory_{j}")
            self._add([*above, (self.v.extra_memory[j], -1)], None, 0)
        extra, largest = self.v.extra_memory[j], self.most_extra[j]
        terms: list[Term] = []
        reached = []
        for i in range(1, most + 1):
            q = self.model.new_bool_var(f"servers_reach_{j}_{n}_{i}")
            e = self.model.new_int_var(0, largest, f"server_memory_{j}_{n}_{i}")
            self.model.add(e >= extra).only_enforce_if(q)
            reached.append(q)
            terms.append((e, 1))
        self.server_memories[j, n] = [(q, e) for q, (e, _) in zip(reached, terms, strict=True)]
        # s = Σ_i q_i with falling q: the i-th server is there only if the one before it is
        self._add([*((s, 1) for _, s in self.servers_at[j, n]), *((q, -1) for q in reached)], 0, 0)
        for before, after in pairwise(reached):
            self.model.add_implication(after, before)
        return terms

    def pressure(self) -> None:
        """Σ_ℓ L[n,ℓ] = 1 and load[n] ≤ Σ_ℓ cap[n,ℓ] · L[n,ℓ]."""
        if not self.instance.pressure_levels:
            return
        for n in range(len(self.instance.nodes)):
            load: list[Term] = []
            for j in self.jobs_at[n]:
                job = self.jobs[j].job
                load += [(x, job.worker.intensity) for _, x in self.workers_at[j, n]]
                load += [(s, job.ps.intensity if job.ps else 0) for _, s in self.servers_at[j, n]]
            for j in self.kept_at[n]:
                load += [(z, self._kept_load(j, n)) for z in self.v.kept_any(j)]
            capacities = self.v.capacities[n]
            if self.v.levels == 1:
                self._add(load, None, capacities[0])
                continue
            at = [self.v.level[n, ell] for ell in range(self.v.levels)]
            self.model.add_exactly_one(at)
            self._add([*load, *((level, -c) for level, c in zip(at, capacities, strict=True))], None, 0)

    def levels(self) -> None:
        """A job uses only nodes at levels it tolerates: u ≤ Σ_{ℓ' ≤ ℓ} L + Σ_{k: ℓ_k > ℓ} y; lines, kept alike."""
        if self.v.levels == 1:
            return
        for ell in range(self.v.levels - 1):
            tolerant = {
                j: [y for k, y in self.v.columns_of(j) if choices.columns[k].level > ell]
                + [chosen for line, chosen, _ in self.v.lines_of(j) if line.level > ell]
                for j, choices in enumerate(self.jobs)
            }
            for (j, n), u in self.v.used.items():
                calm = [self.v.level[n, lower] for lower in range(ell + 1)]
                self._add([(u, 1), *((x, -1) for x in (*calm, *tolerant[j]))], None, 0)
            for n, kept in self.kept_at.items():
                calm = [self.v.level[n, lower] for lower in range(ell + 1)]
                for j in kept:
                    felt = [self.v.kept[j, lower] for lower in range(ell + 1)]
                    self._add([*((z, 1) for z in felt), *((x, -1) for x in calm)], None, 0)

    # --- the cluster ----------------------------------------------------------------------------------------------

    def quota(self) -> None:
        """Demand of all tasks of a tenant ≤ its quota, per resource; of a line it is linear in y, w[j,l] and M[j]."""
        self._line_memory()
        for tenant, quota in self.instance.rules.quotas.items():
            for r, limit in enumerate(quota.vector):
                if limit is None:
                    continue
                terms: list[Term] = []
                for j, choices in enumerate(self.jobs):
                    if choices.job.tenant != tenant:
                        continue
                    terms += [(y, self._column_demand(j, k)[r]) for k, y in self.v.columns_of(j)]
                    for line, chosen, encoded in self.v.lines_of(j):
                        terms += _times(encoded.workers, self.v.least_demand(j, WORKER, line.worker_profile)[r])
                        if r == 1 and choices.job.ps is not None:
                            terms.append((chosen, line.servers * choices.job.ps.profiles[line.ps_profile].cpu))
                    if r == 2 and j in self.v.line_memory:
                        terms.append((self.v.line_memory[j], 1))
                    if choices.kept:
                        amount = self._kept_total(j)[r]
                        terms += [(z, amount) for z in self.v.kept_any(j)]
                self._add(terms, None, limit)

    def _line_memory(self) -> None:
        """M[j] ≥ Σ_l p_l · (base · y[j,l] + per worker · w[j,l]) and M[j] ≥ Σ_l p_l · floor · y[j,l]."""
        for j, choices in enumerate(self.jobs):
            quota = self.instance.rules.quotas.get(choices.job.tenant)
            most = max((line.servers * line.ps_memory(line.most_workers) for line in choices.lines), default=0)
            if quota is None or quota.memory is None or not most:
                continue
            memory = self.v.line_memory[j] = self.model.new_int_var(0, most, f"line_memory_{j}")
            predicted: list[Term] = [(memory, -1)]
            least: list[Term] = [(memory, -1)]
            for line, chosen, encoded in self.v.lines_of(j):
                predicted.append((chosen, line.servers * line.memory_base))
                predicted += _times(encoded.workers, line.servers * line.memory_per_worker)
                least.append((chosen, line.servers * line.memory_floor))
            self._add(predicted, None, 0)
            self._add(least, None, 0)

    def move_budget(self) -> None:
        """Σ over running, not displaced jobs of (1 − Σ_ℓ z) ≤ budget."""
        budget = self.instance.rules.move_budget
        if budget is None:
            return
        counted = [j for j, choices in enumerate(self.jobs) if choices.counts_as_move]
        terms = [(z, 1) for j in counted for z in self.v.kept_any(j)]
        self._add(terms, len(counted) - budget, None)

    def slots(self) -> None:
        """Redundant: Σ w_k · ⌊gpus / G⌋ · y ≤ Σ_n ⌊free GPUs / G⌋ by GPU type, for each size G of a worker."""
        sizes = {choices.job.worker.gpu for choices in self.jobs if choices.job.worker.gpu > 1}
        for t, gpu_type in enumerate(self.instance.gpu_types):
            free = [node.free[0] for node in self.instance.nodes if node.gpu_type == gpu_type]
            for size in sorted(sizes):
                terms: list[Term] = []
                for j, choices in enumerate(self.jobs):
                    each = choices.job.worker.gpu // size
                    if not each:
                        continue
                    for k, y in self.v.columns_of(j):
                        if choices.columns[k].gpu_type == t:
                            terms.append((y, choices.columns[k].workers * each))
                    for line, _, encoded in self.v.lines_of(j):
                        if line.gpu_type == t:
                            terms += _times(encoded.workers, each)
                    current = choices.job.current
                    if choices.kept and current is not None:
                        on = self.instance.node[next(iter(current.tasks[WORKER]))].gpu_type
                        if on == gpu_type:
                            terms += [(z, current.workers * each) for z in self.v.kept_any(j)]
                self._add(terms, None, sum(gpus // size for gpus in free))

    # --- amounts --------------------------------------------------------------------------------------------------

    def _memory_binds(self, n: int) -> bool:
        """False where every task that could come asks for no more memory per core than the node offers.

        Then Σ cpu ≤ free cpu gives Σ memory ≤ (free memory / free cpu) · Σ cpu ≤ free memory: the row is implied.
        """
        _, cpu, memory = self.instance.nodes[n].free
        tasks: list[Vector] = []
        for j in self.jobs_at[n]:
            tasks += [self.v.least_demand(j, WORKER, profile) for profile, _ in self.workers_at[j, n]]
            for profile, _ in self.servers_at[j, n]:
                _, server_cpu, _ = self.v.least_demand(j, PS, profile)
                tasks.append((0, server_cpu, max(self.v.ps_memories(j, profile))))
        tasks += [self._kept_demand(j, n) for j in self.kept_at[n]]
        return any(task[2] * cpu > memory * task[1] for task in tasks)

    def _column_demand(self, j: int, k: int) -> Vector:
        """Demand of all tasks of a column."""
        column, job = self.jobs[j].columns[k], self.jobs[j].job
        worker = demand(job, WORKER, column.workers, column.servers, column.worker_profile)
        cpu = job.ps.profiles[column.ps_profile].cpu if job.ps else 0
        return (
            column.workers * worker[0],
            column.workers * worker[1] + column.servers * cpu,
            column.workers * worker[2] + column.servers * column.ps_memory,
        )

    def _kept_demand(self, j: int, n: int) -> Vector:
        """Demand of what job *j* runs on node *n* now."""
        return self._running_demand(j, self.instance.nodes[n].name)

    def _kept_total(self, j: int) -> Vector:
        """Demand of all that job *j* runs now."""
        return self._running_demand(j, None)

    def _running_demand(self, j: int, node: str | None) -> Vector:
        job = self.jobs[j].job
        assert job.current is not None
        total = [0, 0, 0]
        for role in ROLES:
            placed = job.current.tasks.get(role)
            if not placed:
                continue
            count = sum(placed.values()) if node is None else placed.get(node, 0)
            for r, amount in enumerate(task_demand(job, role, job.current)):
                total[r] += count * amount
        return (total[0], total[1], total[2])

    def _kept_load(self, j: int, n: int) -> int:
        job, name = self.jobs[j].job, self.instance.nodes[n].name
        assert job.current is not None
        load = 0
        for role in ROLES:
            spec = job.role(role)
            load += (spec.intensity if spec else 0) * job.current.tasks.get(role, {}).get(name, 0)
        return load

    def _add(self, terms: Iterable[Term], low: int | None, high: int | None) -> None:
        """low ≤ Σ coefficient · variable ≤ high, divided by the common divisor of all numbers.

        Small coefficients keep sums below 2³¹, where presolve of some CP-SAT versions has overflowed (or-tools #5293).
        """
        used = [(variable, coefficient) for variable, coefficient in terms if coefficient]
        divisor = math.gcd(*(abs(coefficient) for _, coefficient in used)) or 1
        variables = [variable for variable, _ in used]
        coefficients = [coefficient // divisor for _, coefficient in used]
        expression = cp_model.LinearExpr.weighted_sum(variables, coefficients)
        if low is not None and high is not None and low == high:
            self.model.add(expression == low // divisor)
            return
        if low is not None:
            self.model.add(expression >= -(-low // divisor))
        if high is not None:
            self.model.add(expression <= high // divisor)


def _times(terms: Iterable[Term], factor: int) -> list[Term]:
    return [(variable, amount * factor) for variable, amount in terms]
