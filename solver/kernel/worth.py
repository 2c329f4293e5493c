"""What tasks take from the worth of a node: the fall of its potential."""

from __future__ import annotations

from coplace.solver.kernel.board import GPU, INTENSITY, Board, Ints
from coplace.solver.kernel.compiled import compiled


@compiled
def used_units(b: Board, n: int) -> int:
    """How much of its scarce resource node *n* has in use, in units of the potential."""
    if b.scarce[0] == INTENSITY:
        return -(-b.load[n] // b.scarce[1])
    return -(-(b.base[n] - b.free[n, b.scarce[0]]) // b.scarce[1])


@compiled
def worth_of(b: Board, n: int, ceiling: int, gpu: int, used: int) -> float:
    """What so many GPUs are worth on node *n* with so much of the scarce resource in use."""
    if used >= b.potential.shape[3]:
        used = b.potential.shape[3] - 1
    return b.potential[b.kind[n], ceiling, gpu // b.scarce[2], used]


@compiled
def units_of(b: Board, demand: Ints, count: int) -> int:
    """Units of the scarce resource that *count* tasks take."""
    return -(-demand[b.scarce[0]] * count // b.scarce[1])


@compiled
def cost_on(b: Board, n: int, ceiling: int, level: int, demand: Ints, count: int) -> float:
    """What *count* tasks take from the worth of node *n*, if they fit."""
    gpu, used = b.free[n, GPU], used_units(b, n)
    after = worth_of(b, n, level, gpu - count * demand[GPU], used + units_of(b, demand, count))
    return worth_of(b, n, ceiling, gpu, used) - after
