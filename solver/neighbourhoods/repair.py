"""What the solver process is asked to repair, and what it does about it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from coplace.formulations.columns import ColumnSet
from coplace.formulations.solution import Solution
from coplace.instances.plan import Plan
from coplace.solver.exact.task import Ended, Event, Found


@dataclass(frozen=True, slots=True)
class Repair:
    """One sub-problem.

    Attributes:
        columns: what to choose from.
        backend: ``cpsat``, or a MIP backend such as ``highs``.
        hint: what runs now.
        seconds: for building the model and solving it.
        time_limit: seconds after which the process counts as lost.
        gap: relative gap at which the sub-problem counts as solved.
        seed: for the solver.
        threads: of the solver, 1 or 2.
        replay: one thread, and *seconds* in deterministic time; CP-SAT only.
    """

    columns: ColumnSet
    backend: str
    hint: Plan
    seconds: float
    time_limit: float
    gap: float = 1e-4
    seed: int = 0
    threads: int = 2
    replay: bool = False

    def run(self, say: Callable[[Event], None]) -> Ended:
        """Solve it; the plan that it says is one of the sub-problem, ``done`` means that there is no better one."""
        solution = self._solution()
        if solution.status == "infeasible":
            return Ended("failure", "the solver calls a sub-problem infeasible that has a plan")
        if solution.plan is not None:
            say(Found(solution.plan))
        return Ended("done" if solution.status == "optimal" else "time")

    def _solution(self) -> Solution:
        until = time.monotonic() + self.seconds
        if self.backend == "cpsat":
            from coplace.formulations.cpsat import CpsatModel

            model = CpsatModel(self.columns)
            return model.solve(
                time_limit=self.time_limit if self.replay else max(until - time.monotonic(), 0.05),
                gap=self.gap,
                workers=1 if self.replay else self.threads,
                seed=self.seed,
                hint=self.hint,
                deterministic_limit=self.seconds if self.replay else None,
                rounding=False,
            )
        from coplace.formulations.mip import MipModel

        program = MipModel(self.columns)
        return program.solve(
            backend=self.backend,
            time_limit=self.time_limit if self.replay else max(until - time.monotonic(), 0.05),
            gap=self.gap,
            threads=1 if self.replay else self.threads,
            seed=self.seed,
            hint=self.hint,
        )
