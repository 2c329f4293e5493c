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
    from coplace.solver.exact.rung import exact

    exact(search, "prices")


def _by_size(search: Search) -> None:
    pairs = len(search.instance.nodes) * len(search.instance.jobs)
    if pairs <= MOST_PAIRS_EXACT:
        _cpsat(search)
    elif pairs <= MOST_PAIRS_PRICES:
        _prices(search)


MOST_PAIRS_EXACT, MOST_PAIRS_PRICES = 20_000, 100_000
"""Nodes × jobs up to which ``auto`` uses the exact formulation, whose size grows with that product, and up to which it
uses prices, which hold all columns in memory at once."""

_KEEP = ("keep-current", _keep_current)
_GREEDY = ("greedy", _greedy)

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "auto",
            "greedy, then cpsat or prices as the size allows: the default",
            (_KEEP, _GREEDY, ("exact", _by_size)),
        ),
        Method(
            "cpsat", "the exact formulation in OR-Tools CP-SAT, to a proven gap", (_KEEP, _GREEDY, ("cpsat", _cpsat))
        ),
        Method("mip", "the exact formulation as a MIP, by HiGHS or --backend", (_KEEP, _GREEDY, ("mip", _mip))),
        Method(
            "prices", "a bound and a plan from the prices of a linear program", (_KEEP, _GREEDY, ("prices", _prices))
        ),
        Method("greedy", "grow the job with the largest gain per unit of its dominant resource", (_KEEP, _GREEDY)),
        Method("keep-current", "keep what runs, without the jobs that no longer fit", (_KEEP,)),
    )
}
"""All methods by name."""
