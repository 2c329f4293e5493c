"""Jobs that compete for the same: alike in GPU type, tenant and GPUs of a worker, with the nodes they use."""

from __future__ import annotations

import math
import random

from coplace.solver.neighbourhoods.choosers.chooser import some_waiting
from coplace.solver.neighbourhoods.incumbent import Incumbent
from coplace.solver.neighbourhoods.neighbourhood import Neighbourhood, enclose

NOISE = 0.5
"""Most that chance adds to how unlike two jobs are, so that not always the same are chosen together."""


def related(incumbent: Incumbent, size: int, draw: random.Random) -> Neighbourhood | None:
    """A running job and those most like it, with the nodes they use now and those they came from (Shaw, CP 1998)."""
    placements, jobs = incumbent.state.placements, incumbent.instance.jobs
    running = [j for j, placement in enumerate(placements) if placement is not None and incumbent.free_to_change(j)]
    if not running:
        return None
    first = draw.choice(running)
    order = sorted((_unlike(incumbent, first, j) + NOISE * draw.random(), j) for j in running if j != first)
    nodes: dict[int, None] = {}
    for j in [first, *(j for _, j in order)]:
        placement, current = placements[j], jobs[j].current
        assert placement is not None
        wanted = dict.fromkeys(sorted(placement.nodes))
        if current is not None and j in incumbent.moved():
            wanted |= dict.fromkeys(incumbent.state.nodes.position[name] for name in current.nodes)
        if nodes and len(nodes | wanted) > size:
            continue
        nodes |= wanted
        if len(nodes) >= size:
            break
    chosen = list(nodes)
    return enclose(incumbent, chosen, some_waiting(incumbent, chosen, draw))


def _unlike(incumbent: Incumbent, first: int, second: int) -> float:
    a, b = incumbent.instance.jobs[first], incumbent.instance.jobs[second]
    here, there = incumbent.state.placements[first], incumbent.state.placements[second]
    assert here is not None
    assert there is not None
    other_type = here.shape.gpu_type != there.shape.gpu_type
    larger = abs(math.log2((1 + a.worker.gpu) / (1 + b.worker.gpu)))
    return 1.0 * other_type + 0.5 * (a.tenant != b.tenant) + 0.5 * larger
