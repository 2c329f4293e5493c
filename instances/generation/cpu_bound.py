"""Family ``cpu-bound``: too few CPUs for the GPUs."""

from __future__ import annotations

import random

from coplace.instances.cluster import Node
from coplace.instances.generation.catalogue import CPU_SLOWDOWN, PS_NETWORKS
from coplace.instances.generation.family import build
from coplace.instances.generation.recipe import Recipe, Shape
from coplace.instances.job import Job

SHAPES = (
    Shape(gpu_type="p100", gpus=4, cores=14, memory_gib=192, share=0.5),
    Shape(gpu_type="v100", gpus=8, cores=28, memory_gib=384, pressure_capacity=200, share=0.5),
)
"""3.5 cores per GPU, of which servers take 3 or 4 each."""

RECIPE = Recipe(
    shapes=SHAPES,
    networks=tuple(network for network in PS_NETWORKS if CPU_SLOWDOWN[network.cpu][1] > 1),
    worker_gpus=((1, 0.6), (2, 0.25), (4, 0.15)),
    max_workers={1: (6, 8, 12), 2: (4, 6, 8), 4: (2, 4)},
    many_profiles=1.0,
    cpus_per_gpu=(3, 1, 2, 6),
)


def cpu_bound(nodes: int, jobs: int, rng: random.Random) -> tuple[list[Node], list[Job]]:
    """Vision networks whose workers choose between 1, 2, 3 and 6 CPUs per GPU on nodes with 3.5 cores per GPU.

    Slowdowns follow Synergy's curves, per GPU type: a worker with one CPU per V100 runs at a tenth to a third.
    """
    return build(RECIPE, nodes, jobs, rng)
