"""The price-guided rung: a bound from the prices of a relaxation, a plan made by them, and a search from there.

The prices that make a plan are not those that bound it. Packing wastes some of the pressure that nodes can bear, and at
prices that do not know it jobs want more of it than can be had; so a plan is made by those of a relaxation with less.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.relaxation import PricedRow, Prices, Relaxation, all_choices
from coplace.solver.kernel.warm_up import wait
from coplace.solver.memory import RoundMemory
from coplace.solver.relabel import relabel
from coplace.solver.search import Search

if TYPE_CHECKING:
    from coplace.solver.kernel.search import KernelSearch

Floats = NDArray[np.float64]

TIGHTEN = 0.85
"""Share of the pressure capacities that plans are made for."""

REPLAY_LOOKS = 200
"""Looks at the clock after which a replay ends, since its limits must not depend on the clock."""

GUIDING_SHARE = 0.5
"""Share of the time that is left for the prices that guide the first plan, at most."""

MUCH_GOES_ON = 0.7
"""Share of the bound from which on what runs already is taken for the first plan as it is: moving it costs restarts."""

STALE = 1.02
"""How far the bound of guiding prices may lie above the best bound before they are found anew in the next round."""

SECONDS_PER_JOB = 1e-3
"""Time that making the columns of a job takes at most: with less time left the rung does not begin."""

WARM_SHARE = 0.7
"""Share of the time that is kept for a better bound and plan, when those of an earlier round are nearly good enough."""

THREADS = 2
"""Parts of a large cluster that are searched at the same time."""

RESERVE = 6
"""Time to keep for the end of the solve, as a multiple of what it took to take a plan from the board and check it."""


def price_guided(search: Search, share: float = 1.0) -> bool:
    """Bound the objective and improve the plan, within *share* of the time that is left.

    What an earlier round has left saves the linear programs, or most of them, and the plan starts from what runs.

    Returns:
        Whether there was time for it.
    """
    if search.seconds_left() < SECONDS_PER_JOB * len(search.instance.jobs):
        search.cut_short()
        return False
    until = time.monotonic() + share * search.seconds_left()
    relaxation = Relaxation(all_choices(search.instance, search.scoring))
    memory = search.memory or RoundMemory()
    guiding = relaxation.prices_at(memory.guiding)
    if not memory.guiding:
        enough = time.monotonic() + GUIDING_SHARE * (until - time.monotonic())
        late = lambda: search.interrupted() or time.monotonic() > enough  # noqa: E731
        guiding = relaxation.best_prices(
            tighten=TIGHTEN, rough=True, stopped=search.interrupted if search.replay else late
        )
    ready = wait(lambda: search.stopped() or time.monotonic() > until)
    if not ready or search.stopped():
        if not ready:
            search.detail = "the search is not compiled for this machine; python -m coplace.solver.kernel does it, once"
        _bound(search, relaxation, guiding)
        search.cut_short()
        return False
    guide = relaxation.bound(guiding)
    player = _player(search, relaxation, guiding, guide)
    going_on = search.standing >= MUCH_GOES_ON * guide.bound
    player.start(search.stopped, keep_all=going_on)
    began = time.monotonic()
    search.offer(player.game.plan())
    until -= RESERVE * (time.monotonic() - began)
    _bound(search, relaxation, guiding, guide)  # without pressure it is nearly the best one
    if memory.bounding:
        _bound(search, relaxation, relaxation.prices_at(memory.bounding))
        if not search.proven():
            player.improve(_timed(search, until - WARM_SHARE * (until - time.monotonic())), _enough(search))
            search.offer(player.game.plan())
    if not search.proven():
        _find_bound(search, relaxation, player, memory.bounding or relaxation.priced(guiding), until)
    if not search.proven():
        player.improve(_looks(search) if search.replay else _timed(search, until), _enough(search))
        search.offer(player.game.plan())
        if search.report is not None and search.report.moved and not search.stopped():
            search.offer(relabel(search.scoring, search.plan))
    if not search.proven() and (search.interrupted() or time.monotonic() > until):
        search.cut_short()
    fresh = guide.bound <= STALE * (search.bound or np.inf)
    memory.guiding, memory.bounding = relaxation.priced(guiding) if fresh else (), search.prices or ()
    return True


def _find_bound(
    search: Search, relaxation: Relaxation, player: KernelSearch, warm: Iterable[PricedRow], until: float
) -> None:
    """Prices with the least bound, and meanwhile a better plan."""

    def prices() -> Floats:
        return relaxation.best_prices(warm=warm, stopped=lambda: search.interrupted() or time.monotonic() > until)

    if search.replay:
        _bound(search, relaxation, prices())
        return
    # the linear program leaves a core, and Python, alone for most of the time
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(prices)
        player.improve(_while(search, until, found), np.inf, threads=1)
        _bound(search, relaxation, found.result())


def _player(search: Search, relaxation: Relaxation, prices: Floats, guide: Prices) -> KernelSearch:
    from coplace.solver.kernel.build import game  # which needs numba, whose import takes a while
    from coplace.solver.kernel.search import KernelSearch

    board = game(search.scoring, relaxation, prices, guide)
    return KernelSearch(board, search.seed, threads=1 if search.replay else THREADS)


def _enough(search: Search) -> float:
    """The objective at which the gap asked for is proven."""
    return np.inf if search.bound is None else search.bound - search.gap * max(search.bound, 1e-9)


def _timed(search: Search, until: float) -> Callable[[], float]:
    """Share of the time from now to *until* that is left; none once somebody asks to stop."""
    began = time.monotonic()
    span = max(until - began, 1e-9)
    return lambda: 0.0 if search.interrupted() else (until - time.monotonic()) / span


def _while(search: Search, until: float, found: Future[Floats]) -> Callable[[], float]:
    """Half of the time while something is not found."""
    return lambda: 0.0 if found.done() or search.interrupted() or time.monotonic() > until else 0.5


def _looks(search: Search) -> Callable[[], float]:
    looks = itertools.count()
    return lambda: 0.0 if search.interrupted() else 1 - next(looks) / REPLAY_LOOKS


def _bound(search: Search, relaxation: Relaxation, prices: Floats, known: Prices | None = None) -> None:
    bound = (known or relaxation.bound(prices)).bound
    if not search.priced(relaxation.priced(prices), bound):
        search.distrust(f"{search.rung}: the bound {bound:.9g} of prices is below the objective of a plan")
