"""Family ``saturated``: most jobs must wait."""

from __future__ import annotations

import random

from coplace.instances.cluster import Node
from coplace.instances.generation.catalogue import PS_NETWORKS
from coplace.instances.generation.family import build
from coplace.instances.generation.ps_mix import SHAPES
from coplace.instances.generation.recipe import Recipe
from coplace.instances.job import Job

RECIPE = Recipe(
    shapes=SHAPES,
    networks=PS_NETWORKS,
    worker_gpus=((1, 0.5), (2, 0.2), (4, 0.2), (8, 0.1)),
    max_workers={1: (8, 12, 16), 2: (8, 12), 4: (4, 8), 8: (2, 4, 8)},
    demand=3.0,
)


def saturated(nodes: int, jobs: int, rng: random.Random) -> tuple[list[Node], list[Job]]:
    """The smallest gangs of all jobs together need three times the GPUs of the cluster.

    Smallest counts are scaled to that; with more than about seven jobs per node they are all 1 and need even more.
    """
    return build(RECIPE, nodes, jobs, rng)
