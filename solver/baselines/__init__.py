"""Other people's schedulers, to be compared with; no method of :func:`coplace.solver.solve` uses them."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from coplace.formulations.scoring import Scoring
from coplace.instances.instance import Instance
from coplace.instances.plan import Plan
from coplace.solver.baselines.sia import sia


class Baseline(Protocol):
    """Decides one round; the plan is feasible, and is scored by the evaluator like any other."""

    def __call__(self, instance: Instance, scoring: Scoring | None = None, time_limit: float = 10.0) -> Plan:
        """The plan for *instance*, found in about *time_limit* seconds."""
        ...


BASELINES: dict[str, Baseline] = {"sia": sia, "sia-own": partial(sia, own_objective=True)}
"""All baselines by name; ``sia-own`` maximises the objective of the instance instead of Sia's own."""
