"""Solving in stages: few columns first, chosen by prices, then more, until no column that is left out could matter.

A column whose shortfall (see :mod:`coplace.formulations.relaxation`) exceeds bound − objective of a known plan cannot
be in a better plan. Long before that the columns with the least shortfall hold a plan that is nearly as good, in a
model that is a hundred times smaller (a restricted master, as in column generation).
"""

from __future__ import annotations

import time

import numpy as np

from coplace.formulations.columns import ColumnSet
from coplace.formulations.relaxation import Prices, Relaxation
from coplace.formulations.solution import Solution
from coplace.solver.exact.course import Course, threshold
from coplace.solver.exact.task import Ended, Priced
from coplace.solver.guided import guided

FEW_COLUMNS = 2_000
"""Columns up to which all are taken at once, whatever prices say of them."""

COLUMNS_PER_JOB = (3, 9, 40)
"""Mean number of columns per job in the stages before the last."""

TIME_SHARES = (0.4, 0.5, 0.6)
"""Most of the time that is left, for each of these stages."""

CHOICES_PER_SECOND, PAIRS_PER_SECOND = 8_000, 16_000
"""Columns, and pairs of a job and a node, that building and presolving get through in a second."""

OVERRUN_SECONDS = 0.5
"""What solvers overrun their limit by, at most, on a busy machine."""

DETERMINISTIC_SECONDS = 10.0
"""Deterministic time per stage in a replay, in CP-SAT's units of about a second."""


class Staged(Course):
    """One task, stage by stage."""

    def run(self) -> Ended:
        """Solve; the last event."""
        total = sum(len(choices.columns) + len(choices.lines) for choices in self.task.columns.jobs)
        relaxation = Relaxation(self.task.columns)
        best = relaxation.best_prices()
        prices = relaxation.bound(best)
        self.say(Priced(relaxation.priced(best)))
        self._bounded(prices.bound)
        if total <= FEW_COLUMNS:
            return Ended("done") if self._done() else self._whole(self.task.columns)
        self._found(guided(self.scoring, self.task.columns, prices, lambda: self._left() <= 0))
        last = -1.0
        for per_job, share in zip(COLUMNS_PER_JOB, TIME_SHARES, strict=True):
            within = threshold(prices, per_job * len(self.task.columns.jobs))
            if within >= prices.bound - self.objective:
                break
            if self._done() or self._left() <= 0:
                break
            if within > last:
                solution = self._solve(self._within(prices, within), share * self._left())
                if solution.status == "infeasible":
                    return self._wrongly_infeasible()
                if solution.bound is not None:
                    # a plan with a column that was left out falls short of the bound by more than the within
                    self._bounded(max(solution.bound, prices.bound - within))
                last = within
        if self._done():
            return Ended("done")
        return self._whole(self._within(prices, prices.bound - self.objective))

    def _whole(self, columns: ColumnSet) -> Ended:
        """All columns that could matter: the answer is exact."""
        if self._left() <= 0:
            return Ended("time")
        solution = self._solve(columns, self._left())
        if solution.status == "infeasible":
            return self._wrongly_infeasible()
        if solution.bound is not None:
            # plans without the columns that were dropped, or the incumbent
            self._bounded(max(solution.bound, self.objective))
        return Ended("done" if self._done() or solution.status == "optimal" else "time")

    def _wrongly_infeasible(self) -> Ended:
        return Ended("failure", "the solver calls a problem infeasible that has a plan")

    def _solve(self, columns: ColumnSet, seconds: float) -> Solution:
        task = self.task
        if not task.replay and seconds < _least_seconds(columns):
            return Solution("unknown", None, None, None, 0.0)
        # Building counts too, and solvers look at the clock only now and then.
        until = time.monotonic() + seconds - min(OVERRUN_SECONDS, 0.1 * seconds)
        if task.backend == "cpsat":
            from coplace.formulations.cpsat import CpsatModel

            model = CpsatModel(columns, symmetry=task.symmetry)
            solution = model.solve(
                time_limit=3600.0 if task.replay else max(until - time.monotonic(), 0.01),
                gap=task.gap,
                workers=1 if task.replay else task.threads,
                seed=task.seed,
                hint=self.plan,
                deterministic_limit=DETERMINISTIC_SECONDS if task.replay else None,
                found=self._found,
            )
        else:
            from coplace.formulations.mip import MipModel

            program = MipModel(columns, symmetry=task.symmetry)
            solution = program.solve(
                backend=task.backend,
                time_limit=max(until - time.monotonic(), 0.01),
                gap=task.gap,
                threads=1 if task.replay else task.threads,
                seed=task.seed,
                hint=self.plan,
            )
        if solution.plan is not None:
            self._found(solution.plan)
        return solution

    def _within(self, prices: Prices, threshold: float) -> ColumnSet:
        """The choices whose shortfall is at most *threshold* (a hair more for rounding), and those of the best plan."""
        allowed = threshold + 1e-9 * abs(prices.bound)
        keep = [shortfall <= allowed for shortfall in prices.shortfall]
        lines = [shortfall <= allowed for shortfall in prices.line_shortfall]
        for j, choices in enumerate(self.task.columns.jobs):
            allocation = self.plan.get(choices.job.name)
            if allocation is not None:
                shape = self.task.columns.shape_of(allocation)
                keep[j] |= np.array([column[:5] == shape for column in choices.columns], dtype=bool)
                lines[j] |= np.array([line.allows(shape) for line in choices.lines], dtype=bool)
        return self.task.columns.restricted([mask.tolist() for mask in keep], [mask.tolist() for mask in lines])


def _least_seconds(columns: ColumnSet) -> float:
    """Time below which building and presolving the model would leave none to search, and overrun it."""
    choices = sum(len(job.columns) + len(job.lines) for job in columns.jobs)
    pairs = len(columns.instance.nodes) * len(columns.jobs)
    return max(0, choices - FEW_COLUMNS) / CHOICES_PER_SECOND + pairs / PAIRS_PER_SECOND
