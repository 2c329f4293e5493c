"""Running the compiled search: a first plan from the prices, then ruin and recreate for as long as there is time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from coplace.solver.kernel.board import GPU, INTENSITY, MOST_CHANGED, NONE, Bools, Ints, Scratch, scratch
from coplace.solver.kernel.build import Game
from coplace.solver.kernel.insertion import construct
from coplace.solver.kernel.moves import put_kept
from coplace.solver.kernel.parts import Part, divide, unite
from coplace.solver.kernel.ruin import improve

TRIES, MORE_TRIES = 20, 40
"""Options of a job to look at when the first plan is made; when what is left over is given away."""

LARGE_PIECES = 0.5
"""By how much each GPU that must sit on one node moves a job towards the head of the queue."""

AROUND, MOST_JOBS, IMPROVING_TRIES = 16, 8, 8
"""See :func:`~coplace.solver.kernel.ruin.improve`."""

NODES_PER_DRAW, MOST_DRAWS = 32, 64
"""Of how many nodes one is drawn to find the most wasteful of those that are drawn; most of these."""

BATCH, BATCHES_PER_VISIT, SOME_JOBS = 200, 10, 100
"""Attempts between two looks at the clock; such batches before the board is divided anew; jobs that are inserted
between two looks."""

NODES_PER_PART = 1_000
"""Nodes of a part, about: more take longer to look through, fewer leave less to choose from."""

HEAT = 0.01
"""Mean loss that is accepted at first, as a share of the mean value of a running job; none in the second half."""

PATIENCE, LEAST_GAIN = 20, 1e-7
"""Visits without a gain (of such a share of the objective) after which the search gives up; half as many as there were
before are added."""

STALLED = 3e-4
"""Gain of a visit to all parts, as a share of the objective, below which losses begin to be accepted."""


class KernelSearch:
    """A plan under way on the board of *game*.

    Attributes:
        game: the board and what it stands for.
    """

    def __init__(self, game: Game, seed: int, *, threads: int = 1) -> None:
        """With as many *threads* as there are parts for at most."""
        self.game = game
        self._board = board = game.board
        nodes = int(np.count_nonzero(board.type >= 0))
        self._parts_wanted = max(1, nodes // NODES_PER_PART)
        self._threads = min(threads, self._parts_wanted)
        self._divided = 0
        self._seeds = np.random.SeedSequence(seed)
        self._scratches = [scratch(board) for _ in range(self._threads)]

    @property
    def objective(self) -> float:
        """The sum of the values of the options; the objective of the plan is never below it."""
        return float(self._board.value.sum())

    def start(self, stopped: Callable[[], bool] = lambda: False, *, keep_all: bool = False) -> None:
        """Make a first plan: jobs that had best go on do, the others are inserted by falling worth for a GPU.

        Args:
            stopped: asked now and then.
            keep_all: let everything go on that runs, whether or not it is worth its price.
        """
        self._keep(np.flatnonzero(self._stays(keep_all)))

        def insert(part: Part, rng: np.random.Generator, room: Scratch) -> None:
            for tries, by_price in ((TRIES, True), (MORE_TRIES, False)):
                jobs = self._queue(part.jobs)
                for first in range(0, len(jobs), SOME_JOBS):
                    if not stopped():
                        some = jobs[first : first + SOME_JOBS]
                        construct(part.board, room, rng, some, part.nodes, len(part.nodes), tries, by_price)

        self._on_parts(insert)

    def improve(self, left: Callable[[], float], enough: float, *, threads: int | None = None) -> None:
        """Ruin and recreate; once it gains little, losses are accepted, ever less of them (simulated annealing).

        Args:
            left: share of the time that is left, 1 to 0; at 0 it is over.
            enough: objective at which to stop.
            threads: most at a time; by default all.
        """
        running = max(1, int(np.count_nonzero(self._board.option != NONE)))
        before = best = self.objective
        visits = last = 0
        stalled = cold = False
        while (share := left()) > 0 and before < enough:
            if visits - last >= PATIENCE + visits // 2:
                if cold or best == before:
                    break
                cold, last = True, visits  # what heat has lost is to be won back
            heat = HEAT * before / running * max(0.0, 2 * share - 1) if stalled and not cold else 0.0

            def visit(part: Part, rng: np.random.Generator, room: Scratch, heat: float = heat) -> None:
                menu = part.jobs[self._promising(part.jobs)]
                draws = min(MOST_DRAWS, 1 + len(part.nodes) // NODES_PER_DRAW)
                for _ in range(BATCHES_PER_VISIT):
                    if left() <= 0:
                        return
                    improve(
                        part.board, room, rng, menu, part.nodes, AROUND, BATCH, MOST_JOBS, IMPROVING_TRIES, draws, heat
                    )

            self._on_parts(visit, threads)
            after = self.objective
            stalled = after - before < STALLED * after
            visits += 1
            if after > best * (1 + LEAST_GAIN):
                best, last = after, visits
            before = after

    def _on_parts(self, work: Callable[[Part, np.random.Generator, Scratch], None], threads: int | None = None) -> None:
        """Divide the board, let *work* be done on every part, and unite it again."""
        threads = min(threads or self._threads, self._threads)
        parts = divide(self._board, self._parts_wanted, self._divided % 2 / 2)
        self._divided += 1
        rngs = [np.random.default_rng(seed) for seed in self._seeds.spawn(len(parts))]
        busy = [(part, rng) for part, rng in zip(parts, rngs, strict=True) if len(part.nodes) and len(part.jobs)]

        def share(thread: int) -> None:
            for part, rng in busy[thread::threads]:
                work(part, rng, self._scratches[thread])

        if threads == 1:
            share(0)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(share, range(threads)))
        unite(self._board, parts)

    def _promising(self, jobs: Ints) -> Bools:
        """Whether something is worth more than its price to a job, by [job]."""
        board = self._board
        worth = board.kept_worth[jobs].max(axis=1, initial=-np.inf)
        some = np.flatnonzero(np.diff(board.option_start)[jobs])
        worth[some] = np.maximum(worth[some], board.option_worth[board.option_start[jobs[some]]])
        return np.asarray(worth > 0)

    def _stays(self, keep_all: bool) -> Bools:
        """Jobs that go on: fixed ones, those to which nothing is worth more, and those for which no move is left."""
        board = self._board
        can = np.diff(board.kept_start) > 0
        if keep_all:
            return np.asarray(can)
        best = np.zeros(len(can))
        some = np.flatnonzero(np.diff(board.option_start))
        best[some] = np.maximum(board.option_worth[board.option_start[some]], 0.0)
        gain = best - board.kept_worth.max(axis=1, initial=-np.inf)
        stays = can & (board.fixed | (gain <= 0))
        budget = int(board.counters[MOST_CHANGED])
        wishes = np.flatnonzero(can & ~stays & board.counts)
        if budget < len(wishes):
            stays[wishes[np.argsort(-gain[wishes], kind="stable")[budget:]]] = True
        return np.asarray(stays)

    def _keep(self, jobs: Ints) -> None:
        """Let *jobs* go on at the levels that follow when they all do."""
        board = self._board
        load = np.zeros(len(board.load), dtype=np.int64)
        of_job = np.repeat(np.arange(len(board.option)), np.diff(board.kept_start))
        mine = np.isin(of_job, jobs)
        on, at = of_job[mine], board.kept_node[mine]
        more = board.kept_workers[mine] * board.kept_worker[on, INTENSITY]
        more += board.kept_servers[mine] * board.kept_server[on, INTENSITY]
        np.add.at(load, at, more)
        level = (load[:, None] > board.capacity).sum(axis=1)
        felt = np.zeros(len(board.option), dtype=np.int64)
        np.maximum.at(felt, on, level[at])
        for j in jobs.tolist():
            put_kept(board, j, int(felt[j]))

    def _queue(self, jobs: Ints) -> Ints:
        """Those of *jobs* that run nothing, by falling worth for a GPU; those with large pieces earlier."""
        board = self._board
        choosing = (np.diff(board.option_start) > 0) | (np.diff(board.kept_start) > 0)
        jobs = jobs[(board.option[jobs] == NONE) & choosing[jobs]]
        worth, gpus, piece = np.zeros(len(jobs)), np.ones(len(jobs)), np.zeros(len(jobs))
        has = np.flatnonzero(board.option_start[jobs + 1] > board.option_start[jobs])
        o = board.option_start[jobs[has]]
        w, tasks = board.option_workers[o], board.option_workers[o] + board.option_servers[o]
        each = np.where(board.option_span[o] < tasks, -(-w // board.option_span[o]), 1) * board.worker[o, GPU]
        worth[has], gpus[has], piece[has] = board.option_worth[o], np.maximum(w * board.worker[o, GPU], 1), each
        worth = np.maximum(worth, board.kept_worth[jobs].max(axis=1, initial=-np.inf))
        return jobs[np.argsort(-(worth / gpus) * (1 + LARGE_PIECES * piece), kind="stable")]
