"""What a solver says about a formulation, before anybody has checked it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coplace.instances.plan import Plan

SolverStatus = Literal["optimal", "feasible", "infeasible", "unknown"]


@dataclass(frozen=True, slots=True)
class Solution:
    """A solver's answer, to be re-checked.

    Attributes:
        status: ``optimal`` within the gap asked for, ``feasible`` with a plan, ``infeasible`` (keep-current is always
            feasible, so this is a defect somewhere), or ``unknown`` without a plan.
        plan: the plan; None without one.
        objective: its value by the solver, in units of the objective; None without a plan.
        bound: upper bound on the objective by the solver; None if it gives none.
        seconds: wall time in the solver.
    """

    status: SolverStatus
    plan: Plan | None
    objective: float | None
    bound: float | None
    seconds: float
