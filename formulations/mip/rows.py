"""Rows of a problem: named by family and indices, scaled so that coefficients stay within few magnitudes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from coplace.formulations.mip.variables import Terms

Sense = Literal["<=", ">=", "=="]

LARGE = 2048
"""A row whose largest coefficient is above this is divided by a power of two, which is exact."""


class Rows:
    """Adds rows to a PuLP problem and says whether values keep them.

    Attributes:
        number: rows so far.
    """

    def __init__(self, problem: Any) -> None:
        import pulp

        self._problem = problem
        self._constraint = pulp.LpConstraint
        self._expression = pulp.LpAffineExpression
        self._senses = {"<=": pulp.LpConstraintLE, ">=": pulp.LpConstraintGE, "==": pulp.LpConstraintEQ}
        self._whole: list[Any] = []
        self._real: list[Any] = []

    def __len__(self) -> int:
        return len(self._whole) + len(self._real)

    def add(self, name: str, terms: Terms, sense: Sense, limit: float, *, real: bool = False) -> None:
        """terms ≤, ≥ or = limit. A row that holds whatever the variables are is left out.

        *real* says that coefficients are no whole amounts, so that solvers keep the row to a tolerance only.
        """
        if sense == "<=" and all(weight >= 0 for _, weight in terms):
            if math.fsum(weight * variable.upBound for variable, weight in terms) <= limit:
                return
        elif not terms and (limit <= 0 if sense == ">=" else limit == 0):
            return
        row = self._constraint(self._expression(terms), self._senses[sense], name, limit)
        self._problem.addConstraint(row)
        (self._real if real else self._whole).append(row)

    def add_amounts(self, name: str, terms: Sequence[tuple[Any, int]], limit: int) -> None:
        """terms ≤ limit in whole amounts of whole variables, with coefficients divided by what they share."""
        shared = math.gcd(*(amount for _, amount in terms)) or 1
        most = max((abs(amount) // shared for _, amount in terms), default=0)
        scale = 2.0 ** max(0, (most // LARGE).bit_length())
        self.add(name, [(v, amount // shared / scale) for v, amount in terms], "<=", limit // shared / scale)

    def kept_by_values(self, *, symmetry: bool) -> bool:
        """Whether the values of the variables keep every row: whole ones exactly, real ones to solver tolerance."""
        real = self._real if symmetry else []
        return all(_holds(row, 1e-9) for row in self._whole) and all(_holds(row, 1e-6) for row in real)


def _holds(row: Any, tolerance: float) -> bool:
    excess = row.value()  # left side less the limit
    allowed = tolerance * max(1.0, abs(row.constant))
    if row.sense > 0:
        return bool(excess >= -allowed)
    return bool(excess <= allowed if row.sense < 0 else abs(excess) <= allowed)
