"""What is free on a node is worth: the best way to fill it up at the prices, GPUs and the scarcest other resource seen.

Placing a task where this falls least leaves GPUs and pressure free in proportions that others can use. It is the value
of a knapsack with two capacities, filled with typical tasks any number of times (Gilmore and Gomory, The theory and
computation of knapsack functions, 1966).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coplace.solver.kernel.compiled import compiled

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

CELLS = 256
"""Units into which the scarce resource of a node is divided at most."""

MOST_GPUS = 64
"""Units into which the GPUs of a node are divided at most."""


@compiled
def fill(gpus: int, units: int, item_gpus: Ints, item_units: Ints, item_value: Floats) -> Floats:
    """Value of the best filling by [free GPUs, free units], each item any number of times; items take something."""
    table = np.zeros((gpus + 1, units + 1))
    for g in range(gpus + 1):
        for u in range(units + 1):
            best = 0.0
            if g > 0:
                best = table[g - 1, u]
            if u > 0 and table[g, u - 1] > best:
                best = table[g, u - 1]
            for i in range(len(item_value)):
                if item_gpus[i] <= g and item_units[i] <= u:
                    value = item_value[i] + table[g - item_gpus[i], u - item_units[i]]
                    if value > best:
                        best = value
            table[g, u] = best
    return table


@compiled
def by_ceiling(filled: Floats, capacity: Ints, units: int) -> Floats:
    """Potential by [ceiling, free GPUs, used units] of nodes with a *capacity* in units by level.

    A node may run at any level up to its ceiling; the lower, the more the tasks that it can host are worth.

    Args:
        filled: value of the best filling by [level, free GPUs, free units].
        capacity: by [level].
        units: most that can be in use.
    """
    levels, gpus = filled.shape[0], filled.shape[1]
    table = np.zeros((levels, gpus, units + 1))
    for ceiling in range(levels):
        for g in range(gpus):
            for used in range(units + 1):
                best = 0.0
                for level in range(ceiling + 1):
                    left = capacity[level] - used
                    if left >= 0 and filled[level, g, left] > best:
                        best = filled[level, g, left]
                table[ceiling, g, used] = best
    return table
