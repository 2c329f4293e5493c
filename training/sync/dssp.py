"""Staleness chosen from observed speeds (after Zhao et al., "Dynamic stale synchronous parallel distributed training
for deep learning", ICDCS 2019)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from coplace.training.sync.pace import Pace, slowest


class DynamicStaleness:
    """Between ``least`` and ``most`` steps, so that a worker that has to wait waits as short as it can.

    A worker more than ``least`` steps ahead would wait for the next step of the slowest to end. If it goes on for r
    more steps first, it waits for the first one to end after that. From the smoothed step times the smallest r with
    the shortest wait is foreseen, and the worker is granted r steps, but never gets more than ``most`` ahead. Each
    time the slowest has finished a step, the question is asked anew.
    """

    grouped = False

    def __init__(self, least: int = 1, most: int = 16) -> None:
        self.least = min(least, most)
        self.most = most
        self._granted: dict[str, tuple[int, int]] = {}  # the slowest clock when asked, the clock to which it may go on

    def may_start(self, worker: str, paces: Mapping[str, Pace]) -> bool:
        """Whether the slowest worker is near enough, or a grant of more steps lasts."""
        pace, behind = paces[worker], slowest(paces)
        if pace.clock - behind <= self.least:
            return True
        if pace.clock - behind > self.most:
            return False
        asked, until = self._granted.get(worker, (-1, 0))
        if asked != behind:
            slow = min(paces.values(), key=lambda each: (each.clock, each.finished_at))
            until = pace.clock + _steps_with_shortest_wait(pace, slow, self.most - (pace.clock - behind) + 1)
            self._granted[worker] = (behind, until)
        return pace.clock < until


def _steps_with_shortest_wait(fast: Pace, slow: Pace, most: int) -> int:
    if fast.step_seconds <= 0 or slow.step_seconds <= 0:
        return 0
    best, shortest = 0, math.inf
    for steps in range(most + 1):
        ends = fast.finished_at + steps * fast.step_seconds
        passed = max(1, math.ceil((ends - slow.finished_at) / slow.step_seconds - 1e-9))
        wait = slow.finished_at + passed * slow.step_seconds - ends
        if wait < shortest - 1e-9:
            best, shortest = steps, wait
    return best
