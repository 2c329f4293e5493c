"""The placement procedure of explanations: can a job that runs nothing start, the rest of the plan as it is?"""

from __future__ import annotations

from collections.abc import Iterable

from coplace.solver.packing import Packer
from coplace.solver.placement import Placement, Shape
from coplace.solver.smallest import SmallestShapes
from coplace.solver.state import Effect, State

Start = tuple[Effect, Placement]
"""Where a job would go, and what that does to the objective."""


def start(state: State, packer: Packer, j: int) -> Start | None:
    """Where job *j*, which runs nothing, gains most in one of its smallest shapes; None where it does not gain."""
    best = best_start(state, packer, j, SmallestShapes(state).of(j))
    return best if best is not None and state.worth(best[0]) else None


def best_start(state: State, packer: Packer, j: int, shapes: Iterable[Shape]) -> Start | None:
    """The placement of one of *shapes* with the largest gain, which may be a loss; None if none has room.

    Tried from the highest pressure level downwards: packed tightly, or out of the way of others.
    """
    best: Start | None = None
    for shape in shapes:
        level = len(state.scoring.levels) - 1
        while level >= 0:
            placement = packer.place(j, shape, level)
            if not isinstance(placement, Placement):
                break  # nor is there room at any lower level
            effect = state.effect(j, placement)
            if best is None or effect.gain > best[0].gain:
                best = (effect, placement)
            level = effect.level - 1
    return best
