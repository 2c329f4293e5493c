"""The objective of the class-level formulation."""

from __future__ import annotations

from typing import Any

from coplace.formulations.mip.by_class.variables import Variables
from coplace.formulations.mip.variables import Terms


def add_objective(problem: Any, variables: Variables) -> float:
    """Maximise Σ V · y + Σ K · z, divided by the largest value so that it is at most 1.

    Returns:
        The factor, that a solver's objective and bound are to be divided by.
    """
    import pulp

    terms = value(variables)
    largest = max((amount for _, amount in terms), default=0.0)
    factor = 1.0 / largest if largest > 0 else 1.0
    problem.setObjective(pulp.LpAffineExpression([(variable, amount * factor) for variable, amount in terms]))
    return factor


def value(variables: Variables) -> Terms:
    """What the choices of all jobs are worth."""
    jobs = variables.places.jobs
    terms = [(y, jobs[j].choices.columns[k].value) for (j, k), y in variables.column.items()]
    return terms + [(z, jobs[j].choices.kept[level]) for (j, level), z in variables.kept.items()]
