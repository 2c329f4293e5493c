"""The CP-SAT formulation as a whole: build, hint, solve, read back, write."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from ortools.sat.python import cp_model

from coplace.formulations.columns import ColumnSet
from coplace.formulations.cpsat.constraints import Constraints
from coplace.formulations.cpsat.objective import Objective, scale_of
from coplace.formulations.cpsat.symmetry import break_symmetry, canonical
from coplace.formulations.cpsat.variables import Variables
from coplace.formulations.pressure import level_of
from coplace.formulations.solution import Solution, SolverStatus
from coplace.instances.demand import ps_memory
from coplace.instances.plan import PS, WORKER, Allocation, Plan, Role


class CpsatModel:
    """The exact formulation over *columns*.

    Attributes:
        proto: the CP-SAT model.
        variables: its variables by symbol.
    """

    def __init__(self, columns: ColumnSet, *, symmetry: bool = True) -> None:
        self.columns = columns
        self.symmetry = symmetry
        self.proto = cp_model.CpModel()
        scale = scale_of(columns)
        self.variables = Variables(self.proto, columns, scale)
        self.constraints = Constraints(self.proto, self.variables)
        self.constraints.add_all()
        self.objective = Objective(self.proto, self.variables, columns, scale)
        if symmetry:
            break_symmetry(self.proto, self.variables, self.objective)

    def solve(
        self,
        *,
        time_limit: float,
        gap: float = 1e-4,
        workers: int = 2,
        seed: int = 0,
        hint: Plan | None = None,
        deterministic_limit: float | None = None,
        found: Callable[[Plan], bool] | None = None,
        rounding: bool = True,
        log: bool = False,
    ) -> Solution:
        """Solve within *time_limit* seconds to the relative *gap*, starting from *hint* (a feasible plan).

        With *rounding*, two workers both round the LP, which finds plans of large models; without, they do what CP-SAT
        would have them do, which improves plans of small models faster. *found* is given every better plan, and ends
        the search by returning True. With one worker and a *deterministic_limit* (CP-SAT's units) the answer is the
        same on every run.
        """
        if hint is not None:
            self._hint(canonical(hint, self.columns.instance) if self.symmetry else hint)
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = time_limit
        solver.parameters.relative_gap_limit = gap
        solver.parameters.num_workers = workers
        # The relaxation is tight and plans come from rounding it, so every search leans on the LP. Without the third
        # line presolve may drop what the hint needs (or-tools #3750, #4693).
        solver.parameters.linearization_level = 2
        if workers == 2 and rounding:
            solver.parameters.subsolvers.extend(["max_lp", "default_lp"])
        solver.parameters.keep_all_feasible_solutions_in_presolve = True
        # This part of presolve cuts off optimal solutions and then proves the rest optimal (or-tools #5293).
        solver.parameters.presolve_inclusion_work_limit = 0
        solver.parameters.random_seed = seed
        solver.parameters.log_search_progress = log
        if deterministic_limit is not None:
            solver.parameters.max_deterministic_time = deterministic_limit
        started = time.monotonic()
        code = solver.solve(self.proto, None if found is None else _Watch(self, found))
        return self._solution(solver, code, time.monotonic() - started)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the model as a CP-SAT proto: text if *path* ends in ``.pbtxt``, else binary."""
        if not self.proto.export_to_file(os.fspath(Path(path))):
            raise OSError(f"{path}: the model cannot be written")

    # --- reading back ---------------------------------------------------------------------------------------------

    def _solution(self, solver: cp_model.CpSolver, code: cp_model.CpSolverStatus, seconds: float) -> Solution:
        statuses: dict[object, SolverStatus] = {
            cp_model.OPTIMAL: "optimal",
            cp_model.FEASIBLE: "feasible",
            cp_model.INFEASIBLE: "infeasible",
        }
        status = statuses.get(code, "unknown")
        scale = self.objective.scale
        if status not in ("optimal", "feasible"):
            # stopped before the search began, CP-SAT reports a bound of 0, which bounds nothing
            return Solution(status, None, None, None, seconds)
        bound = solver.best_objective_bound / scale + self.columns.error
        return Solution(status, self._plan(solver.value), solver.objective_value / scale, bound, seconds)

    def _plan(self, value: Callable[[cp_model.IntVar], int]) -> Plan:
        values = self.variables
        tasks: dict[int, dict[Role, dict[str, int]]] = {}
        profiles: dict[int, dict[Role, int]] = {}
        names = [node.name for node in self.columns.instance.nodes]
        for role, found in ((WORKER, values.workers), (PS, values.servers)):
            for (j, profile, n), variable in found.items():
                count = value(variable)
                if count:
                    tasks.setdefault(j, {}).setdefault(role, {})[names[n]] = count
                    profiles.setdefault(j, {})[role] = profile
        allocations = {}
        for j, choices in enumerate(self.columns.jobs):
            if any(value(z) for z in values.kept_any(j)):
                assert choices.job.current is not None
                allocations[choices.job.name] = choices.job.current
            elif j in tasks:
                allocations[choices.job.name] = Allocation(tasks=tasks[j], profiles=profiles[j])
        return Plan(allocations=allocations)

    # --- hints ----------------------------------------------------------------------------------------------------

    def _hint(self, plan: Plan) -> None:
        """Hint every variable; a job whose column is not among the choices is left without a hint."""
        self.proto.clear_hints()
        loads = self._loads(plan)
        levels = [level_of(load, self.variables.capacities[n]) for n, load in enumerate(loads)]
        for (n, ell), variable in self.variables.level.items():
            self.proto.add_hint(variable, levels[n] == ell)
        position = self.variables.position
        for j, choices in enumerate(self.columns.jobs):
            allocation = plan.get(choices.job.name)
            felt = max((levels[position[name]] for name in allocation.nodes), default=0) if allocation else 0
            kept = allocation is not None and allocation.same_as(choices.job.current) and bool(choices.kept)
            new = None if kept else allocation
            chosen = None if new is None else self._column_of(j, new, felt)
            line = None if new is None else self._line_of(j, new, felt)
            if new is not None and chosen is None and line is None:
                continue
            for ell in range(len(choices.kept)):
                self.proto.add_hint(self.variables.kept[j, ell], kept and ell == felt)
            for k, y in self.variables.columns_of(j):
                self.proto.add_hint(y, k == chosen)
            self._hint_lines(j, line, new)
            self._hint_tasks(j, new)
            self._hint_memory(j, new)

    def _hint_lines(self, j: int, chosen: int | None, allocation: Allocation | None) -> None:
        memory = 0
        for i, (line, y, encoded) in enumerate(self.variables.lines_of(j)):
            self.proto.add_hint(y, i == chosen)
            w = allocation.workers if allocation is not None and i == chosen else None
            if w is not None:
                memory = line.servers * line.ps_memory(w)
            for variable, amount in encoded.assignment(w):
                self.proto.add_hint(variable, amount)
        if j in self.variables.line_memory:
            self.proto.add_hint(self.variables.line_memory[j], memory)

    def _hint_tasks(self, j: int, allocation: Allocation | None) -> None:
        names = [node.name for node in self.columns.instance.nodes]
        for role, found in ((WORKER, self.constraints.workers_at), (PS, self.constraints.servers_at)):
            placed = allocation.tasks.get(role, {}) if allocation else {}
            for n, name in enumerate(names):
                for profile, variable in found.get((j, n), ()):
                    same = allocation is not None and allocation.profile(role) == profile
                    self.proto.add_hint(variable, placed.get(name, 0) if same else 0)
        for n, name in enumerate(names):
            u = self.variables.used.get((j, n))
            if u is not None:
                self.proto.add_hint(u, allocation is not None and name in allocation.nodes)

    def _hint_memory(self, j: int, allocation: Allocation | None) -> None:
        """D, q and e: what presolve cannot see, it would search for."""
        extra = self.variables.extra_memory.get(j)
        if extra is None:
            return
        more, job = 0, self.columns.jobs[j].job
        if allocation is not None and allocation.servers:
            profile = allocation.profile(PS)
            more = ps_memory(job, allocation.workers, allocation.servers, profile)
            more = max(0, more - min(self.variables.ps_memories(j, profile)))
        self.proto.add_hint(extra, more)
        placed = allocation.tasks.get(PS, {}) if allocation is not None else {}
        for n, node in enumerate(self.columns.instance.nodes):
            for i, (reached, memory) in enumerate(self.constraints.server_memories.get((j, n), ())):
                there = placed.get(node.name, 0) > i
                self.proto.add_hint(reached, there)
                self.proto.add_hint(memory, more if there else 0)

    def _column_of(self, j: int, allocation: Allocation, felt: int) -> int | None:
        """The best column that *allocation* is a placement of."""
        shape = self.columns.shape_of(allocation)
        fitting = [
            (column.value, k)
            for k, column in enumerate(self.columns.jobs[j].columns)
            if column[:5] == shape and column.span >= allocation.span and column.level >= felt
        ]
        return max(fitting)[1] if fitting else None

    def _line_of(self, j: int, allocation: Allocation, felt: int) -> int | None:
        """The best line that *allocation* is a placement of."""
        shape = self.columns.shape_of(allocation)
        fitting = [
            (line.curve(allocation.workers), i)
            for i, line in enumerate(self.columns.jobs[j].lines)
            if line.allows(shape) and line.span >= allocation.span and line.level >= felt
        ]
        return max(fitting)[1] if fitting else None

    def _loads(self, plan: Plan) -> list[int]:
        loads = [0] * len(self.columns.instance.nodes)
        for name, allocation in plan.allocations.items():
            job = self.columns.instance.job[name]
            for role, placed in allocation.tasks.items():
                spec = job.role(role)
                for node, count in placed.items():
                    loads[self.variables.position[node]] += count * (spec.intensity if spec else 0)
        return loads


class _Watch(cp_model.CpSolverSolutionCallback):
    """Hands every better plan on while the search runs."""

    def __init__(self, model: CpsatModel, found: Callable[[Plan], bool]) -> None:
        super().__init__()
        self._model = model
        self._found = found

    def on_solution_callback(self) -> None:
        if self._found(self._model._plan(self.value)):
            self.stop_search()
