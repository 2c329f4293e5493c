"""The counts without the placement: a linear relaxation whose prices bound every plan and say which columns matter.

Nodes are pooled by class (equal nodes), tasks by what they ask of a pool. For prices π ≥ 0 of the pools' rows

    bound = Σ_i π_i · rhs_i + Σ_c N_c · max_ℓ Σ_i π_i · supply_i(c, ℓ) + Σ_j max_k (V_jk − Σ_i π_i · demand_i(j, k))

is at least the objective of every plan (Lagrangian duality), whatever the prices are; so a solver only proposes prices,
and the bound is computed here. The amount by which a column falls short of its job's maximum is what any plan that uses
the column falls short of the bound. What a line demands and is worth is linear in the worker count between its corners,
so that the best of these is the best of all; the error of lines is part of the bound.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.columns import ColumnSet
from coplace.formulations.pressure import level_capacities
from coplace.instances.demand import task_demand
from coplace.instances.plan import ROLES, WORKER

Floats = NDArray[np.float64]

LP_GAP, MOST_ROUNDS, CHOICES_PER_ROUND = 1e-6, 60, 4
"""Column generation: relative gap at which to stop, most rounds, and choices that each job may add in a round."""


@dataclass(frozen=True, slots=True)
class Prices:
    """A bound and what it says of the columns.

    Attributes:
        bound: no plan has a larger objective.
        shortfall: by [job][column], what a plan that uses the column falls short of the bound at least.
        kept_shortfall: by [job][level], the same of keeping the job as it is.
        line_shortfall: by [job][line], the same of the best worker count of a line.
        surplus: by [job], what its best choice is worth above its price: the shortfall of running nothing.
    """

    bound: float
    shortfall: list[Floats]
    kept_shortfall: list[Floats]
    line_shortfall: list[Floats]
    surplus: Floats


class Relaxation:
    """Rows of demand ≤ supply over all choices: columns, corners of lines, and kept columns.

    Attributes:
        demand: by [row, choice].
        supply: by [row, class and level].
        fixed: what a row offers beside that, by [row].
    """

    def __init__(self, columns: ColumnSet) -> None:
        self.columns = columns
        self._choices()
        self._classes()
        rows: list[tuple[Floats, Floats, float]] = [*self._pools(), *self._rules()]
        self.demand = np.array([row[0] for row in rows]).reshape(len(rows), len(self.value))
        self.supply = np.array([row[1] for row in rows]).reshape(len(rows), self.class_size.size * self.levels)
        self.fixed = np.array([row[2] for row in rows])

    # --- what there is to choose from, and where it could go --------------------------------------------------------

    def _choices(self) -> None:
        """Columns, then corners of lines, then kept columns of every job: arrays by [choice]."""
        instance = self.columns.instance
        types = {gpu_type: t for t, gpu_type in enumerate(instance.gpu_types)}
        rows: list[tuple[float, ...]] = []
        for j, choices in enumerate(self.columns.jobs):
            job = choices.job
            servers = job.ps.profiles if job.ps else ()
            intensity = job.ps.intensity if job.ps else 0
            for c in choices.columns:
                profile = job.worker.profiles[c.worker_profile]
                cpu = servers[c.ps_profile].cpu if servers else 0
                rows.append((
                    j, c.value, 0, c.gpu_type, c.level, c.span, job.worker.gpu, c.workers, c.workers * profile.cpu,
                    c.workers * profile.memory, c.workers * job.worker.intensity, c.servers * cpu,
                    c.servers * c.ps_memory, c.servers * intensity, -1,
                ))  # fmt: skip
            for number, line in enumerate(choices.lines):
                profile = job.worker.profiles[line.worker_profile]
                cpu = servers[line.ps_profile].cpu if servers else 0
                rows += [
                    (
                        j, line.curve(w), 0, line.gpu_type, line.level, line.span, job.worker.gpu, w, w * profile.cpu,
                        w * profile.memory, w * job.worker.intensity, line.servers * cpu,
                        line.servers * line.ps_memory(w), line.servers * intensity, number,
                    )
                    for w in line.corners
                ]  # fmt: skip
            if choices.kept and job.current is not None:
                on = types[instance.node[next(iter(job.current.tasks[WORKER]))].gpu_type]
                worker, server = (
                    tuple(job.current.count(role) * a for a in task_demand(job, role, job.current))
                    if job.current.count(role)
                    else (0, 0, 0)
                    for role in ROLES
                )
                w, p = job.current.workers, job.current.servers
                for level, value in enumerate(choices.kept):
                    rows.append((
                        j, value, 1, on, level, job.current.span, job.worker.gpu, w, worker[1], worker[2],
                        w * job.worker.intensity, server[1], server[2], p * intensity, -1,
                    ))  # fmt: skip
        table = np.array(rows, dtype=float).reshape(-1, 15).T
        self.job, self.is_kept, self.type, self.level, self.span, self.gpu, self.workers, self.line = (
            table[i].astype(np.int64) for i in (0, 2, 3, 4, 5, 6, 7, 14)
        )
        self.value = table[1]
        self.worker_use = {"cpu": table[8], "memory": table[9], "intensity": table[10]}
        self.server_use = {"cpu": table[11], "memory": table[12], "intensity": table[13]}

    def _classes(self) -> None:
        """Classes of nodes with equal type, free amounts and level capacities: arrays by [class]."""
        instance = self.columns.instance
        found: dict[tuple[int, tuple[int, ...], tuple[int, ...]], int] = defaultdict(int)
        types = {gpu_type: t for t, gpu_type in enumerate(instance.gpu_types)}
        for node in instance.nodes:
            found[types[node.gpu_type], node.free, level_capacities(instance, node)] += 1
        self.class_type = np.array([key[0] for key in found], dtype=np.int64)
        self.class_free = np.array([key[1] for key in found], dtype=np.int64).reshape(-1, 3)
        self.class_capacity = np.array([key[2] for key in found], dtype=float).reshape(len(found), -1)
        self.class_size = np.array(list(found.values()), dtype=float)
        self.levels = self.class_capacity.shape[1] if len(found) else 1

    # --- rows -------------------------------------------------------------------------------------------------------

    def _pools(self) -> list[tuple[Floats, Floats, float]]:
        """Of the nodes at level ℓ or lower, tasks that tolerate no more than ℓ: GPUs by slots, CPU, memory, intensity.

        Once for all nodes together, and once for each GPU type and the tasks that must sit on it: workers, and the
        servers of columns with span 1.
        """
        rows = []
        with_pressure = bool(self.columns.instance.pressure_levels)
        sizes = sorted({int(size) for size in self.gpu if size > 0})
        for level in range(self.levels):
            calm = self.level <= level
            every = np.ones(self.class_size.size, dtype=bool)
            for t in [None, *range(len(self.columns.instance.gpu_types))]:
                on = calm if t is None else calm & (self.type == t)
                here = every if t is None else self.class_type == t
                if not on.any():
                    continue
                with_servers = np.ones(len(self.value)) if t is None else (self.span == 1).astype(float)
                for r, resource in ((1, "cpu"), (2, "memory")):
                    use = (self.worker_use[resource] + with_servers * self.server_use[resource]) * on
                    rows.append((use, self._supply(level, here * self.class_free[:, r].astype(float)), 0.0))
                if with_pressure:
                    use = (self.worker_use["intensity"] + with_servers * self.server_use["intensity"]) * on
                    rows.append((use, self._supply(level, here, by_capacity=True), 0.0))
                for size in sizes if t is not None else ():
                    use = self.workers * (self.gpu // size) * on
                    slots = here * (self.class_free[:, 0] // size)
                    rows.append((use.astype(float), self._supply(level, slots.astype(float)), 0.0))
        return rows

    def _supply(self, level: int, per_node: Floats | NDArray[np.bool_], by_capacity: bool = False) -> Floats:
        """What one node of each class offers when it runs at each level, if only levels ≤ *level* count; flat."""
        supply = np.zeros((self.class_size.size, self.levels))
        for lower in range(level + 1):
            supply[:, lower] = per_node * self.class_capacity[:, lower] if by_capacity else per_node
        return supply.ravel()

    def _rules(self) -> list[tuple[Floats, Floats, float]]:
        """Quotas of tenants and the budget of moves."""
        instance, none = self.columns.instance, np.zeros(self.class_size.size * self.levels)
        rows = []
        total = {
            0: (self.workers * self.gpu).astype(float),
            1: self.worker_use["cpu"] + self.server_use["cpu"],
            2: self.worker_use["memory"] + self.server_use["memory"],
        }
        for tenant, quota in instance.rules.quotas.items():
            theirs = np.array([choices.job.tenant == tenant for choices in self.columns.jobs], dtype=bool)
            for r, limit in enumerate(quota.vector):
                if limit is not None:
                    rows.append((total[r] * theirs[self.job], none, float(limit)))
        if instance.rules.move_budget is not None:
            counts = np.array([choices.counts_as_move for choices in self.columns.jobs], dtype=bool)
            kept = (self.is_kept == 1) & counts[self.job]
            # moves ≤ budget, with moves = counted jobs − kept ones
            rows.append((-kept.astype(float), none, float(instance.rules.move_budget - counts.sum())))
        return rows

    # --- prices -----------------------------------------------------------------------------------------------------

    def bound(self, prices: Floats) -> Prices:
        """The bound at *prices* ≥ 0, by [row], rounded outward by what float sums can be off.

        The error of lines is added: the bound is one of what plans are worth, not of what choices offer.
        """
        prices = np.maximum(prices, 0.0)
        reduced = self.value - prices @ self.demand
        jobs = len(self.columns.jobs)
        best = np.zeros(jobs)
        must = np.array([choices.must_keep for choices in self.columns.jobs], dtype=bool)
        best[must] = -np.inf
        np.maximum.at(best, self.job, reduced)
        nodes = (prices @ self.supply).reshape(self.class_size.size, self.levels).max(axis=1, initial=0.0)
        parts = np.concatenate([prices * self.fixed, self.class_size * nodes, best])
        bound = float(parts.sum() + 1e-12 * np.abs(parts).sum()) + self.columns.error
        shortfall = best[self.job] - reduced
        kept, on_line = self.is_kept == 1, self.line >= 0
        columns, stays = self._by_job(shortfall, ~kept & ~on_line), self._by_job(shortfall, kept)
        return Prices(bound, columns, stays, self._by_line(shortfall, on_line), best)

    def _by_line(self, shortfall: Floats, on_line: NDArray[np.bool_]) -> list[Floats]:
        """The least of each line's corners, by [job][line]."""
        corners, lines = self._by_job(shortfall, on_line), self._by_job(self.line, on_line)
        least = [np.full(len(choices.lines), np.inf) for choices in self.columns.jobs]
        for of_job, values, line in zip(least, corners, lines, strict=True):
            np.minimum.at(of_job, line, values)
        return least

    def _by_job(self, values: NDArray[Any], mask: NDArray[np.bool_]) -> list[NDArray[Any]]:
        """The selected values, by [job][choice]; the choices of a job follow each other."""
        jobs = len(self.columns.jobs)
        cut = np.searchsorted(self.job[mask], np.arange(jobs + 1))
        selected = values[mask]
        return [selected[cut[j] : cut[j + 1]] for j in range(jobs)]

    def best_prices(self) -> Floats:
        """Prices by [row] from the linear program, by column generation: solve over some choices, add what prices well.

        Any prices give a bound, so it may stop early: when the bound is within :data:`LP_GAP` of the program's value.
        """
        import highspy

        active = self._first_choices()
        prices, best = np.zeros(len(self.fixed)), np.inf
        for _ in range(MOST_ROUNDS):
            candidate, value = self._linear_program(np.flatnonzero(active))
            if candidate is None:
                break
            found = self.bound(candidate).bound - self.columns.error
            if found < best:
                prices, best = candidate, found
            if best - value <= LP_GAP * abs(best):
                break
            active |= self._promising(candidate, active)
        highspy.Highs.resetGlobalScheduler(True)  # it would refuse to run with another number of threads later
        return prices

    def _first_choices(self) -> NDArray[np.bool_]:
        """Kept choices, and the most valuable column or line of each job by type and worker count."""
        order = np.lexsort((-self.value, self.workers, self.type, self.job))
        key = np.stack([self.job[order], self.type[order], self.workers[order]])
        first = np.ones(len(order), dtype=bool)
        first[1:] = (key[:, 1:] != key[:, :-1]).any(axis=0)
        active = self.is_kept == 1
        active[order[first]] = True
        return np.asarray(active)

    def _promising(self, prices: Floats, active: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Of each job the few inactive choices that are worth most above their price, if more than any active one."""
        reduced = self.value - prices @ self.demand
        best = np.zeros(len(self.columns.jobs))
        np.maximum.at(best, self.job[active], reduced[active])
        better = np.flatnonzero(~active & (reduced > best[self.job] + 1e-12 * np.abs(self.value)))
        order = better[np.lexsort((-reduced[better], self.job[better]))]
        start = np.searchsorted(self.job[order], self.job[order])
        chosen = order[np.arange(len(order)) - start < CHOICES_PER_ROUND]
        mask = np.zeros(len(active), dtype=bool)
        mask[chosen] = True
        return mask

    def _linear_program(self, choices: NDArray[np.int64]) -> tuple[Floats | None, float]:
        """Prices by [row] and the value of the program over *choices*; None if HiGHS finds none."""
        import highspy

        jobs, rows, classes = len(self.columns.jobs), len(self.fixed), self.class_size.size
        nodes = classes * self.levels
        infinity = highspy.kHighsInf
        block = np.hstack([self.demand[:, choices], -self.supply])
        scale = np.maximum(np.abs(block).max(axis=1, initial=0.0), 1e-9)
        at_row, at_column = np.nonzero(block)
        row = np.concatenate(
            [at_row, rows + self.job[choices], rows + jobs + np.repeat(np.arange(classes), self.levels)]
        )
        column = np.concatenate([at_column, np.arange(len(choices)), len(choices) + np.arange(nodes)])
        value = np.concatenate([block[at_row, at_column] / scale[at_row], np.ones(len(choices) + nodes)])
        order = np.lexsort((column, row))
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(choices) + nodes, rows + jobs + classes
        lp.col_cost_ = np.concatenate([-self.value[choices], np.zeros(nodes)])
        lp.col_lower_, lp.col_upper_ = np.zeros(lp.num_col_), np.full(lp.num_col_, infinity)
        must = [1.0 if entry.must_keep else -infinity for entry in self.columns.jobs]
        lp.row_lower_ = np.concatenate([np.full(rows, -infinity), must, self.class_size])
        lp.row_upper_ = np.concatenate([self.fixed / scale, np.ones(jobs), self.class_size])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.searchsorted(row[order], np.arange(lp.num_row_ + 1)).astype(np.int32)
        lp.a_matrix_.index_ = column[order].astype(np.int32)
        lp.a_matrix_.value_ = value[order]
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.passModel(lp)
        solver.run()
        duals = np.array(solver.getSolution().row_dual[:rows])
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal or len(duals) < rows:
            return None, 0.0
        return np.maximum(-duals / scale, 0.0), -float(solver.getInfo().objective_function_value)
