"""A neighbourhood: the part of a plan that may change while the rest stays as it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from coplace.solver.neighbourhoods.incumbent import Incumbent


class Neighbourhood(NamedTuple):
    """Positions in the instance, ascending.

    Attributes:
        jobs: free to change; none of them has a task elsewhere.
        nodes: that they may use.
    """

    jobs: tuple[int, ...]
    nodes: tuple[int, ...]


def enclose(incumbent: Incumbent, nodes: Iterable[int], waiting: Iterable[int] = ()) -> Neighbourhood:
    """The jobs that run on *nodes* and nowhere else, and those of *waiting*; jobs that straddle the border stay.

    So do jobs that must be kept. Of *waiting*, jobs that run are left out.
    """
    inside = set(nodes)
    placements = incumbent.state.placements
    touched = {j for n in inside for j in incumbent.state.jobs_on[n]}
    jobs = set()
    for j in touched:
        placement = placements[j]
        if placement is not None and incumbent.free_to_change(j) and inside.issuperset(placement.nodes):
            jobs.add(j)
    jobs |= {j for j in waiting if placements[j] is None and incumbent.free_to_change(j)}
    return Neighbourhood(tuple(sorted(jobs)), tuple(sorted(inside)))


def whole(incumbent: Incumbent) -> Neighbourhood:
    """Everything that is not pinned."""
    return enclose(incumbent, range(len(incumbent.instance.nodes)), incumbent.waiting())
