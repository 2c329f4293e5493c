"""Rounds without a better plan."""

from __future__ import annotations

from coplace.solver.neighbourhoods.stop.contract import Progress, Stop


def stalled(rounds: int) -> Stop:
    """Stop after so many rounds without a better plan."""

    def stop(progress: Progress) -> bool:
        return progress.idle >= rounds

    return stop
