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
from coplace.solver.smallest import SmallestShapes
from coplace.solver.state import Effect, State

PATIENCE, LATER_PATIENCE = 5, 3
"""Failed steps in a row after which a job rests until the next climb; more cost time and gained little on ps-mix."""

_UNBUILT = -1
"""In place of an option: the options of the job are still to be built."""


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
        jobs = state.instance.jobs
        self.movable = [j for j, job in enumerate(jobs) if not (job.pinned and state.placements[j] is not None)]
        self.options: list[Options | None] = [None] * len(jobs)  # built when a job's turn comes for the first time
        self.left: list[NDArray[np.bool_]] = [np.zeros(0, dtype=bool)] * len(jobs)  # not found hopeless in this climb
        self.failures = [0] * len(jobs)
        self.patience = PATIENCE
        self.heap: list[tuple[float, int, int]] = []  # (−density, job, option)
        self.known = -1  # version of the state to which these shortages belong
        self.shortages: dict[tuple[object, ...], Shortage] = {}

    def run(self) -> bool:
        for j in self.movable:
            if self.stopped():
                return False
            self.heap.append((-self.tables.hope(j), j, _UNBUILT))
        heapq.heapify(self.heap)
        # What did not fit while others were still to move may fit afterwards; at last what still waits gets its chance.
        if not self._take_steps(PATIENCE) or not self._climb(self.movable, LATER_PATIENCE):
            return False
        if not self._climb(self._waiting(), PATIENCE):
            return False
        while started := self._start_smallest():
            if not self._climb(started, PATIENCE):
                return False
        return not self.stopped()

    def _waiting(self) -> list[int]:
        return [j for j in self.movable if self.state.placements[j] is None]

    def _climb(self, jobs: list[int], patience: int) -> bool:
        """Take steps of *jobs* until none has any left or each has failed *patience* times in a row."""
        for j in jobs:
            if self.stopped():
                return False
            self._prepare(j)
        return self._take_steps(patience)

    def _prepare(self, j: int) -> None:
        """Let job *j* start a climb: nothing is hopeless yet."""
        options, self.failures[j] = self.options[j], 0
        if options is not None:
            self.left[j] = np.ones(len(options), dtype=bool)
            self._push(j)

    def _take_steps(self, patience: int) -> bool:
        """Take steps, steepest first, until the heap is empty."""
        self.patience = patience
        while self.heap:
            if self.stopped():
                return False
            _, j, option = heapq.heappop(self.heap)
            if option == _UNBUILT:
                self.options[j] = self.tables.options(j)
                self._prepare(j)
            else:
                self._step(j, option)
        return True

    def _push(self, j: int) -> None:
        """Put the steepest rise of job *j* from where it stands on the heap, of those for which there may be room."""
        options, left = self.options[j], self.left[j]
        if options is None:
            return
        left &= options.within(self.state.gpu_room(j), self.state.room(j))
        step = options.steepest(left, self.state.values[j], self.tables.cost(j))
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

    def _start_smallest(self) -> list[int]:
        """Start waiting jobs in their smallest shapes, the cheapest that fits and gains; returns those started.

        A climb gives a job up after a few steps that failed, which may all have been too large for what is left.
        """
        smallest = SmallestShapes(self.state)
        started = []
        for j in self._waiting():
            if self.stopped():
                return []
            if self.state.scoring.weights[j] <= 0 or not self._may_change(j):
                continue
            for shape in sorted(smallest.of(j), key=lambda shape: self.tables.cost_of(j, shape)):
                if self._shortage(j, shape) is None and self._try(j, shape, self._ideal(j, shape)) is None:
                    started.append(j)
                    break
        return started

    def _shortage(self, j: int, shape: Shape) -> Shortage | None:
        """What there is no room for; remembered for jobs that ask for the same, as long as nothing changes."""
        state = self.state
        if self.known != state.version:
            self.known, self.shortages = state.version, {}
        job = state.instance.jobs[j]
        key = (id(state.nodes.selected(job)), job.tenant, shape, state.demands(j, shape), state.intensities(j))
        if key not in self.shortages:
            placement = self.packer.place(j, shape, len(state.scoring.levels) - 1)
            if not isinstance(placement, Shortage):
                return None
            self.shortages[key] = placement
        return self.shortages[key]

    def _ideal(self, j: int, shape: Shape) -> float:
        """Value of job *j* on one calm node."""
        return float(self.state.scoring.value(j, self.state.speed(j, shape, 1, 0), kept=False))

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
        old, before = state.take(j) if state.placements[j] is not None else (None, {})
        best: tuple[Effect, Placement] | None = None
        lacking: Lacking = "gain"
        level = len(state.scoring.levels) - 1
        while level >= 0:
            placement = self.packer.place(j, shape, level)
            if isinstance(placement, Shortage):
                lacking = lacking if best else placement
                break  # nor is there room at any lower level
            effect = state.effect(j, placement)
            if best is None or effect.gain > best[0].gain:
                best = (effect, placement)
            level = effect.level - 1 if effect.gain < ideal * (1 - 1e-9) else -1
        if best is not None and state.worth(best[0], before):
            state.put(j, best[1])
            if old is not None and old is state.kept_placements[j] and state.moves_left is not None:
                state.moves_left -= 1
            return None
        if old is not None:
            state.put(j, old)
        return lacking
