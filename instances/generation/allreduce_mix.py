"""Family ``allreduce-mix``: rings instead of parameter servers."""

from __future__ import annotations

import random

from coplace.instances.cluster import Node
from coplace.instances.generation.catalogue import ALLREDUCE_NETWORKS
from coplace.instances.generation.family import build
from coplace.instances.generation.recipe import Recipe, Shape
from coplace.instances.job import Job

SHAPES = (
    Shape(gpu_type="p100", gpus=4, cores=32, memory_gib=256, share=0.5),
    Shape(gpu_type="v100", gpus=8, cores=64, memory_gib=512, pressure_capacity=200, share=0.25),
    Shape(gpu_type="a100", gpus=8, cores=96, memory_gib=1024, pressure_capacity=400, share=0.25),
)
"""Three GPU types, on average six GPUs a node."""

RECIPE = Recipe(
    shapes=SHAPES,
    networks=ALLREDUCE_NETWORKS,
    worker_gpus=((1, 0.6), (2, 0.2), (4, 0.15), (8, 0.05)),
    max_workers={1: (8, 16), 2: (8, 12), 4: (4, 8), 8: (4, 8)},
)


def allreduce_mix(nodes: int, jobs: int, rng: random.Random) -> tuple[list[Node], list[Job]]:
    """All-reduce jobs on three GPU types: packing into one node pays, since the ring is faster inside a node.

    Workers have 1/2/4/8 GPUs at 60/20/15/5 %.
    """
    return build(RECIPE, nodes, jobs, rng)
