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


_KEEP = ("keep-current", _keep_current)
_GREEDY = ("greedy", _greedy)

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("auto", "keep-current, then greedy: the best plan that the time allows", (_KEEP, _GREEDY)),
        Method("greedy", "grow the job with the largest gain per unit of its dominant resource", (_KEEP, _GREEDY)),
        Method("keep-current", "keep what runs, without the jobs that no longer fit", (_KEEP,)),
    )
}
"""All methods by name."""
