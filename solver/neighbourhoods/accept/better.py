"""Only better plans."""

from __future__ import annotations


def better(candidate: float, present: float, best: float) -> bool:
    """Whether the candidate is better than the plan it came from."""
    return candidate > present
