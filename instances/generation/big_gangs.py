"""Family ``big-gangs``: jobs that need many GPUs at once or nothing."""

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
    worker_gpus=((1, 0.1), (2, 0.3), (4, 0.4), (8, 0.2)),
    max_workers={1: (16,), 2: (16,), 4: (16,), 8: (8,)},
    gang_gpus=(16, 48),
    running=0.1,
)


def big_gangs(nodes: int, jobs: int, rng: random.Random) -> tuple[list[Node], list[Job]]:
    """The smallest gang of every job has 16 to 48 GPUs of one type (fewer in clusters that have no more)."""
    return build(RECIPE, nodes, jobs, rng)
