"""Benchmarks of the training runtime, with real processes; ``training`` runs all of them."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.registry import Figure, benchmark
from benchmarks.training.churn import churn
from benchmarks.training.grid import grid
from benchmarks.training.overhead import overhead
from benchmarks.training.stragglers import stragglers
from benchmarks.training.sync import sync


@benchmark("training", "all benchmarks of the training runtime, one after the other")
def training(smoke: bool) -> Iterable[Figure]:
    """Overhead, strategies, stragglers, coming and going, and a corner of the grid."""
    for part in (overhead, sync, stragglers, churn, grid):
        yield from part(smoke)
