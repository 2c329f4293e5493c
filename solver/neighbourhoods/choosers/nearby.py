"""Nodes near each other: from a node to those that its jobs also use, and on."""

from __future__ import annotations

import random

from coplace.solver.neighbourhoods.choosers.chooser import some_waiting
from coplace.solver.neighbourhoods.incumbent import Incumbent
from coplace.solver.neighbourhoods.neighbourhood import Neighbourhood, enclose


def nearby(incumbent: Incumbent, size: int, draw: random.Random) -> Neighbourhood | None:
    """*size* nodes that share jobs; where no more do, another node at random; all jobs on them and a few that wait."""
    usable = incumbent.usable.tolist()
    if not usable:
        return None
    chosen: list[int] = []
    seen: set[int] = set()
    front: list[int] = []
    while len(chosen) < min(size, len(usable)):
        if not front:
            rest = [n for n in usable if n not in seen]
            if not rest:
                break
            front.append(draw.choice(rest))
            seen.add(front[0])
        n = front.pop(0)
        chosen.append(n)
        next_to = {
            other
            for j in sorted(incumbent.state.jobs_on[n])
            if (placement := incumbent.state.placements[j]) is not None
            for other in placement.nodes
        }
        fresh = sorted(next_to - seen)
        draw.shuffle(fresh)
        seen.update(fresh)
        front += fresh
    return enclose(incumbent, chosen, some_waiting(incumbent, chosen, draw))
