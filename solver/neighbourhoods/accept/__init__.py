"""When a repaired plan becomes the one that the search goes on from."""

from __future__ import annotations

from coplace.solver.neighbourhoods.accept.better import better
from coplace.solver.neighbourhoods.accept.contract import Accept
from coplace.solver.neighbourhoods.accept.record import record_to_record

__all__ = ["Accept", "better", "record_to_record"]
