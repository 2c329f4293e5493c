"""Column generation: solve over some choices, add those that are worth more than the prices charge."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.relaxation.bound import rounded_up
from coplace.formulations.relaxation.choices import Choices
from coplace.formulations.relaxation.demands import demands
from coplace.formulations.relaxation.linear_program import LinearProgram, release
from coplace.formulations.relaxation.pricing import Pricing
from coplace.formulations.relaxation.rows import Groups, Row

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

LP_GAP, MOST_ROUNDS, CHOICES_PER_ROUND = 1e-6, 60, 4
"""Relative gap at which to stop, most rounds, and choices that each job may add in a round."""


class Program:
    """Rows and supplies over some choices: of all jobs, or of a sample with a share of the nodes.

    Attributes:
        choices: what jobs choose from.
        rows, groups: of demand ≤ supply.
        supply: by [row, class, level].
        fixed: what a row offers beside that.
        size: nodes, by [class].
        pricing: of the choices.
    """

    def __init__(
        self, choices: Choices, rows: list[Row], groups: Groups, supply: Floats, fixed: Floats, size: Floats
    ) -> None:
        self.choices, self.rows, self.groups = choices, rows, groups
        self.supply, self.fixed, self.size = supply, fixed, size
        self.pricing = Pricing(choices.instance, groups, rows, choices)

    def bound(self, prices: Floats, best: Floats) -> float:
        """The bound at *prices* when *best* is what the best choice of each job is worth above them."""
        nodes = np.tensordot(prices, self.supply, axes=1).max(axis=1, initial=0.0)
        parts = np.concatenate([prices * self.fixed, self.size * nodes, best])
        return rounded_up(parts, self.choices.most_value)

    def demands(self, chosen: Ints) -> Floats:
        """What the choices *chosen* take, by [row, choice]."""
        return demands(self.choices.instance, self.groups, self.rows, self.choices.take(chosen))

    def linear_program(self, chosen: Ints) -> LinearProgram:
        """The program over the choices *chosen*, ascending."""
        demand = self.demands(chosen)
        most = np.abs(self.supply).max(axis=(1, 2), initial=0.0)
        scale = np.maximum(np.maximum(most, np.abs(demand).max(axis=1, initial=0.0)), 1e-9)
        program = LinearProgram(self.supply, self.fixed, self.size, self.choices.jobs.must_keep, scale)
        program.add(self.choices.value[chosen], self.choices.job[chosen].astype(np.int64), demand)
        return program

    def best_prices(
        self, gap: float = LP_GAP, warm: Floats | None = None, stopped: Callable[[], bool] = lambda: False
    ) -> Floats:
        """Prices by [row] within *gap* of the best bound, starting from *warm* ones where there are any.

        Once *stopped*, the best so far.
        """
        prices, best = np.zeros(len(self.fixed)) if warm is None else warm, np.inf
        active = self._first_choices() if warm is None else self._near(warm)
        program = self.linear_program(np.flatnonzero(active))
        for _ in range(MOST_ROUNDS):
            if stopped():
                break
            candidate, value = program.solve()
            if candidate is None:
                break
            reduced, most = self.pricing.reduced(candidate)
            found = self.bound(candidate, most)
            if found < best:
                prices, best = candidate, found
            if best - value <= gap * abs(best):
                break
            chosen = self._promising(reduced, active)
            if not len(chosen):
                break
            active[chosen] = True
            program.add(self.choices.value[chosen], self.choices.job[chosen].astype(np.int64), self.demands(chosen))
        release()
        return prices

    def _first_choices(self) -> Bools:
        """Kept choices, and the most valuable column or line of each job by type and worker count: 1, 2, 4, 8, …

        Others join where they are worth it.
        """
        choices = self.choices
        order = np.lexsort((-choices.value, choices.workers, choices.gpu_type, choices.job))
        key = np.stack([choices.job[order], choices.gpu_type[order], choices.workers[order]])
        first = np.ones(len(order), dtype=bool)
        first[1:] = (key[:, 1:] != key[:, :-1]).any(axis=0)
        start = order[first]
        w = choices.workers[start]
        active = choices.kept.copy()
        active[start[w & (w - 1) == 0]] = True
        return np.asarray(active)

    def _near(self, prices: Floats) -> Bools:
        """Kept choices, and those of each job that *prices* make nearly its best."""
        reduced, best = self.pricing.reduced(prices)
        scale = np.maximum(self.choices.most_value, 1e-12)
        short = (best[self.choices.job] - reduced) / scale[self.choices.job]
        few = FIRST_PER_JOB * len(best)
        threshold = np.partition(short, few)[few] if few < len(short) else np.inf
        return np.asarray(self.choices.kept | (short <= threshold))

    def _promising(self, reduced: Floats, active: Bools) -> Ints:
        """Of each job the few inactive choices that are worth most above their price, if more than any active one."""
        choices = self.choices
        best = np.zeros(len(choices.jobs.must_keep))
        here = np.flatnonzero(active)
        np.maximum.at(best, choices.job[here], reduced[here])
        better = np.flatnonzero(~active & (reduced > best[choices.job] + 1e-12 * np.abs(choices.value)))
        order = better[np.lexsort((-reduced[better], choices.job[better]))]
        start = np.searchsorted(choices.job[order], choices.job[order])
        return np.sort(order[np.arange(len(order)) - start < CHOICES_PER_ROUND])


FIRST_PER_JOB = 6
"""Mean number of choices of a job to start with where prices are known."""
