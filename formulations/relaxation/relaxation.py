"""The relaxation of an instance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.columns import ColumnSet
from coplace.formulations.relaxation.bound import Prices
from coplace.formulations.relaxation.choices import Choices, choices_of
from coplace.formulations.relaxation.classes import Classes
from coplace.formulations.relaxation.generation import LP_GAP, Program
from coplace.formulations.relaxation.rows import Groups, PricedRow, Row, fixed_supplies, rows_of, supplies
from coplace.formulations.relaxation.sampling import MANY_CHOICES, SAMPLE_GAP, prices_of_many

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FEW_JOBS = 400
"""Jobs up to which there are rows of intensity by pieces: they tighten the bound, and take the solver some time."""


class Relaxation:
    """Rows of demand ≤ supply over all choices: columns, corners of lines, and kept columns.

    Attributes:
        instance: the instance.
        choices: what its jobs choose from.
        rows: what each price is the price of.
        classes: its nodes.
        supply: by [row, class and level].
        fixed: what a row offers beside that, by [row].
        levels: number of pressure levels.
    """

    def __init__(
        self, columns: ColumnSet | Choices, *, thresholds: bool | None = None, rows: list[Row] | None = None
    ) -> None:
        """Of some choices.

        Args:
            columns: what jobs choose from.
            thresholds: whether there are rows of intensity by pieces; by default for at most :data:`FEW_JOBS` jobs.
            rows: these in place of all that can bind.
        """
        self.choices = columns if isinstance(columns, Choices) else choices_of(columns)
        self.instance = instance = self.choices.instance
        self.classes = Classes(instance)
        if thresholds is None:
            thresholds = len(instance.jobs) <= FEW_JOBS
        self.rows = rows_of(instance, self.choices, self.classes, thresholds) if rows is None else rows
        self.levels = self.classes.levels
        by_level = supplies(instance, self.classes, self.rows)
        self.supply = by_level.reshape(len(self.rows), len(self.classes) * self.levels)
        self.fixed = fixed_supplies(instance, self.choices, self.rows)
        groups = Groups(instance, self.rows)
        self._program = Program(self.choices, self.rows, groups, by_level, self.fixed, self.classes.size)

    def bound(self, prices: Floats) -> Prices:
        """The bound at *prices* ≥ 0, by [row], rounded outward by what float sums can be off.

        The error of lines is added: the bound is one of what plans are worth, not of what choices offer.
        """
        prices = np.maximum(prices, 0.0)
        reduced, best = self._program.pricing.reduced(prices)
        bound = self._program.bound(prices, best) + self.choices.error
        return Prices(bound, reduced, best, self.choices)

    def best_prices(
        self,
        *,
        tighten: float = 1.0,
        warm: Iterable[PricedRow] | None = None,
        rough: bool = False,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Floats:
        """Prices by [row] from the linear program.

        Any prices give a bound, so it may stop early: when the bound is within :data:`LP_GAP` of the program's value,
        or within a thousandth where there are more than :data:`MANY_CHOICES` choices.

        Args:
            tighten: share of the intensity capacities that the program may use. Plans waste some of them, and are
                better guided by the prices that follow; the bound at these is a bound all the same.
            warm: prices of another round to start from.
            rough: whether it is enough to look at some of the jobs where they are many, and to come near the best.
            stopped: asked now and then; then the best prices so far are returned.
        """
        program = self._program
        if tighten != 1.0:
            scarce = np.array([row.kind == "pool" and row.resource == "intensity" for row in self.rows], dtype=bool)
            supply = np.where(scarce[:, None, None], tighten, 1.0) * program.supply
            program = Program(self.choices, self.rows, program.groups, supply, self.fixed, self.classes.size)
        start = None if warm is None else self.prices_at(warm)
        if len(self.choices) > MANY_CHOICES:
            return prices_of_many(program, start, rough, stopped)
        return program.best_prices(SAMPLE_GAP if rough else LP_GAP, start, stopped)

    def task_charges(self, prices: Floats, chosen: Ints) -> tuple[Floats, Floats]:
        """What *prices* charge for a worker and for a server of the choices *chosen*, by [choice, level tolerated].

        Servers may be anywhere.
        """
        charges, choices = self._program.pricing.charges(np.maximum(prices, 0.0)), self.choices
        job, gpu_type = choices.job[chosen], choices.gpu_type[chosen]
        shape = len(choices.jobs.must_keep), -1, len(self.instance.gpu_types), self.levels
        worker = charges.worker.reshape(shape)[job, choices.worker_profile[chosen], gpu_type]
        server = charges.server.reshape(2, *shape)[0, job, choices.ps_profile[chosen], gpu_type]
        memory = charges.memory.reshape(2, -1, self.levels)[0, gpu_type] + charges.quota_memory[job][:, None]
        return worker, server + choices.server_memory[chosen][:, None] * memory

    def node_worth(self, prices: Floats) -> Floats:
        """By how much the bound rises with one more node that equals this one, by [node]."""
        of_class = (
            (np.maximum(prices, 0.0) @ self.supply).reshape(len(self.classes), self.levels).max(axis=1, initial=0.0)
        )
        return np.asarray(of_class[self.classes.of_node])

    def priced(self, prices: Floats) -> tuple[PricedRow, ...]:
        """The rows with a price above 0, in the order of :class:`Row`: all that the bound needs."""
        found = [PricedRow(row, float(price)) for row, price in zip(self.rows, prices, strict=True) if price > 0]
        return tuple(sorted(found, key=lambda priced: priced.row.order()))

    def prices_at(self, priced: Iterable[PricedRow]) -> Floats:
        """Prices by [row] of those rows that exist here; 0 for others."""
        known: Mapping[Row, float] = {each.row: each.price for each in priced}
        return np.array([known.get(row, 0.0) for row in self.rows])
