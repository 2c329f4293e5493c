"""One solve under way: the best plan so far, what is known about the best there is, the clock, the reason to stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from coplace.formulations.relaxation.rows import PricedRow
from coplace.formulations.scoring import Scoring
from coplace.instances.plan import Plan
from coplace.solver.certificate import certify, gap_to
from coplace.solver.check import CheckReport, check
from coplace.solver.memory import RoundMemory
from coplace.solver.result import Reason

if TYPE_CHECKING:
    from coplace.solver.exact.worker import Worker

BOUND_TOLERANCE = 1e-7
"""Relative amount by which a bound may lie below a known objective, for rounding, before it counts as wrong."""


class InfeasiblePlanError(Exception):
    """A method made a plan that the checker refuses: a defect of the method or its solver, not of the input."""


class Search:
    """Collects plans and bounds; keeps the best plan that the checker has passed and the lowest bound.

    Attributes:
        scoring: of the instance that is solved.
        instance: the instance.
        gap: relative gap at which to stop.
        seed: for methods that draw random numbers.
        backend: MIP backend.
        replay: the same plan on every run, whatever the clock says.
        worker: a solver process to use again; None = one of its own for this solve.
        memory_mib: memory limit of a process of its own; None = three quarters of the machine's.
        memory: what an earlier round has left, if there was one.
        interrupted: whether somebody asked to stop.
        plan, report: the best plan so far and its check.
        standing: objective of the first plan, which keeps what runs.
        found_by: the rung that found the best plan.
        bound: upper bound on the objective of every plan, None if unknown.
        prices: prices whose bound is the lowest certified one, by rows with a price above 0; None if there are none.
        certified_bound: that bound.
        reason: why the search stopped; ``detail`` says more after a failure.
    """

    def __init__(
        self,
        scoring: Scoring,
        *,
        deadline: float,
        gap: float,
        seed: int,
        interrupted: Callable[[], bool],
        backend: str = "highs",
        replay: bool = False,
        worker: Worker | None = None,
        memory_mib: int | None = None,
        memory: RoundMemory | None = None,
    ) -> None:
        self.scoring = scoring
        self.instance = scoring.instance
        self.gap = gap
        self.seed = seed
        self.backend = backend
        self.replay = replay
        self.worker = worker
        self.memory_mib = memory_mib
        self.memory = memory
        self.interrupted = interrupted
        self.rung = ""
        self.plan = Plan()
        self.report: CheckReport | None = None
        self.standing = 0.0
        self.found_by = ""
        self.bound: float | None = None
        self.prices: tuple[PricedRow, ...] | None = None
        self.certified_bound: float | None = None
        self.reason: Reason = "finished"
        self.detail: str | None = None
        self._deadline = deadline

    @property
    def objective(self) -> float:
        """Objective of the best plan so far."""
        return self.report.objective if self.report else 0.0

    def seconds_left(self) -> float:
        """Seconds to the deadline, at least 0."""
        return max(0.0, self._deadline - time.monotonic())

    def stopped(self) -> bool:
        """Whether the time is over or somebody asked to stop."""
        return self.interrupted() or time.monotonic() >= self._deadline

    def go_on(self) -> None:
        """Note that another rung uses the time that an earlier one was not given."""
        if self.reason == "time":
            self.reason = "finished"

    def cut_short(self) -> None:
        """Note that a rung had to stop before its end."""
        self.reason = "interrupted" if self.interrupted() else "time"

    def distrust(self, words: str) -> None:
        """Note that a solver failed or contradicted what is known; what it said of bounds is forgotten."""
        self.reason, self.detail, self.bound = "backend_failure", words, None

    def offer(self, plan: Plan) -> None:
        """Take *plan* if it is worth more than the best so far, or as much with fewer moves.

        Raises:
            InfeasiblePlanError: it breaks a rule.
        """
        report = check(self.instance, plan, self.scoring)
        if not report.feasible:
            broken = "; ".join(str(violation) for violation in report.violations[:5])
            raise InfeasiblePlanError(f"{self.rung} made an infeasible plan: {broken}")
        if self.report is None:
            self.standing = report.objective
        if self.report is None or _better(report, self.report):
            self.plan, self.report, self.found_by = plan, report, self.rung
            if self.certified_bound is not None and not self._holds(self.certified_bound):
                self.distrust(f"{self.rung}: a plan exceeds the bound {self.certified_bound:.9g} that prices give")
                self.prices = self.certified_bound = None
            if self.bound is not None and not self._holds(self.bound):
                self.distrust(f"{self.rung}: a plan exceeds the bound {self.bound:.9g} that was claimed before")

    def bounded(self, bound: float) -> bool:
        """Take an upper bound; False, and nothing taken, if the best plan exceeds it or it is no finite number."""
        if not math.isfinite(bound) or not self._holds(bound):
            return False
        if self.bound is None or bound < self.bound:
            self.bound = max(bound, self.objective)
        return True

    def priced(self, rows: Sequence[PricedRow], bound: float | None = None) -> bool:
        """Take prices, of which those with the lowest bound are kept, and their bound; False as for :meth:`bounded`.

        Args:
            rows: the prices.
            bound: what :func:`~coplace.solver.certificate.certify` makes of them, where the caller has priced all
                choices of the instance itself; by default it is computed.

        Raises:
            InputError: no bound follows from *rows*.
        """
        if bound is None:
            bound = certify(self.instance, rows, scoring=self.scoring)
        if not self.bounded(bound):
            return False
        if self.certified_bound is None or bound < self.certified_bound:
            kept = sorted((each for each in rows if each.price > 0), key=lambda each: each.row.order())
            self.prices, self.certified_bound = tuple(kept), bound
        return True

    def proven(self) -> bool:
        """Whether the best plan is proven to be within the gap asked for."""
        gap = self.relative_gap()
        return gap is not None and gap <= self.gap

    def relative_gap(self) -> float | None:
        """(bound − objective) / max(bound, 1e-9); None without a bound."""
        if self.bound is None:
            return None
        return gap_to(self.bound, self.objective)

    def _holds(self, bound: float) -> bool:
        return bound >= self.objective - BOUND_TOLERANCE * max(1e-9, abs(self.objective))


def _better(report: CheckReport, than: CheckReport) -> bool:
    return (report.objective, -len(report.moved)) > (than.objective, -len(than.moved))
