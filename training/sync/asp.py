"""Asynchronous parallel (Dean et al., "Large scale distributed deep networks", NIPS 2012)."""

from __future__ import annotations

from collections.abc import Mapping

from coplace.training.sync.pace import Pace


class Asynchronous:
    """Nobody waits, and nothing bounds how old the parameters of a gradient are."""

    grouped = False

    def may_start(self, worker: str, paces: Mapping[str, Pace]) -> bool:
        """Always."""
        return True
