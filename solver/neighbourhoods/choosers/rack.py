"""The nodes of one rack, or that carry the same value of a label that says where they are."""

from __future__ import annotations

import random
from collections import defaultdict

from coplace.solver.neighbourhoods.choosers.chooser import some_waiting
from coplace.solver.neighbourhoods.incumbent import Incumbent
from coplace.solver.neighbourhoods.neighbourhood import Neighbourhood, enclose

PLACES = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region", "zone", "rack")
"""Labels that say where a node is."""


def rack(incumbent: Incumbent, size: int, draw: random.Random) -> Neighbourhood | None:
    """At most *size* nodes of one place, all jobs on them and a few that wait; None if nothing says where nodes are."""
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for n in incumbent.usable.tolist():
        node = incumbent.instance.nodes[n]
        if node.rack is not None:
            places["", node.rack].append(n)
        for label in PLACES:
            if label in node.labels:
                places[label, node.labels[label]].append(n)
    if not places:
        return None
    there = places[draw.choice(sorted(places))]
    chosen = draw.sample(there, min(size, len(there)))
    return enclose(incumbent, chosen, some_waiting(incumbent, chosen, draw))
