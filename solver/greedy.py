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

from coplace.solver.options import Lacking, Options, OptionTables
from coplace.solver.packing import Packer, Shortage
from coplace.solver.placement import Placement, Shape
from coplace.solver.state import State

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
        self.all_options: list[Options | None] = []
        self.left: list[Options | None] = []  # of these, what has not been found hopeless
        self.heap: list[tuple[float, int, int]] = []  # (−density, job, option)

    def run(self) -> bool:
        jobs = range(len(self.state.instance.jobs))
        for j in jobs:
            if self.stopped():
                return False
            pinned = self.state.instance.jobs[j].pinned and self.state.placements[j] is not None
            self.all_options.append(None if pinned else self.tables.options(j))
        self.left = list(self.all_options)
        if not self._climb(list(jobs)):
            return False
        # What did not fit while others were still to move may fit now.
        waiting = [j for j in jobs if self.state.placements[j] is None]
        for j in waiting:
            self.left[j] = self.all_options[j]
        return self._climb(waiting)

    def _climb(self, jobs: list[int]) -> bool:
        """Take steps, steepest first, until no job of *jobs* has any left."""
        for j in jobs:
            self._push(j)
        while self.heap:
            if self.stopped():
                return False
            _, j, option = heapq.heappop(self.heap)
            self._step(j, option)
        return True

    def _push(self, j: int) -> None:
        """Put the steepest rise of job *j* from where it stands on the heap."""
        options = self.left[j]
        if options is None:
            return
        gpus = self.state.gpu_room(j)
        options = self.left[j] = options.where(options.shape[:, 1] <= gpus[options.shape[:, 0]])
        if options is None:
            return
        value = self.state.values[j]
        step = options.steepest(value, self.tables.cost(j), LEAST_GAIN * max(1.0, value))
        if step is None:
            self.left[j] = None
        else:
            heapq.heappush(self.heap, (-step[0], j, step[1]))

    def _step(self, j: int, option: int) -> None:
        options = self.left[j]
        assert options is not None
        if not self._may_change(j):
            self.left[j] = None
            return
        lacking = self._try(j, Shape(*options.shape[option].tolist()))
        if lacking is not None:
            self.left[j] = options.where(~options.as_hopeless(option, lacking))
        self._push(j)

    def _may_change(self, j: int) -> bool:
        """Whether changing job *j* is no move or the budget allows one more."""
        kept = self.state.kept_placements[j]
        return kept is None or self.state.placements[j] is not kept or self.state.moves_left != 0

    def _try(self, j: int, shape: Shape) -> Lacking | None:
        """Put job *j* at *shape* where the objective gains most; otherwise change nothing and say what is lacking.

        Placements are tried from the highest pressure level downwards, so that the job can be packed tightly or out
        of the way of others.
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
            if best is not None:
                state.take(j)
            state.put(j, placement)
            gain = state.objective - before
            if best is None or gain > best[0]:
                best = (gain, placement)
            level = max(state.level[n] for n in placement.nodes) - 1
        gains = best is not None and best[0] > LEAST_GAIN * max(1.0, abs(before))
        final = best[1] if best is not None and gains else old
        if state.placements[j] is not final:
            if state.placements[j] is not None:
                state.take(j)
            if final is not None:
                state.put(j, final)
        if gains and old is not None and old is state.kept_placements[j] and state.moves_left is not None:
            state.moves_left -= 1
        return None if gains else lacking
