"""Explanations of a plan: why a job waits and what would admit it, why one runs as it does, what more is worth."""

from __future__ import annotations

from coplace.solver.explain.changes import KINDS
from coplace.solver.explain.front import explain
from coplace.solver.explain.report import (
    Alternative,
    Cluster,
    Counterfactual,
    Explanation,
    RunningJob,
    WaitingJob,
    WhatIf,
)

__all__ = [
    "KINDS",
    "Alternative",
    "Cluster",
    "Counterfactual",
    "Explanation",
    "RunningJob",
    "WaitingJob",
    "WhatIf",
    "explain",
]
