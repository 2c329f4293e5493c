"""The ladder of pressure levels: whole-number capacities per level, and the level at which a node runs."""

from __future__ import annotations

import math
from bisect import bisect_left
from fractions import Fraction
from functools import lru_cache

from coplace.instances.cluster import Node
from coplace.instances.instance import Instance


def levels(instance: Instance) -> tuple[float, ...]:
    """τ of each level; a single 0 where pressure is not modelled."""
    return instance.pressure_levels or (0.0,)


def level_capacities(instance: Instance, node: Node) -> tuple[int, ...]:
    """cap[n, ℓ] = ⌊τ_ℓ · pressure_capacity⌋ in units of intensity; without a ladder one level without limit."""
    if not instance.pressure_levels:
        return (_UNLIMITED,)
    return tuple(_capacity(tau, node.pressure_capacity) for tau in instance.pressure_levels)


@lru_cache(maxsize=4096)
def _capacity(tau: float, pressure_capacity: int) -> int:
    """⌊τ · capacity⌋ of the decimal that was written, since 0.29 · 100 is 28.999… in binary."""
    return math.floor(Fraction(repr(tau)) * pressure_capacity)


def level_of(load: int, capacities: tuple[int, ...]) -> int:
    """The lowest level whose capacity holds *load*; ``len(capacities)`` if none does."""
    return bisect_left(capacities, load)


_UNLIMITED = 2**62
