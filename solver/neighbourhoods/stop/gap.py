"""The gap asked for."""

from __future__ import annotations

from coplace.solver.neighbourhoods.stop.contract import Progress


def gap_reached(progress: Progress) -> bool:
    """Whether the best plan is proven to be within the gap asked for."""
    return progress.search.proven()
