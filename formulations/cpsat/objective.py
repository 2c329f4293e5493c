"""The objective of the CP-SAT formulation, in whole numbers rounded so that a bound stays a bound."""

from __future__ import annotations

import math

from ortools.sat.python import cp_model

from coplace.formulations.columns import ColumnSet
from coplace.formulations.cpsat.variables import Variables

LARGEST_SUM = 2**30
"""The scaled objective stays below this, so that no sum of its terms overflows 32 bits (or-tools #5293)."""


def scale_of(columns: ColumnSet) -> float:
    """Whole units per unit of the objective, such that with all rounding no plan comes to more than LARGEST_SUM.

    Rounding raises a value by less than one unit; on a line also each slope, for each worker after the first.
    """
    most = rounding = 0.0
    for choices in columns.jobs:
        highest = [max(line.curve.vs) for line in choices.lines]
        most += max((*(column.value for column in choices.columns), *highest, *choices.kept), default=0.0)
        rounding += 1 + max((line.most_workers - line.least_workers for line in choices.lines), default=0)
    return max(1.0, LARGEST_SUM - rounding) / most if most > 0 else 1.0


class Objective:
    """Maximise Σ V · y + values of lines + Σ K · z with every value scaled and rounded up.

    Rounded up, the scaled objective of any plan is at least its true one, so that bound / scale is a true bound; it is
    too high by less than one unit per job, and on a line by less than one more for each worker after its first.

    Attributes:
        scale: whole units per unit of the objective.
    """

    def __init__(self, model: cp_model.CpModel, variables: Variables, columns: ColumnSet, scale: float) -> None:
        """Add it; *scale* is by :func:`scale_of`, and the one that *variables* were made with."""
        self.scale = scale
        terms, values = [], []
        for j, choices in enumerate(columns.jobs):
            for k, y in variables.columns_of(j):
                terms.append(y)
                values.append(self.rounded(choices.columns[k].value))
            for _, _, encoded in variables.lines_of(j):
                terms += [variable for variable, _ in encoded.value]
                values += [amount for _, amount in encoded.value]
            for ell, value in enumerate(choices.kept):
                terms.append(variables.kept[j, ell])
                values.append(self.rounded(value))
        model.maximize(cp_model.LinearExpr.weighted_sum(terms, values))

    def rounded(self, value: float) -> int:
        """A value in whole units, rounded up."""
        return math.ceil(value * self.scale)
