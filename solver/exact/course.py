"""How far a task has come: the best plan, the lowest bound and the time, and what the parent has been told of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from coplace.formulations.evaluate import evaluate
from coplace.formulations.relaxation import Prices
from coplace.formulations.scoring import Scoring
from coplace.instances.plan import Plan
from coplace.solver.exact.task import Bounded, Event, Found, Task


class Course:
    """One task on its way; *say* is told plans and bounds as they come.

    Attributes:
        plan, objective: the best plan so far.
        bound: the lowest bound so far.
    """

    def __init__(self, task: Task, say: Callable[[Event], None]) -> None:
        self.task = task
        self.say = say
        self.scoring = Scoring(task.columns.instance)
        self.plan, self.objective = task.incumbent, task.objective
        self.bound = float("inf")
        self.deadline = time.monotonic() + task.time_limit

    def _found(self, plan: Plan) -> bool:
        """Hand on a better plan; whether it is good enough."""
        objective = evaluate(self.task.columns.instance, plan, self.scoring).objective
        if objective > self.objective and self._passes(plan):
            self.plan, self.objective = plan, objective
            self.say(Found(plan))
        return self._done()

    def _passes(self, plan: Plan) -> bool:
        """Whether a better *plan* is worth telling; the parent checks it in any case."""
        return True

    def _bounded(self, bound: float) -> None:
        if bound < self.bound:
            self.bound = bound
            self.say(Bounded(bound))

    def _done(self) -> bool:
        # without a bound yet, ∞ ≤ gap · ∞ would hold, and end the search at the first plan
        return math.isfinite(self.bound) and self.bound - self.objective <= self.task.gap * max(self.bound, 1e-9)

    def _left(self) -> float:
        return self.deadline - time.monotonic()


def threshold(prices: Prices, columns: int) -> float:
    """The shortfall that about so many columns and lines stay within."""
    shortfall = np.concatenate([*prices.shortfall, *prices.line_shortfall])
    return float(np.partition(shortfall, columns)[columns]) if columns < shortfall.size else float("inf")
