"""The time of the solve, or somebody's wish."""

from __future__ import annotations

from coplace.solver.neighbourhoods.stop.contract import Progress


def deadline(progress: Progress) -> bool:
    """Whether the time is over or somebody asked to stop; notes that the rounds were cut short."""
    if not progress.search.stopped():
        return False
    progress.search.cut_short()
    return True
