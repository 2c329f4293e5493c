"""The objective of the CP-SAT formulation, in whole numbers rounded so that a bound stays a bound."""

from __future__ import annotations

import math

from ortools.sat.python import cp_model

from coplace.formulations.columns import ColumnSet
from coplace.formulations.cpsat.variables import Variables

LARGEST_SUM = 2**30
"""The scaled objective stays below this, so that no sum of its terms overflows 32 bits (or-tools #5293)."""


class Objective:
    """Maximise Σ V · y + Σ K · z with every value scaled and rounded up.

    Rounded up, the scaled objective of any plan is at least its true one, so that bound / scale is a true bound; it is
    too high by less than one unit per job.

    Attributes:
        scale: whole units per unit of the objective.
    """

    def __init__(self, model: cp_model.CpModel, variables: Variables, columns: ColumnSet) -> None:
        most = sum(
            max((*(column.value for column in choices.columns), *choices.kept), default=0.0) for choices in columns.jobs
        )
        self.scale = (LARGEST_SUM - len(columns.jobs)) / most if most > 0 else 1.0
        terms, values = [], []
        for j, choices in enumerate(columns.jobs):
            for k, y in variables.columns_of(j):
                terms.append(y)
                values.append(self.rounded(choices.columns[k].value))
            for ell, value in enumerate(choices.kept):
                terms.append(variables.kept[j, ell])
                values.append(self.rounded(value))
        model.maximize(cp_model.LinearExpr.weighted_sum(terms, values))

    def rounded(self, value: float) -> int:
        """A value in whole units, rounded up."""
        return math.ceil(value * self.scale)
