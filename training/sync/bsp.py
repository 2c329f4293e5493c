"""Bulk-synchronous parallel (Valiant, "A bridging model for parallel computation", CACM 1990)."""

from __future__ import annotations

from collections.abc import Mapping

from coplace.training.sync.pace import Pace


class BulkSynchronous:
    """One update a round: the coordinator starts a round for all workers once the last one is applied."""

    grouped = True

    def may_start(self, worker: str, paces: Mapping[str, Pace]) -> bool:
        """Always: rounds keep the workers together."""
        return True
