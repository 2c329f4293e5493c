"""Family ``fragmented``: what is left of the nodes does not suit the workers."""

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
    worker_gpus=((1, 0.1), (2, 0.4), (4, 0.3), (8, 0.2)),
    max_workers={1: (4, 8), 2: (4, 8), 4: (4, 6), 8: (2, 4)},
    shared_nodes=0.7,
    odd_use=True,
)


def fragmented(nodes: int, jobs: int, rng: random.Random) -> tuple[list[Node], list[Job]]:
    """Others use an odd number of GPUs of 70 % of the nodes, while nine workers of ten need 2, 4 or 8 GPUs.

    Every such node then leaves at least one GPU that only a small worker can use.
    """
    return build(RECIPE, nodes, jobs, rng)
