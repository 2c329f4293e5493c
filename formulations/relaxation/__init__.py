"""The counts without the placement: a linear relaxation whose prices bound every plan and say which columns matter.

Nodes are pooled by class (equal nodes), tasks by what they ask of a pool. For prices π ≥ 0 of the pools' rows

    bound = Σ_i π_i · rhs_i + Σ_c N_c · max_ℓ Σ_i π_i · supply_i(c, ℓ) + Σ_j max_k (V_jk − Σ_i π_i · demand_i(j, k))

is at least the objective of every plan (Lagrangian duality), whatever the prices are; so a solver only proposes prices,
and the bound is computed here. The amount by which a column falls short of its job's maximum is what any plan that uses
the column falls short of the bound. What a line demands and is worth is linear in the worker count between its corners,
so that the best of these is the best of all; the error of lines is part of the bound.

Files: ``choices`` (what jobs choose from), ``classes`` (of nodes), ``rows`` and ``demands`` (of the program),
``pricing`` and ``bound``, ``linear_program``, ``generation`` (of columns), ``sampling`` (of jobs, where there are very
many).
"""

from coplace.formulations.relaxation.bound import Prices
from coplace.formulations.relaxation.choices import Choices, all_choices, choices_of
from coplace.formulations.relaxation.generation import LP_GAP
from coplace.formulations.relaxation.relaxation import Relaxation
from coplace.formulations.relaxation.rows import PricedRow, Row

__all__ = ["LP_GAP", "Choices", "PricedRow", "Prices", "Relaxation", "Row", "all_choices", "choices_of"]
