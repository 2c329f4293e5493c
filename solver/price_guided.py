"""The price-guided rung: a bound from the prices of a relaxation, a plan made by them, and a search from there.

The prices that make a plan are not those that bound it. Packing wastes some of the pressure that nodes can bear, and at
prices that do not know it jobs want more of it than can be had; so a plan is made by those of a relaxation with less.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.relaxation import Prices, Relaxation, all_choices
from coplace.solver.kernel.warm_up import wait
from coplace.solver.search import Search

TIGHTEN = 0.85
"""Share of the pressure capacities that plans are made for."""

REPLAY_LOOKS = 200
"""Looks at the clock after which a replay ends, since its limits must not depend on the clock."""

THREADS = 2
"""Parts of a large cluster that are searched at the same time."""

RESERVE = 2.5
"""Time to keep for the end of the solve, as a multiple of what it took to take a plan from the board and check it."""


def price_guided(search: Search, share: float = 1.0) -> None:
    """Bound the objective and improve the plan, within *share* of the time that is left."""
    until = time.monotonic() + share * search.seconds_left()
    choices = all_choices(search.instance, search.scoring)
    relaxation = Relaxation(choices)
    if search.stopped() or not len(choices):
        _bound(search, relaxation, np.zeros(len(relaxation.rows)))
        return
    tight = relaxation.best_prices(tighten=TIGHTEN)
    guide = relaxation.bound(tight)
    if not search.stopped() and not wait(search.stopped):
        search.detail = "the search was still being compiled for this machine, which takes half a minute, once"
    if search.stopped():
        _bound(search, relaxation, tight, guide)
        search.cut_short()
        return
    from coplace.solver.kernel.build import game  # which needs numba, whose import takes a while
    from coplace.solver.kernel.search import KernelSearch

    player = KernelSearch(
        game(search.scoring, relaxation, tight, guide), search.seed, threads=1 if search.replay else THREADS
    )
    player.start(search.stopped)
    began = time.monotonic()
    search.offer(player.game.plan())
    reserve = RESERVE * (time.monotonic() - began)
    prices = relaxation.best_prices(warm=relaxation.priced(tight))
    _bound(search, relaxation, prices)
    if not search.proven():
        enough = np.inf if search.bound is None else search.bound - search.gap * max(search.bound, 1e-9)
        player.improve(_replayed(search) if search.replay else _timed(search, until - reserve), enough)
        search.offer(player.game.plan())
    if not search.proven():
        search.cut_short()


def _timed(search: Search, until: float) -> Callable[[], float]:
    """Share of the time from now to *until* that is left; none once somebody asks to stop."""
    began = time.monotonic()
    span = max(until - began, 1e-9)
    return lambda: 0.0 if search.interrupted() else (until - time.monotonic()) / span


def _replayed(search: Search) -> Callable[[], float]:
    looks = itertools.count()
    return lambda: 0.0 if search.interrupted() else 1 - next(looks) / REPLAY_LOOKS


def _bound(search: Search, relaxation: Relaxation, prices: NDArray[np.float64], found: Prices | None = None) -> None:
    found = found or relaxation.bound(prices)
    if not search.priced(relaxation.priced(prices), found.bound):
        search.distrust(f"{search.rung}: the bound {found.bound:.9g} of prices is below the objective of a plan")
