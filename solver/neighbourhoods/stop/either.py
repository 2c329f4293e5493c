"""Several rules at once."""

from __future__ import annotations

from coplace.solver.neighbourhoods.stop.contract import Progress, Stop


def either(*rules: Stop) -> Stop:
    """Stop as soon as one of *rules* says so; they are asked in order."""

    def stop(progress: Progress) -> bool:
        return any(rule(progress) for rule in rules)

    return stop
