"""Exact large neighbourhood search: free a part of the plan, solve it exactly, and go on from what is better.

Large neighbourhoods after Shaw (CP 1998), chosen adaptively after Ropke and Pisinger (2006).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from coplace.formulations.columns import ColumnSet, column_set
from coplace.instances.plan import Plan
from coplace.solver.check import check
from coplace.solver.exact.task import Bounded, Ended, Found
from coplace.solver.exact.worker import Worker
from coplace.solver.neighbourhoods.accept import Accept, better
from coplace.solver.neighbourhoods.choice import Choice
from coplace.solver.neighbourhoods.choosers import CHOOSERS, Chooser
from coplace.solver.neighbourhoods.incumbent import Incumbent
from coplace.solver.neighbourhoods.neighbourhood import Neighbourhood
from coplace.solver.neighbourhoods.pick import Picker, Worth, by_density
from coplace.solver.neighbourhoods.repair import Repair
from coplace.solver.neighbourhoods.stop import Progress, Stop, deadline, either, gap_reached, stalled
from coplace.solver.neighbourhoods.subproblem import SubProblem, sub_problem
from coplace.solver.search import InfeasiblePlanError, Search

LEAST_SECONDS = 0.2
"""Time left below which no round is begun."""

LOST_SECONDS = 5.0
"""Time beyond its own after which a solver that has not answered counts as lost; busy machines are slow to build."""

MOST_FAILURES = 3
"""Failures of the solver, one after the other, after which the rounds end."""

WITH_TIME = either(gap_reached, stalled(60), deadline)
"""At the gap asked for, after 60 rounds without a better plan, or when the time is over."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to search.

    Attributes:
        backend: ``cpsat``, or a MIP backend such as ``highs``.
        seconds: for a sub-problem; deterministic time in a replay.
        size: nodes of the first neighbourhoods; later ones are as large as can be solved in that time.
        columns: of a sub-problem, about.
        accept: when to go on from a repaired plan.
        stop: when to end.
    """

    backend: str = "cpsat"
    seconds: float = 1.0
    size: int = 8
    columns: int = 300
    accept: Accept = better
    stop: Stop = WITH_TIME


DEFAULT = Options()
"""What :func:`improve` does unless told otherwise."""


def improve(
    search: Search,
    *,
    columns: ColumnSet | None = None,
    worth: Worth | None = None,
    choosers: Mapping[str, Chooser] = CHOOSERS,
    options: Options = DEFAULT,
) -> None:
    """Improve the search's plan, round by round, until the options say to stop.

    Args:
        search: with a plan that has passed the checker.
        columns: the choices of its jobs, if the caller has them already.
        worth: what columns are worth above their price, by job; decides which of them sub-problems get.
        choosers: to draw neighbourhoods from.
        options: how to search.
    """
    if search.report is None or search.proven():
        return
    search.go_on()
    columns = columns or column_set(search.instance, search.scoring)
    worker = search.worker or Worker(memory_mib=search.memory_mib)
    try:
        _Rounds(search, columns, worth, choosers, options, worker).run()
    finally:
        if worker is not search.worker:
            worker.close()


class _Rounds:
    """One call of :func:`improve` under way."""

    def __init__(
        self,
        search: Search,
        columns: ColumnSet,
        worth: Worth | None,
        choosers: Mapping[str, Chooser],
        options: Options,
        worker: Worker,
    ) -> None:
        self.search, self.options, self.worker = search, options, worker
        self.draw = random.Random(search.seed)
        self.incumbent = Incumbent(search.scoring, columns, search.plan)
        self.present = search.objective
        self.picker = Picker(worth or by_density(self.incumbent), options.columns)
        self.choosers = choosers
        usable = max(1, len(self.incumbent.usable))
        self.choice = Choice(choosers, float(options.size), usable, self.draw)
        self.progress = Progress(search)
        self.failures = 0
        self.solved: set[Neighbourhood] = set()

    def run(self) -> None:
        """Rounds until there is a reason to stop."""
        while self.choice.arms and not self.options.stop(self.progress) and self.failures < MOST_FAILURES:
            if self.search.seconds_left() < LEAST_SECONDS:
                self.search.cut_short()
                return
            arm = self.choice.next()
            neighbourhood = self.choosers[arm.name](self.incumbent, round(arm.size), self.draw)
            if neighbourhood is None:
                self.choice.drop(arm)
                continue
            found, solved = False, True  # what is known to be solved may grow
            if neighbourhood.jobs and neighbourhood not in self.solved:
                found, solved = self._round(neighbourhood)
            self.choice.learn(arm, found=found, solved=solved)
            self.progress.rounds += 1
            self.progress.idle = 0 if found else self.progress.idle + 1

    def _round(self, neighbourhood: Neighbourhood) -> tuple[bool, bool]:
        """Whether solving it gave a better plan than all before, and whether it was solved to the end."""
        problem = sub_problem(self.incumbent, neighbourhood, self.picker)
        answer, solved = self._repaired(problem)
        best = self.search.objective
        changed = answer is not None and self._take(problem.spliced(self.incumbent.plan, answer))
        if changed:
            self.solved.clear()
        elif solved:
            self.solved.add(neighbourhood)
        return self.search.objective > best, solved

    def _repaired(self, problem: SubProblem) -> tuple[Plan | None, bool]:
        """The solver's plan, if it has one, and whether it says that there is no better one."""
        search, options = self.search, self.options
        left = search.seconds_left()
        task = Repair(
            columns=problem.columns,
            backend=options.backend,
            hint=problem.hint,
            seconds=options.seconds if search.replay else min(options.seconds, left),
            time_limit=left if search.replay else min(options.seconds + LOST_SECONDS, left),
            seed=self.draw.randrange(2**31),
            replay=search.replay,
        )
        plan, solved = None, False
        with closing(self.worker.solve(task, search.interrupted)) as events:
            for event in events:
                match event:
                    case Found(found):
                        plan = found
                    case Bounded():
                        pass  # of the sub-problem, which says nothing of the whole
                    case Ended(why, words):
                        solved = why == "done"
                        self._ended(why, words)
        return plan, solved

    def _ended(self, why: str, words: str) -> None:
        if why not in ("failure", "memory"):
            self.failures = 0
            return
        self.failures += 1
        self.search.detail = f"{self.options.backend}: {words}"
        if self.failures >= MOST_FAILURES:
            self.search.reason = "memory" if why == "memory" else "backend_failure"

    def _take(self, plan: Plan) -> bool:
        """Offer a repaired plan that is another one; whether the search goes on from it."""
        search = self.search
        if plan == self.incumbent.plan:
            return False
        report = check(search.instance, plan, search.scoring)
        if report.objective > search.objective or not report.feasible:
            try:
                search.offer(plan)
            except InfeasiblePlanError as error:
                search.reason, search.detail = "backend_failure", f"{self.options.backend}: {error}"
                self.failures = MOST_FAILURES
                return False
        if not self.options.accept(report.objective, self.present, search.objective):
            return False
        self.incumbent.replace(plan)
        self.present = report.objective
        return True
