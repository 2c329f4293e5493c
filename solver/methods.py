"""The methods of :func:`coplace.solver.solve`: which rungs each of them climbs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coplace.formulations.keep import keep_current
from coplace.solver.greedy import greedy
from coplace.solver.search import Search
from coplace.solver.state import State

Rung = Callable[[Search], None]
"""One rung of the ladder: offers plans to the search until its end or the deadline."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method by name, what it is in a sentence, and its rungs in order."""

    name: str
    summary: str
    rungs: tuple[tuple[str, Rung], ...]


def _keep_current(search: Search) -> None:
    search.offer(keep_current(search.instance, search.scoring))


def _greedy(search: Search) -> None:
    state = State(search.scoring)
    finished = greedy(state, search.stopped)
    search.offer(state.plan())
    if not finished:
        search.cut_short()


def _cpsat(search: Search) -> None:
    from coplace.solver.exact.rung import exact

    exact(search, "cpsat")


def _mip(search: Search) -> None:
    from coplace.solver.exact.rung import exact

    exact(search, search.backend)


def _prices(search: Search) -> None:
    from coplace.solver.price_guided import price_guided

    price_guided(search)


def _classes(search: Search) -> None:
    from coplace.solver.exact.rung import exact

    exact(search, search.backend, by_class=True)


def _neighbourhoods(search: Search) -> None:
    from coplace.solver.neighbourhoods import improve

    improve(search)


def _first_prices(search: Search) -> None:
    from coplace.solver.price_guided import price_guided

    price_guided(search, SHARE_BEFORE_NEIGHBOURHOODS)


def _quick_greedy(search: Search) -> None:
    """Greedy where it is done in a moment: a floor for what follows."""
    if _pairs(search) <= MOST_PAIRS_GREEDY:
        _greedy(search)


def _start(search: Search) -> None:
    """The price-guided rung, with time left for the exact one where the instance is small enough for that.

    Where there is no time for it either, the greedy method does what it can.
    """
    from coplace.solver.price_guided import price_guided

    pairs = _pairs(search)
    if pairs <= MOST_PAIRS_TINY:
        return
    begun = price_guided(search, SHARE_OF_PRICES if pairs <= MOST_PAIRS_EXACT else 1.0)
    if not begun and pairs > MOST_PAIRS_GREEDY and not search.stopped():
        _greedy(search)


def _finish(search: Search) -> None:
    """The exact rung, where the instance is small enough for it."""
    if _pairs(search) <= MOST_PAIRS_EXACT:
        _cpsat(search)


def _pairs(search: Search) -> int:
    return len(search.instance.nodes) * len(search.instance.jobs)


MOST_PAIRS_TINY, MOST_PAIRS_EXACT, MOST_PAIRS_GREEDY = 400, 2_000, 20_000
"""Nodes × jobs up to which ``auto`` asks the exact formulation at once, up to which it asks it after prices, and up to
which the greedy method comes first. Where there are more, the time is spent better by the price-guided rung."""

SHARE_OF_PRICES = 0.5
"""Share of the time for the price-guided rung where an exact one follows."""

SHARE_BEFORE_NEIGHBOURHOODS = 0.4
"""The same before exact neighbourhoods."""

_KEEP = ("keep-current", _keep_current)
_GREEDY = ("greedy", _greedy)
_QUICK = ("greedy", _quick_greedy)

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "auto",
            "greedy, prices, and cpsat, as far as the size allows: the default",
            (_KEEP, _QUICK, ("prices", _start), ("cpsat", _finish)),
        ),
        Method(
            "cpsat", "the exact formulation in OR-Tools CP-SAT, to a proven gap", (_KEEP, _GREEDY, ("cpsat", _cpsat))
        ),
        Method("mip", "the exact formulation as a MIP, by HiGHS or --backend", (_KEEP, _GREEDY, ("mip", _mip))),
        Method(
            "prices",
            "a bound from the prices of a linear program, a plan made by them, ruin and recreate",
            (_KEEP, _QUICK, ("prices", _prices)),
        ),
        Method(
            "neighbourhoods",
            "prices, then parts of the plan solved again exactly, one after the other",
            (_KEEP, _QUICK, ("prices", _first_prices), ("neighbourhoods", _neighbourhoods)),
        ),
        Method(
            "classes",
            "a MIP over classes of equal nodes, which are then packed, by HiGHS or --backend",
            (_KEEP, _GREEDY, ("classes", _classes)),
        ),
        Method("greedy", "grow the job with the largest gain per unit of its dominant resource", (_KEEP, _GREEDY)),
        Method("keep-current", "keep what runs, without the jobs that no longer fit", (_KEEP,)),
    )
}
"""All methods by name."""
