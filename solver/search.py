"""One solve under way: the best plan so far, the clock, and the reason to stop."""

from __future__ import annotations

import time
from collections.abc import Callable

from coplace.formulations.scoring import Scoring
from coplace.instances.plan import Plan
from coplace.solver.check import CheckReport, check
from coplace.solver.result import Reason


class InfeasiblePlanError(Exception):
    """A method made a plan that the checker refuses: a defect of coplace, not of the input."""


class Search:
    """Collects plans; keeps the best one that the checker has passed.

    Attributes:
        scoring: of the instance that is solved.
        instance: the instance.
        gap: relative gap at which to stop.
        seed: for methods that draw random numbers.
        plan, report: the best plan so far and its check.
        found_by: the rung that found it.
        reason: why the search stopped.
    """

    def __init__(
        self, scoring: Scoring, *, deadline: float, gap: float, seed: int, interrupted: Callable[[], bool]
    ) -> None:
        self.scoring = scoring
        self.instance = scoring.instance
        self.gap = gap
        self.seed = seed
        self.rung = ""
        self.plan = Plan()
        self.report: CheckReport | None = None
        self.found_by = ""
        self.reason: Reason = "finished"
        self._deadline = deadline
        self._interrupted = interrupted

    def stopped(self) -> bool:
        """Whether the time is over or somebody asked to stop."""
        return self._interrupted() or time.monotonic() >= self._deadline

    def cut_short(self) -> None:
        """Note that a rung had to stop before its end."""
        self.reason = "interrupted" if self._interrupted() else "time"

    def offer(self, plan: Plan) -> None:
        """Take *plan* if it is better than the best so far; raises :class:`InfeasiblePlanError` if it breaks a rule."""
        report = check(self.instance, plan, self.scoring)
        if not report.feasible:
            broken = "; ".join(str(violation) for violation in report.violations[:5])
            raise InfeasiblePlanError(f"{self.rung} made an infeasible plan: {broken}")
        if self.report is None or report.objective > self.report.objective:
            self.plan, self.report, self.found_by = plan, report, self.rung
