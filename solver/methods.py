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


def _cpsat_if_small(search: Search) -> None:
    if len(search.instance.nodes) * len(search.instance.jobs) <= MOST_PAIRS:
        _cpsat(search)


MOST_PAIRS = 20_000
"""Nodes × jobs up to which ``auto`` uses the exact formulation, whose size grows with that product."""

_KEEP = ("keep-current", _keep_current)
_GREEDY = ("greedy", _greedy)

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "auto",
            "greedy, then where the size allows cpsat: the best plan that the time allows, with its gap",
            (_KEEP, _GREEDY, ("cpsat", _cpsat_if_small)),
        ),
        Method(
            "cpsat", "the exact formulation in OR-Tools CP-SAT, from greedy's plan", (_KEEP, _GREEDY, ("cpsat", _cpsat))
        ),
        Method(
            "mip",
            "the exact formulation as a MIP (HiGHS, or --backend), from greedy's plan",
            (_KEEP, _GREEDY, ("mip", _mip)),
        ),
        Method("greedy", "grow the job with the largest gain per unit of its dominant resource", (_KEEP, _GREEDY)),
        Method("keep-current", "keep what runs, without the jobs that no longer fit", (_KEEP,)),
    )
}
"""All methods by name."""
