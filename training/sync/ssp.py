"""Stale-synchronous parallel (Ho et al., "More effective distributed ML via a stale synchronous parallel parameter
server", NIPS 2013)."""

from __future__ import annotations

from collections.abc import Mapping

from coplace.training.sync.pace import Pace, slowest


class StaleSynchronous:
    """The steps that any two workers are busy with are at most *staleness* apart.

    A worker that has finished c steps may start its next one if every other has finished at least c − staleness.
    The parameters that it then gets contain every update of the steps before c − staleness, of all workers.
    """

    grouped = False

    def __init__(self, staleness: int) -> None:
        self.staleness = staleness

    def may_start(self, worker: str, paces: Mapping[str, Pace]) -> bool:
        """Whether the slowest worker is near enough."""
        return paces[worker].clock - slowest(paces) <= self.staleness
