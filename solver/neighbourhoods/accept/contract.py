"""What an acceptance rule is."""

from __future__ import annotations

from typing import Protocol


class Accept(Protocol):
    """Says whether to go on from a candidate."""

    def __call__(self, candidate: float, present: float, best: float) -> bool:
        """Whether to, by the objectives of the candidate, of the plan it came from, and of the best so far."""
        ...
