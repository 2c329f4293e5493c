"""The class-level formulation as a whole: build, cut, solve, read back."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

from ortools.sat.python import cp_model

from coplace.formulations.class_solution import ClassChoice, ClassSolution, Counts
from coplace.formulations.classes import Kind, Place, Places
from coplace.formulations.cpsat.by_class.constraints import Constraints
from coplace.formulations.cpsat.by_class.objective import Objective
from coplace.formulations.cpsat.by_class.start import hint_values
from coplace.formulations.cpsat.by_class.variables import Variables
from coplace.formulations.cuts import Cut
from coplace.formulations.solution import SolverStatus
from coplace.instances.plan import Plan


class ClassCpsat:
    """The class-level formulation as a CP-SAT model.

    Attributes:
        places: classes and choices.
        proto: the CP-SAT model.
        variables: its variables by symbol.
    """

    def __init__(self, places: Places) -> None:
        self.places = places
        self.proto = cp_model.CpModel()
        self.variables = Variables(self.proto, places)
        self._constraints = Constraints(self.proto, self.variables)
        self._constraints.add_all()
        self.objective = Objective(self.proto, self.variables)

    def add(self, cut: Cut) -> None:
        """Add what packing has shown."""
        self._constraints.cut(cut)

    def solve(
        self,
        *,
        time_limit: float,
        gap: float = 1e-4,
        workers: int = 2,
        seed: int = 0,
        hint: Plan | None = None,
        deterministic_limit: float | None = None,
        log: bool = False,
    ) -> ClassSolution:
        """Solve within *time_limit* seconds to the relative *gap*, starting from *hint*, a plan.

        With one worker and a *deterministic_limit* (CP-SAT's units) the answer is the same on every run.
        """
        if hint is not None:
            hint_values(self.proto, self.variables, hint)
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = time_limit
        solver.parameters.relative_gap_limit = gap
        solver.parameters.num_workers = workers
        solver.parameters.linearization_level = 2
        if workers == 2:
            solver.parameters.subsolvers.extend(["max_lp", "default_lp"])
        solver.parameters.keep_all_feasible_solutions_in_presolve = True  # else presolve may drop what the hint needs
        # This part of presolve cuts off optimal solutions and then proves the rest optimal (or-tools #5293).
        solver.parameters.presolve_inclusion_work_limit = 0
        solver.parameters.random_seed = seed
        solver.parameters.log_search_progress = log
        if deterministic_limit is not None:
            solver.parameters.max_deterministic_time = deterministic_limit
        started = time.monotonic()
        code = solver.solve(self.proto)
        seconds = time.monotonic() - started
        statuses: dict[object, SolverStatus] = {
            cp_model.OPTIMAL: "optimal",
            cp_model.FEASIBLE: "feasible",
            cp_model.INFEASIBLE: "infeasible",
        }
        status = statuses.get(code, "unknown")
        if status not in ("optimal", "feasible"):
            # stopped before the search began, CP-SAT reports a bound of 0, which bounds nothing
            return ClassSolution(status, None, None, None, seconds)
        scale = self.objective.scale
        objective, bound = solver.objective_value / scale, solver.best_objective_bound / scale
        return ClassSolution(status, self._counts(solver.value), objective, bound, seconds)

    def _counts(self, value: Callable[[cp_model.IntVar], int]) -> Counts:
        """What the variables say."""
        v = self.variables
        kept = {j: ell for (j, ell), z in v.kept.items() if value(z)}
        column = {j: k for (j, k), y in v.column.items() if value(y)}
        whole = {j: (c, ell) for (j, _, c, ell), h in v.whole.items() if value(h)}
        tasks: dict[int, dict[tuple[Kind, Place], int]] = defaultdict(dict)
        used: dict[int, dict[Place, int]] = defaultdict(dict)
        for (j, i, c, ell), x in v.tasks.items():
            if value(x):
                tasks[j][v.kinds[j][i], (c, ell)] = value(x)
        for (j, c, ell), u in v.used.items():
            if value(u):
                used[j][c, ell] = value(u)
        jobs = tuple(
            ClassChoice(kept.get(j), column.get(j), whole.get(j), tasks.get(j, {}), used.get(j, {}))
            for j in range(len(self.places.jobs))
        )
        busy = {n: ell for (_, n, ell), s in v.stays.items() if value(s)}
        return Counts(jobs, {place: value(count) for place, count in v.nodes.items()}, busy)
