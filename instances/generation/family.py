"""A family of generated instances, and how one is built from its recipe."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from coplace.instances.cluster import Node
from coplace.instances.generation.clusters import make_nodes
from coplace.instances.generation.jobs import make_jobs
from coplace.instances.generation.recipe import Recipe
from coplace.instances.generation.running import start_jobs
from coplace.instances.job import Job

PRESSURE_LEVELS = (0.25, 0.5, 0.75, 1.0)
"""The ladder of generated instances with pressure."""


@dataclass(frozen=True, slots=True)
class Family:
    """A family of generated instances.

    Attributes:
        name: as :func:`~coplace.instances.generation.generate` takes it.
        description: one sentence.
        build: (nodes, jobs, source of randomness) → nodes and jobs, with pressure and running jobs.
    """

    name: str
    description: str
    build: Callable[[int, int, random.Random], tuple[list[Node], list[Job]]]


def build(recipe: Recipe, nodes: int, jobs: int, rng: random.Random) -> tuple[list[Node], list[Job]]:
    """Nodes and jobs by a recipe; running jobs keep capacity and the top pressure level."""
    cluster = make_nodes(recipe, nodes, rng)
    waiting = make_jobs(recipe, jobs, cluster, rng)
    return cluster, start_jobs(waiting, cluster, recipe.running, PRESSURE_LEVELS[-1], rng)
