"""The objective of the class-level formulation, in whole numbers rounded so that a bound stays a bound."""

from __future__ import annotations

import math

from ortools.sat.python import cp_model

from coplace.formulations.cpsat.by_class.variables import Variables
from coplace.formulations.cpsat.objective import scale_of


class Objective:
    """Maximise Σ V · y + Σ K · z with every value scaled and rounded up: too high by less than one unit per job.

    Attributes:
        scale: whole units per unit of the objective.
    """

    def __init__(self, model: cp_model.CpModel, variables: Variables) -> None:
        jobs = variables.places.jobs
        self.scale = scale_of(variables.places.columns)
        terms = [(y, jobs[j].choices.columns[k].value) for (j, k), y in variables.column.items()]
        terms += [(z, jobs[j].choices.kept[ell]) for (j, ell), z in variables.kept.items()]
        amounts = [math.ceil(value * self.scale) for _, value in terms]
        model.maximize(cp_model.LinearExpr.weighted_sum([variable for variable, _ in terms], amounts))
