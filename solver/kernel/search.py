"""Running the compiled search: a first plan from the prices, then ruin and recreate for as long as there is time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coplace.solver.kernel.board import GPU, INTENSITY, MOST_CHANGED, NONE, UNLIMITED, Bools, Ints, scratch
from coplace.solver.kernel.build import Game
from coplace.solver.kernel.insertion import construct
from coplace.solver.kernel.moves import put_kept
from coplace.solver.kernel.ruin import improve

TRIES, MORE_TRIES = 20, 40
"""Options of a job to look at when the first plan is made; when what is left over is given away."""

LARGE_PIECES = 0.5
"""By how much each GPU that must sit on one node moves a job towards the head of the queue."""

AROUND, MOST_JOBS, IMPROVING_TRIES = 16, 8, 8
"""See :func:`~coplace.solver.kernel.ruin.improve`."""

NODES_PER_DRAW, MOST_DRAWS = 32, 64
"""Of how many nodes one is drawn to find the most wasteful of those that are drawn; most of these."""

BATCH = 200
"""Attempts between two looks at the clock."""


class KernelSearch:
    """A plan under way on the board of *game*.

    Attributes:
        game: the board and what it stands for.
        objective: sum of the values of the options; the objective of the plan is never below it.
    """

    def __init__(self, game: Game, seed: int) -> None:
        self.game = game
        self._board = game.board
        self._scratch = scratch(game.board)
        self._rng = np.random.default_rng(seed)
        self._nodes = np.flatnonzero(self._board.type >= 0)

    @property
    def objective(self) -> float:
        """The sum of the values."""
        return float(self._board.value.sum())

    def start(self, keep_all: bool = False) -> None:
        """Make a first plan: jobs that had best go on do, the others are inserted by falling worth for a GPU.

        Args:
            keep_all: let everything go on that runs, whether or not it is worth its price.
        """
        board = self._board
        stays = self._stays(keep_all)
        self._keep(np.flatnonzero(stays))
        for tries, by_price in ((TRIES, True), (MORE_TRIES, False)):
            self._insert(self._queue(), tries, by_price)
        assert board.counters[1] <= board.counters[MOST_CHANGED], "more jobs are moved than the budget allows"

    def improve(self, stopped: Callable[[], bool], enough: float, most_batches: int | None = None) -> None:
        """Ruin and recreate until *stopped*, or the objective is *enough*, or so many batches have been tried."""
        board = self._board
        menu = self._promising()
        if not len(self._nodes) or not len(menu):
            return
        draws = min(MOST_DRAWS, 1 + len(self._nodes) // NODES_PER_DRAW)
        batches = 0
        while not stopped() and self.objective < enough and batches != most_batches:
            improve(
                board, self._scratch, self._rng, menu, self._nodes, AROUND, BATCH, MOST_JOBS, IMPROVING_TRIES, draws
            )
            batches += 1

    def _promising(self) -> Ints:
        """Jobs to which something is worth more than its price."""
        board = self._board
        worth = board.kept_worth.max(axis=1, initial=-np.inf)
        some = np.flatnonzero(np.diff(board.option_start))
        worth[some] = np.maximum(worth[some], board.option_worth[board.option_start[some]])
        return np.flatnonzero(worth > 0)

    def _insert(self, jobs: Ints, tries: int, by_price: bool) -> None:
        if len(jobs) and len(self._nodes):
            construct(self._board, self._scratch, self._rng, jobs, self._nodes, len(self._nodes), tries, by_price)

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
        if budget < UNLIMITED and len(wishes) > budget:
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

    def _queue(self) -> Ints:
        """Jobs that run nothing, by falling worth for a GPU; those with large pieces earlier."""
        board = self._board
        jobs = np.flatnonzero(
            (board.option == NONE) & ((np.diff(board.option_start) > 0) | (np.diff(board.kept_start) > 0))
        )
        worth, gpus, piece = np.zeros(len(jobs)), np.ones(len(jobs)), np.zeros(len(jobs))
        has = np.flatnonzero(board.option_start[jobs + 1] > board.option_start[jobs])
        o = board.option_start[jobs[has]]
        w, tasks = board.option_workers[o], board.option_workers[o] + board.option_servers[o]
        each = np.where(board.option_span[o] < tasks, -(-w // board.option_span[o]), 1) * board.worker[o, GPU]
        worth[has], gpus[has], piece[has] = board.option_worth[o], np.maximum(w * board.worker[o, GPU], 1), each
        worth = np.maximum(worth, board.kept_worth[jobs].max(axis=1, initial=-np.inf))
        return jobs[np.argsort(-(worth / gpus) * (1 + LARGE_PIECES * piece), kind="stable")]
