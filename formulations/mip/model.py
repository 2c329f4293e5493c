"""The formulation as a whole: built once for a set of columns, then solved or written."""

from __future__ import annotations

import time
from pathlib import Path

from coplace.formulations.columns import ColumnSet
from coplace.formulations.mip.backends import Answer, Options, check_available, solve_with
from coplace.formulations.mip.constraints import Constraints
from coplace.formulations.mip.objective import add_objective
from coplace.formulations.mip.plans import Values
from coplace.formulations.mip.rows import Rows
from coplace.formulations.mip.symmetry import Symmetry
from coplace.formulations.mip.variables import Variables
from coplace.formulations.solution import Solution, SolverStatus
from coplace.instances.errors import InputError, Problem
from coplace.instances.plan import Plan

ROUNDING = 1e-8
"""Share of the objective by which bounds of solvers that compute in floats may be off."""


class MipModel:
    """The node-indexed formulation as a PuLP problem.

    Attributes:
        columns: what is chosen from.
        problem: the ``pulp.LpProblem``; it maximises the objective times *scale*.
        variables: the variables by their indices.
        rows: its rows.
        scale: factor of the objective.
    """

    def __init__(self, columns: ColumnSet, *, symmetry: bool = True) -> None:
        import pulp

        self.columns = columns
        self.problem = pulp.LpProblem("coplace", pulp.LpMaximize)
        self.variables = Variables(columns, self.problem)
        self.rows = Rows(self.problem)
        Constraints(self.variables, self.rows).add_all()
        self._symmetry = Symmetry(self.variables) if symmetry else None
        if self._symmetry is not None:
            self._symmetry.add_all(self.rows)
        self.scale = add_objective(self.problem, self.variables)
        self._values = Values(self.variables)

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
    ) -> Solution:
        """Solve with a backend, and re-check what it says.

        Args:
            backend: see :func:`~coplace.formulations.mip.backends.available_backends`.
            time_limit: seconds; some solvers overrun it.
            gap: relative gap to the bound at which a plan counts as optimal.
            threads: that the solver may use.
            seed: of its random draws.
            hint: a plan to start from; left out where it breaks a row, jobs without a column for it are.
            log: whether to print what the solver prints.

        Raises:
            InputError: the backend is unknown or not installed.
        """
        begin = time.monotonic()
        start = hint is not None and self._set(hint)
        if not start:
            self._values.clear()
        check_available(backend)
        v = self.variables
        if not (v.column or v.line or v.kept):  # solvers disagree on what an empty problem is
            return Solution("optimal", Plan(), 0.0, self.columns.error, time.monotonic() - begin)
        answer = solve_with(backend, self.problem, Options(time_limit, gap, threads, seed, log, start))
        return self._solution(answer, gap, begin)

    def write(self, path: Path | str) -> None:
        """Write the problem as ``.mps`` or ``.lp``, by the ending of *path*.

        Raises:
            InputError: it has another ending.
        """
        ending = Path(path).suffix.lower()
        if ending == ".mps":
            self.problem.writeMPS(str(path), with_objsense=True)
        elif ending == ".lp":
            self.problem.writeLP(str(path))
        else:
            raise InputError([Problem("path", "must end in .mps or .lp", repr(str(path)))])

    def _set(self, hint: Plan) -> bool:
        """Give the variables the values of *hint*; whether they keep all rows."""
        choices = self._values.choices_of(hint, self._symmetry)
        return self._values.set(choices) and self.rows.kept_by_values(symmetry=True)

    def _solution(self, answer: Answer, gap: float, begin: float) -> Solution:
        """Round what the solver left in the variables, check it against every row, and say what it proves."""
        bound = None if answer.bound is None else answer.bound / self.scale
        choices = None if answer.infeasible else self._values.read()
        found = choices is not None and self._values.set(choices) and self.rows.kept_by_values(symmetry=False)
        plan = objective = None
        status: SolverStatus = "infeasible" if answer.infeasible else "unknown"
        if found and choices is not None:
            plan, objective = self._values.plan(choices), self._values.objective(choices)
            status = "feasible"
            if bound is not None:
                within = bound - objective <= gap * abs(objective) + ROUNDING * max(abs(objective), abs(bound))
                status = "optimal" if within else "feasible"
                bound = max(bound, objective)
        if bound is not None:
            bound += self.columns.error
        return Solution(status, plan, objective, bound, time.monotonic() - begin)
