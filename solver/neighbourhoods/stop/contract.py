"""What a stopping rule is, and what it sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from coplace.solver.search import Search


@dataclass(slots=True)
class Progress:
    """How far the rounds are.

    Attributes:
        search: the search that they improve.
        rounds: finished.
        idle: finished since the best plan was found.
    """

    search: Search
    rounds: int = 0
    idle: int = 0


class Stop(Protocol):
    """Says whether to stop; asked before every round."""

    def __call__(self, progress: Progress) -> bool:
        """Whether to stop here."""
        ...
