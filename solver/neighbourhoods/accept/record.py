"""Record-to-record travel: anything that is not far below the best."""

from __future__ import annotations

from coplace.solver.neighbourhoods.accept.contract import Accept


def record_to_record(deviation: float) -> Accept:
    """Accept what is at most the share *deviation* of the best below it (Dueck, J. Computational Physics 104, 1993)."""

    def accept(candidate: float, present: float, best: float) -> bool:
        return candidate >= best - deviation * abs(best)

    return accept
