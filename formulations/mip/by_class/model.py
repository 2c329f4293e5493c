"""The class-level formulation as a whole: build, cut, solve, read back."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from coplace.formulations.class_solution import ClassChoice, ClassSolution, Counts
from coplace.formulations.classes import Amounts, Kind, Place, Places
from coplace.formulations.cuts import Cut
from coplace.formulations.mip.backends import Options, check_available, solve_relaxation, solve_with
from coplace.formulations.mip.by_class.constraints import Constraints
from coplace.formulations.mip.by_class.objective import add_objective, value
from coplace.formulations.mip.by_class.start import set_values
from coplace.formulations.mip.by_class.variables import Variables
from coplace.formulations.mip.model import ROUNDING
from coplace.formulations.mip.rows import Rows
from coplace.formulations.solution import SolverStatus
from coplace.instances.plan import Plan

RELAXATION_ROUNDING = 1e-6
"""Share by which the value of a linear program may be off."""


MOST_ROWS_SIMPLEX = 6_000
"""Rows up to which the relaxation is solved to a corner by the simplex method, above to an interior point."""

LEAST_PART = 0.02
"""Part of a column from which on an interior point counts as choosing it."""


@dataclass(frozen=True, slots=True)
class Relaxed:
    """A solution in parts.

    Attributes:
        bound: no plan over these columns has a larger objective.
        pieces: how many by what they ask for, by place.
        nodes: N[c,ℓ].
        chosen: columns, by job and position, that are chosen in part.
    """

    bound: float
    pieces: dict[Place, dict[Amounts, float]]
    nodes: dict[Place, float]
    chosen: frozenset[tuple[int, int]]


class ClassMip:
    """The class-level formulation as a PuLP problem.

    Attributes:
        places: classes and choices.
        problem: the ``pulp.LpProblem``; it maximises the objective times *scale*.
        variables: the variables by their indices.
        rows: its rows.
        scale: factor of the objective.
    """

    def __init__(self, places: Places) -> None:
        import pulp

        self.places = places
        self.problem = pulp.LpProblem("coplace", pulp.LpMaximize)
        self.variables = Variables(places, self.problem)
        self.rows = Rows(self.problem)
        self._constraints = Constraints(self.variables, self.rows)
        self._constraints.add_all()
        self.scale = add_objective(self.problem, self.variables)
        self._cuts = 0

    def add(self, cut: Cut) -> None:
        """Add what packing has shown."""
        self._constraints.cut(cut, self._cuts)
        self._cuts += 1

    def solve(
        self,
        *,
        backend: str = "highs",
        time_limit: float,
        gap: float = 1e-4,
        threads: int = 1,
        seed: int = 0,
        hint: Plan | None = None,
        log: bool = False,
    ) -> ClassSolution:
        """Solve with a backend, within *time_limit* seconds to the relative *gap*, and re-check what it says.

        The solver starts from *hint*, a plan, where that keeps all rows; jobs without a column for it are left out.

        Raises:
            InputError: the backend is unknown or not installed.
        """
        begin = time.monotonic()
        check_available(backend)
        v = self.variables
        if not (v.column or v.kept):  # solvers disagree on what an empty problem is
            return ClassSolution("optimal", self._counts(), 0.0, 0.0, time.monotonic() - begin)
        start = hint is not None and set_values(v, hint) and self.rows.kept_by_values(symmetry=False)
        answer = solve_with(backend, self.problem, Options(time_limit, gap, threads, seed, log, start))
        bound = None if answer.bound is None else answer.bound / self.scale
        status: SolverStatus = "infeasible" if answer.infeasible else "unknown"
        counts = objective = None
        if not answer.infeasible and self._rounded() and self.rows.kept_by_values(symmetry=False):
            counts = self._counts()
            objective = sum(amount * variable.varValue for variable, amount in value(v))
            status = "feasible"
            if bound is not None:
                within = bound - objective <= gap * abs(objective) + ROUNDING * max(abs(objective), abs(bound))
                status = "optimal" if within else "feasible"
                bound = max(bound, objective)
        return ClassSolution(status, counts, objective, bound, time.monotonic() - begin)

    def relaxed(self, *, time_limit: float, threads: int = 1) -> Relaxed | None:
        """The linear relaxation, by HiGHS; None where it takes too long."""
        interior = len(self.rows) > MOST_ROWS_SIMPLEX
        value = solve_relaxation(self.problem, time_limit, threads, interior)
        if value is None:
            return None
        pieces: dict[Place, dict[Amounts, float]] = {}
        for place, at in self.variables.at.items():
            counts: dict[Amounts, float] = defaultdict(float)
            for variable, amounts in at:
                counts[amounts] += max(0.0, variable.varValue)
            pieces[place] = counts
        nodes = {place: float(count.varValue) for place, count in self.variables.nodes.items()}
        chosen = frozenset(
            key for key, y in self.variables.column.items() if y.varValue > (LEAST_PART if interior else 1e-6)
        )
        return Relaxed((value + RELAXATION_ROUNDING * abs(value)) / self.scale, pieces, nodes, chosen)

    def _rounded(self) -> bool:
        """Round what the solver left in the variables; whether it left anything."""
        variables = self.problem.variables()
        if any(variable.varValue is None for variable in variables):
            return False
        for variable in variables:
            variable.varValue = round(variable.varValue)
        return True

    def _counts(self) -> Counts:
        """What the variables say."""
        v = self.variables
        kept = {j: level for (j, level), z in v.kept.items() if _is(z)}
        column = {j: k for (j, k), y in v.column.items() if _is(y)}
        whole = {j: (c, level) for (j, _, c, level), h in v.whole.items() if _is(h)}
        tasks: dict[int, dict[tuple[Kind, Place], int]] = defaultdict(dict)
        for (j, i, c, level), x in v.tasks.items():
            if _is(x):
                tasks[j][v.kinds[j][i], (c, level)] = int(x.varValue)
        used: dict[int, dict[Place, int]] = defaultdict(dict)
        for (j, c, level), u in v.used.items():
            if _is(u):
                used[j][c, level] = int(u.varValue)
        jobs = tuple(
            ClassChoice(kept.get(j), column.get(j), whole.get(j), tasks.get(j, {}), used.get(j, {}))
            for j in range(len(self.places.jobs))
        )
        nodes = {place: int(count.varValue or 0) for place, count in v.nodes.items()}
        return Counts(jobs, nodes, {n: level for (_, n, level), s in v.stays.items() if _is(s)})


def _is(variable: Any) -> bool:
    return bool(variable.varValue)
