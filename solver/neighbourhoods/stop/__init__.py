"""When the rounds end before the time does."""

from __future__ import annotations

from coplace.solver.neighbourhoods.stop.contract import Progress, Stop
from coplace.solver.neighbourhoods.stop.deadline import deadline
from coplace.solver.neighbourhoods.stop.either import either
from coplace.solver.neighbourhoods.stop.gap import gap_reached
from coplace.solver.neighbourhoods.stop.stalled import stalled

__all__ = ["Progress", "Stop", "deadline", "either", "gap_reached", "stalled"]
