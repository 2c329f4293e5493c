"""The objective, scaled for the solver."""

from __future__ import annotations

import math
from typing import Any

from coplace.formulations.mip.variables import Terms, Variables

LARGEST = 2.0**14
"""The largest coefficient is brought between half of this and this; tolerances of solvers are absolute."""


def add_objective(problem: Any, variables: Variables) -> float:
    """Maximise Σ_jk V_jk · y[j,k] + values of lines + Σ_jℓ K_jℓ · z[j,ℓ]; gives the factor of all coefficients."""
    import pulp

    terms: Terms = []
    for j in range(len(variables.jobs)):
        terms += value(variables, j)
    most = max((abs(amount) for _, amount in terms), default=0.0)
    scale = 2.0 ** math.floor(math.log2(LARGEST / most)) if most > 0 else 1.0
    problem += pulp.LpAffineExpression([(variable, amount * scale) for variable, amount in terms])
    return scale


def value(variables: Variables, j: int) -> Terms:
    """Σ_k V_jk · y[j,k] + Σ_l value of line l + Σ_ℓ K_jℓ · z[j,ℓ] of one job."""
    choices = variables.jobs[j].choices
    kept = enumerate(choices.kept)
    terms = variables.counted(j, lambda column: column.value, lambda _: (0, 0))
    for number in range(len(choices.lines)):
        terms += [(variable, amount) for variable, amount in variables.encoded[j, number].value if amount]
    return terms + [(variables.kept[j, level], amount) for level, amount in kept if amount]
