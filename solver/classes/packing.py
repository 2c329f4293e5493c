"""From counts per class and level to concrete nodes: which pieces share a node.

The nodes of a class that run at one level are bins, some with tasks that stay. The pieces are those that the counts put
there: a column with span 1 is one piece, another column's tasks are pieces of one task each on few bins. Vector bin
packing, as an assignment problem for CP-SAT.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from ortools.sat.python import cp_model

from coplace.formulations.class_solution import Counts
from coplace.formulations.classes import Amounts, Kind, Place, Places
from coplace.formulations.columns import Column
from coplace.instances.plan import PS, WORKER, Allocation, Plan, Role

LARGEST_SUM = 2**28
"""The values of all jobs come to less, in whole units."""

FREE: Amounts = (0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Packed:
    """What a packing came to.

    Attributes:
        plan: the jobs that have nodes.
        left: jobs, by position, whose pieces found none.
        complete: whether it is proven that no packing holds all, where some are left.
    """

    plan: Plan
    left: tuple[int, ...]
    complete: bool


class Packing:
    """Pieces and bins of a solution of a class-level formulation."""

    def __init__(self, places: Places, counts: Counts) -> None:
        self.places = places
        self.counts = counts
        self.bins = self._bins()
        self._model = cp_model.CpModel()
        self._packed: dict[int, cp_model.IntVar] = {}
        self._on: dict[tuple[int, Kind, int], cp_model.IntVar] = {}  # tasks by job, kind, node
        self._whole_on: dict[tuple[int, int], cp_model.IntVar] = {}
        self._load: dict[int, list[tuple[cp_model.IntVar, Amounts]]] = defaultdict(list)

    def solve(self, *, time_limit: float, workers: int = 1, seed: int = 0) -> Packed:
        """Give nodes to the jobs that are worth most together, all of them where that is possible."""
        self._pieces()
        self._rooms()
        values = {j: self._value(j) for j in self._packed}
        scale = LARGEST_SUM / max(math.fsum(values.values()), 1e-9)
        packed = list(self._packed.items())
        # At least 1, so that jobs worth next to nothing are not left out for nothing.
        weights = [1 + math.floor(values[j] * scale) for j, _ in packed]
        self._model.maximize(cp_model.LinearExpr.weighted_sum([variable for _, variable in packed], weights))
        for _, variable in packed:
            self._model.add_hint(variable, True)
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = time_limit
        solver.parameters.num_workers = workers
        solver.parameters.random_seed = seed
        # This part of presolve cuts off optimal solutions and then proves the rest optimal (or-tools #5293).
        solver.parameters.presolve_inclusion_work_limit = 0
        code = solver.solve(self._model)
        if code not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Packed(self._plan(None), tuple(self._packed), False)
        left = tuple(j for j, variable in packed if not solver.value(variable))
        return Packed(self._plan(solver), left, code == cp_model.OPTIMAL)

    # --- bins -------------------------------------------------------------------------------------------------------

    def _bins(self) -> dict[Place, list[int]]:
        """The nodes that run at each level: those with tasks that stay as the counts say, the others as many as asked.

        Where the nodes of a class differ, those with most room run at the highest levels.
        """
        bins: dict[Place, list[int]] = {place: [] for place in self.counts.nodes}
        for n, level in self.counts.busy.items():
            bins[self.places.class_of[n], level].append(n)
        for c, group in enumerate(self.places.classes):
            nodes = self.places.instance.nodes
            idle = sorted((n for n in group.nodes if n not in self.counts.busy), key=lambda n: nodes[n].free)
            for level in range(self.places.levels):
                while idle and len(bins[c, level]) < self.counts.nodes[c, level]:
                    bins[c, level].append(idle.pop(0))
        return bins

    def _room(self, n: int, level: int) -> Amounts:
        """What node *n* offers at a level, with nothing on it."""
        node, group = self.places.instance.nodes[n], self.places.classes[self.places.class_of[n]]
        load = group.rooms[level][3]
        if group.mixed and self.places.pressed:
            load = self.places.capacities[n][level]
        return (*node.free, load)

    # --- the model --------------------------------------------------------------------------------------------------

    def _pieces(self) -> None:
        for j, choice in enumerate(self.counts.jobs):
            if choice.column is None:
                continue
            packed = self._packed[j] = self._model.new_bool_var(f"packed_{j}")
            if choice.whole is not None:
                self._whole(j, choice.column, choice.whole, packed)
            else:
                self._spread(j, choice.column, packed)

    def _whole(self, j: int, k: int, place: Place, packed: cp_model.IntVar) -> None:
        """All tasks on one bin of the place."""
        at = []
        for n in self.bins[place]:
            here = self._whole_on[j, n] = self._model.new_bool_var(f"whole_{j}_{n}")
            self._load[n].append((here, self.places.jobs[j].piece[k]))
            at.append(here)
        self._model.add(sum(at) == packed)

    def _spread(self, j: int, k: int, packed: cp_model.IntVar) -> None:
        """Tasks on the bins of their places, on no more of them than the column allows."""
        job, choice = self.places.jobs[j], self.counts.jobs[j]
        column = job.choices.columns[k]
        used: dict[int, cp_model.IntVar] = {}
        together: dict[int, list[cp_model.IntVar]] = defaultdict(list)
        for (kind, place), count in choice.tasks.items():
            # the true demand: kinds of servers may stand for slightly larger ones
            amounts = self._true(job.amounts[kind], kind, column)
            at = []
            for n in self.bins[place]:
                u = used.get(n)
                if u is None:
                    u = used[n] = self._model.new_bool_var(f"used_{j}_{n}")
                most = min(count, job.fits[kind][place])
                x = self._on[j, kind, n] = self._model.new_int_var(0, most, f"tasks_{j}_{kind.role}_{n}")
                self._model.add(x <= most * u)
                self._load[n].append((x, amounts))
                together[n].append(x)
                at.append(x)
            self._model.add(sum(at) == count * packed)
        if used:
            self._model.add(sum(used.values()) <= column.span)
        if self.places.most is not None:
            for tasks in together.values():
                self._model.add(sum(tasks) <= self.places.most)

    @staticmethod
    def _true(amounts: Amounts, kind: Kind, column: Column) -> Amounts:
        return amounts if kind.role == WORKER else (0, amounts[1], column.ps_memory, amounts[3])

    def _rooms(self) -> None:
        """What is on a bin fits beside the tasks that stay there."""
        stays: dict[int, list[Amounts]] = defaultdict(list)
        for j, choice in enumerate(self.counts.jobs):
            if choice.kept is not None:
                for n, amounts in self.places.jobs[j].kept.items():
                    stays[n].append(amounts)
        for (_, level), nodes in self.bins.items():
            for n in nodes:
                room = self._room(n, level)
                for r in range(4 if self.places.pressed else 3):
                    terms = [(variable, amounts[r]) for variable, amounts in self._load[n] if amounts[r]]
                    left = room[r] - sum(amounts[r] for amounts in stays[n])
                    shared = math.gcd(*(amount for _, amount in terms)) or 1
                    if terms:
                        weights = [amount // shared for _, amount in terms]
                        load = cp_model.LinearExpr.weighted_sum([variable for variable, _ in terms], weights)
                        self._model.add(load <= left // shared)

    def _value(self, j: int) -> float:
        k = self.counts.jobs[j].column
        assert k is not None
        return self.places.jobs[j].choices.columns[k].value

    # --- reading back -----------------------------------------------------------------------------------------------

    def _plan(self, solver: cp_model.CpSolver | None) -> Plan:
        names = [node.name for node in self.places.instance.nodes]
        tasks: dict[int, dict[Role, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
        if solver is not None:
            for (j, n), here in self._whole_on.items():
                if solver.value(here):
                    column = self._column(j)
                    tasks[j][WORKER][names[n]] = column.workers
                    if column.servers:
                        tasks[j][PS][names[n]] = column.servers
            for (j, kind, n), x in self._on.items():
                if solver.value(x):
                    placed = tasks[j][kind.role]
                    placed[names[n]] = placed.get(names[n], 0) + solver.value(x)
        allocations = {}
        for j, choice in enumerate(self.counts.jobs):
            job = self.places.jobs[j].choices.job
            if choice.kept is not None and job.current is not None:
                allocations[job.name] = job.current
            elif j in tasks:
                column = self._column(j)
                profiles: dict[Role, int] = {WORKER: column.worker_profile}
                if column.servers:
                    profiles[PS] = column.ps_profile
                allocations[job.name] = Allocation(tasks={**tasks[j]}, profiles=profiles)
        return Plan(allocations=allocations)

    def _column(self, j: int) -> Column:
        k = self.counts.jobs[j].column
        assert k is not None
        return self.places.jobs[j].choices.columns[k]
