"""The objective, scaled for the solver."""

from __future__ import annotations

import math
from typing import Any

from coplace.formulations.mip.variables import Terms, Variables

LARGEST = 2.0**14
"""The largest coefficient is brought between half of this and this; tolerances of solvers are absolute."""


def add_objective(problem: Any, variables: Variables) -> float:
    """Maximise Σ_jk V_jk · y[j,k] + Σ_jℓ K_jℓ · z[j,ℓ]; gives the factor that all coefficients were multiplied by."""
    import pulp

    terms: Terms = []
    for j in range(len(variables.jobs)):
        terms += value(variables, j)
    most = max((amount for _, amount in terms), default=0.0)
    scale = 2.0 ** math.floor(math.log2(LARGEST / most)) if most > 0 else 1.0
    problem += pulp.LpAffineExpression([(variable, amount * scale) for variable, amount in terms])
    return scale


def value(variables: Variables, j: int) -> Terms:
    """Σ_k V_jk · y[j,k] + Σ_ℓ K_jℓ · z[j,ℓ] of one job."""
    kept = enumerate(variables.jobs[j].choices.kept)
    terms = variables.chosen(j, lambda column: column.value)
    return terms + [(variables.kept[j, level], amount) for level, amount in kept if amount]
