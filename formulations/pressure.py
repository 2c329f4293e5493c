"""The ladder of pressure levels: whole-number capacities per level, and the level at which a node runs."""

from __future__ import annotations

import math
from bisect import bisect_left

from coplace.instances.cluster import Node
from coplace.instances.instance import Instance


def levels(instance: Instance) -> tuple[float, ...]:
    """τ of each level; a single 0 where pressure is not modelled."""
    return instance.pressure_levels or (0.0,)


def level_capacities(instance: Instance, node: Node) -> tuple[int, ...]:
    """cap[n, ℓ] = ⌊τ_ℓ · pressure_capacity⌋ in units of intensity; without a ladder one level without limit.

    The small allowance keeps a product that is whole in decimals, such as 0.29 · 100, whole in binary.
    """
    if not instance.pressure_levels:
        return (_UNLIMITED,)
    return tuple(math.floor(tau * node.pressure_capacity + 1e-9) for tau in instance.pressure_levels)


def level_of(load: int, capacities: tuple[int, ...]) -> int:
    """The lowest level whose capacity holds *load*; ``len(capacities)`` if none does."""
    return bisect_left(capacities, load)


_UNLIMITED = 2**62
