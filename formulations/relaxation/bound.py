"""A bound, and what it says of every choice."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.relaxation.choices import Choices

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ROUNDING = 1e-12
"""Share of all amounts in a sum by which floating-point arithmetic is off at most."""


def rounded_up(parts: Floats, amounts: Floats) -> float:
    """The sum of *parts*, and a little more: what rounding can have hidden in a sum of these *amounts*."""
    return float(parts.sum() + ROUNDING * (np.abs(parts).sum() + np.abs(amounts).sum()))


@dataclass(frozen=True)
class Prices:
    """A bound and what it says of the choices.

    Attributes:
        bound: no plan has a larger objective.
        reduced: value less what the prices charge, by [choice].
        surplus: by [job], what its best choice is worth above its price: the shortfall of running nothing.
        choices: what it is about.
    """

    bound: float
    reduced: Floats
    surplus: Floats
    choices: Choices

    @cached_property
    def shortfall(self) -> list[Floats]:
        """By [job][column], what a plan that uses the column falls short of the bound at least."""
        return self._by_job(self._short, ~self.choices.kept & (self.choices.line < 0))

    @cached_property
    def kept_shortfall(self) -> list[Floats]:
        """By [job][level], the same of keeping the job as it is."""
        return self._by_job(self._short, self.choices.kept)

    @cached_property
    def line_shortfall(self) -> list[Floats]:
        """By [job][line], the same of the best worker count of a line."""
        on_line = self.choices.line >= 0
        least = []
        by_job = self._by_job(self._short, on_line), self._by_job(self.choices.line, on_line)
        for corners, line in zip(*by_job, strict=True):
            of_job = np.full(int(line.max(initial=-1)) + 1, np.inf)
            np.minimum.at(of_job, line, corners)
            least.append(of_job)
        return least

    @cached_property
    def _short(self) -> Floats:
        return np.asarray(self.surplus[self.choices.job] - self.reduced)

    def _by_job(self, values: NDArray[Any], mask: Bools) -> list[NDArray[Any]]:
        """The selected values, by [job][choice]."""
        cut = np.concatenate([[0], np.cumsum(mask)])[self.choices.starts]
        selected = values[mask]
        return [selected[start:end] for start, end in pairwise(cut.tolist())]
