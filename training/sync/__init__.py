"""Synchronisation: whose gradients make an update together, and who may start its next step.

One file a strategy; docs/training-strategies.md says what each assumes and why it converges.
"""

from __future__ import annotations

from coplace.training.job import Asp, Bsp, Ssp
from coplace.training.sync.asp import Asynchronous
from coplace.training.sync.bsp import BulkSynchronous
from coplace.training.sync.dssp import DynamicStaleness
from coplace.training.sync.pace import Pace as Pace
from coplace.training.sync.pace import Synchronisation as Synchronisation
from coplace.training.sync.ssp import StaleSynchronous


def synchronisation(settings: Bsp | Asp | Ssp) -> Synchronisation:
    """The strategy that *settings* of a job name."""
    if isinstance(settings, Bsp):
        return BulkSynchronous()
    if isinstance(settings, Asp):
        return Asynchronous()
    if settings.staleness == "auto":
        return DynamicStaleness(most=settings.most)
    return StaleSynchronous(settings.staleness)
