"""Clusters for generated instances."""

from __future__ import annotations

import math
import random

from coplace.instances.cluster import Node, Resources
from coplace.instances.generation.drawing import apportion
from coplace.instances.generation.recipe import Recipe, Shape

NODES_PER_RACK = 16


def make_nodes(recipe: Recipe, count: int, rng: random.Random) -> list[Node]:
    """*count* nodes of the recipe's shapes, some of them partly used by others; grouped by shape."""
    shared = set(rng.sample(range(count), min(count, math.ceil(recipe.shared_nodes * count))))
    nodes: list[Node] = []
    for shape, part in zip(recipe.shapes, apportion([s.share for s in recipe.shapes], count), strict=True):
        for number in range(part):
            index = len(nodes)
            nodes.append(
                Node(
                    name=f"{shape.gpu_type}-{number:04}",
                    gpu_type=shape.gpu_type,
                    gpu=shape.gpus,
                    cpu=shape.cores * 1000,
                    memory=shape.memory_gib * 1024,
                    pressure_capacity=shape.pressure_capacity,
                    rack=f"rack-{index // NODES_PER_RACK:03}",
                    used=_use(shape, recipe.odd_use, rng) if index in shared else Resources(),
                )
            )
    return nodes


def _use(shape: Shape, odd: bool, rng: random.Random) -> Resources:
    """What others use of a node: 1 to half of its GPUs (odd: 1, 3 … below all), CPU and memory in proportion."""
    choices = range(1, shape.gpus, 2) if odd else range(1, shape.gpus // 2 + 1)
    gpus = rng.choice(choices)
    part = gpus / shape.gpus
    cores = max(1, round(shape.cores * part * rng.uniform(0.6, 1.0)))
    gib = max(1, round(shape.memory_gib * part * rng.uniform(0.5, 1.0)))
    return Resources(gpu=gpus, cpu=cores * 1000, memory=gib * 1024)
