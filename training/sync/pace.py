"""What a strategy knows of the workers, and what it decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True)
class Pace:
    """How far a worker is.

    Attributes:
        clock: steps that it has finished, counted from the slowest worker's clock when it joined.
        finished_at: when it finished the last one, in seconds of the coordinator's clock.
        step_seconds: smoothed duration of its steps; 0 before the first.
    """

    clock: int = 0
    finished_at: float = 0.0
    step_seconds: float = 0.0


class Synchronisation(Protocol):
    """A strategy."""

    @property
    def grouped(self) -> bool:
        """Whether the gradients of all workers make one update, after which all start their next step."""
        ...

    def may_start(self, worker: str, paces: Mapping[str, Pace]) -> bool:
        """Whether *worker*, which has no step in flight, may start one; *paces* has all workers of the job."""
        ...


def slowest(paces: Mapping[str, Pace]) -> int:
    """The least clock of all workers."""
    return min((pace.clock for pace in paces.values()), default=0)
