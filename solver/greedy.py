"""Greedy by marginal gain: the job that gains most per unit of its dominant resource grows next.

Optimus (Peng et al., EuroSys 2018, section 4.1) adds one worker or one server at a time. Here a step goes to any
configuration of the job, the one with the steepest rise in value, so that a job is not stuck where the next single
task gains nothing (the usual greedy for multiple-choice knapsacks: Kellerer, Pferschy, Pisinger, Knapsack Problems,
2004, section 11.2). Every step is placed on nodes at once and undone if the objective, losses of the neighbours and
restarts included, does not gain.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from coplace.solver.options import Lacking, Options, OptionTables
from coplace.solver.packing import Packer, Shortage
from coplace.solver.placement import Placement, Shape
from coplace.solver.state import State

PATIENCE, LATER_PATIENCE = 5, 3
"""Failed steps in a row after which a job rests until the next climb; more cost time and gained little on ps-mix."""

LEAST_GAIN = 1e-12
"""Relative gain below which a step counts as none."""


def greedy(state: State, stopped: Callable[[], bool] = lambda: False) -> bool:
    """Improve *state*, in place, from what it runs; returns whether it came to its end before *stopped* said so.

    Pinned jobs stay; other running jobs change only where the objective gains and the move budget lasts.
    """
    return _Greedy(state, stopped).run()


class _Greedy:
    def __init__(self, state: State, stopped: Callable[[], bool]) -> None:
        self.state = state
        self.stopped = stopped
        self.packer = Packer(state)
        self.tables = OptionTables(state)
        self.options: list[Options | None] = []
        self.left: list[NDArray[np.bool_]] = []  # which of these have not been found hopeless in this climb
        self.failures = [0] * len(state.instance.jobs)
        self.patience = PATIENCE
        self.heap: list[tuple[float, int, int]] = []  # (−density, job, option)

    def run(self) -> bool:
        jobs = range(len(self.state.instance.jobs))
        for j in jobs:
            if self.stopped():
                return False
            pinned = self.state.instance.jobs[j].pinned and self.state.placements[j] is not None
            self.options.append(None if pinned else self.tables.options(j))
        self.left = [np.zeros(0, dtype=bool)] * len(self.options)
        # What did not fit while others were still to move may fit afterwards; at last what still waits gets its chance.
        if not self._climb(list(jobs), PATIENCE) or not self._climb(list(jobs), LATER_PATIENCE):
            return False
        return self._climb([j for j in jobs if self.state.placements[j] is None], PATIENCE)

    def _climb(self, jobs: list[int], patience: int) -> bool:
        """Take steps, steepest first, until no job has any left or each has failed *patience* times in a row."""
        self.patience = patience
        for j in jobs:
            options, self.failures[j] = self.options[j], 0
            if options is not None:
                self.left[j] = np.ones(len(options), dtype=bool)
                self._push(j)
        while self.heap:
            if self.stopped():
                return False
            _, j, option = heapq.heappop(self.heap)
            self._step(j, option)
        return True

    def _push(self, j: int) -> None:
        """Put the steepest rise of job *j* from where it stands on the heap."""
        options, left = self.options[j], self.left[j]
        if options is None:
            return
        left &= options.workers <= self.state.gpu_room(j)[options.gpu_type]
        value = self.state.values[j]
        step = options.steepest(left, value, self.tables.cost(j), LEAST_GAIN * max(1.0, value))
        if step is not None:
            heapq.heappush(self.heap, (-step[0], j, step[1]))

    def _step(self, j: int, option: int) -> None:
        options = self.options[j]
        assert options is not None
        if not self._may_change(j):
            return
        lacking = self._try(j, options.shape(option), float(options.value[option]))
        self.failures[j] = self.failures[j] + 1 if lacking else 0
        if self.failures[j] >= self.patience:
            return
        if lacking:
            self.left[j] &= ~options.as_hopeless(option, lacking)
        self._push(j)

    def _may_change(self, j: int) -> bool:
        """Whether changing job *j* is no move or the budget allows one more."""
        kept = self.state.kept_placements[j]
        return kept is None or self.state.placements[j] is not kept or self.state.moves_left != 0

    def _try(self, j: int, shape: Shape, ideal: float) -> Lacking | None:
        """Put job *j* at *shape* where the objective gains most; otherwise change nothing and say what is lacking.

        Placements are tried from the highest pressure level downwards, so that the job can be packed tightly or out
        of the way of others, until one is worth as much as *ideal*, the job's value on calm nodes.
        """
        state = self.state
        before = state.objective
        old = state.take(j) if state.placements[j] is not None else None
        best: tuple[float, Placement] | None = None
        lacking: Lacking = "gain"
        level = len(state.scoring.levels) - 1
        while level >= 0:
            placement = self.packer.place(j, shape, level)
            if isinstance(placement, Shortage):
                lacking = lacking if best else placement
                break  # nor is there room at any lower level
            gain, felt = state.gain(j, placement)
            if best is None or gain > best[0]:
                best = (gain, placement)
            level = felt - 1 if gain < ideal * (1 - 1e-9) else -1
        gained = state.objective + best[0] - before if best else 0.0
        if best is not None and gained > LEAST_GAIN * max(1.0, abs(before)):
            state.put(j, best[1])
            if old is not None and old is state.kept_placements[j] and state.moves_left is not None:
                state.moves_left -= 1
            return None
        if old is not None:
            state.put(j, old)
        return lacking
