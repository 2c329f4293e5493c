"""Family ``ps-mix``: the usual day of a parameter-server cluster."""

from __future__ import annotations

import random

from coplace.instances.cluster import Node
from coplace.instances.generation.catalogue import PS_NETWORKS
from coplace.instances.generation.family import build
from coplace.instances.generation.recipe import Recipe, Shape
from coplace.instances.job import Job

SHAPES = (
    Shape(gpu_type="p100", gpus=4, cores=32, memory_gib=256, share=0.5),
    Shape(gpu_type="v100", gpus=8, cores=64, memory_gib=512, pressure_capacity=200, share=0.25),
    Shape(gpu_type="k80", gpus=8, cores=48, memory_gib=384, pressure_capacity=200, share=0.25),
)
"""Three GPU types, on average six GPUs a node: 64 nodes have 384 GPUs, 2,000 nodes 12,000."""

RECIPE = Recipe(
    shapes=SHAPES,
    networks=PS_NETWORKS,
    worker_gpus=((1, 0.5), (2, 0.2), (4, 0.2), (8, 0.1)),
    max_workers={1: (8, 12, 16), 2: (8, 12), 4: (4, 8), 8: (2, 4, 8)},
)


def ps_mix(nodes: int, jobs: int, rng: random.Random) -> tuple[list[Node], list[Job]]:
    """Parameter-server jobs, four of ten asynchronous, on three GPU types.

    Workers have 1/2/4/8 GPUs at 50/20/20/10 %; memory of servers follows from the size of the network; three jobs of
    ten run (as far as they fit) and others use part of 15 % of the nodes. With two jobs per node the requested counts
    come to about twice the GPUs of the cluster.
    """
    return build(RECIPE, nodes, jobs, rng)
