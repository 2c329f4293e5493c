"""Which chooser is next: those that found better plans lately are drawn more often, each at a size it can solve.

Weights as in adaptive large neighbourhood search (Ropke, Pisinger, Transportation Science 40, 2006, section 3.4), with
the sizes adapted as for exact repairs (Hendel, Math. Prog. Comp. 14, 2022).
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

REACTION = 0.2
"""How much of a weight the last score is."""

SCORE_BETTER, SCORE_NOTHING = 1.0, 0.0
"""Score of a round that found a better plan, and of one that did not."""

LEAST_WEIGHT = 0.1
"""Weight that every chooser keeps, so that it may come back."""

GROW, SHRINK = 1.2, 0.85
"""Factors of the size after a sub-problem that was solved, and after one that was not."""


@dataclass(slots=True)
class Arm:
    """A chooser's name, weight, and size in nodes."""

    name: str
    weight: float
    size: float


class Choice:
    """Draws names of choosers, and learns from what came of it; no clock has a say."""

    def __init__(self, names: Iterable[str], size: float, most: int, draw: random.Random) -> None:
        self.arms = {name: Arm(name, 1.0, min(size, most)) for name in names}
        self._most = most
        self._draw = draw

    def next(self) -> Arm:
        """The arm to try."""
        arms = list(self.arms.values())
        return self._draw.choices(arms, [arm.weight for arm in arms])[0]

    def learn(self, arm: Arm, *, found: bool, solved: bool) -> None:
        """Take what came of a round: whether a better plan, and whether the sub-problem was solved to the end."""
        score = SCORE_BETTER if found else SCORE_NOTHING
        arm.weight = max(LEAST_WEIGHT, (1 - REACTION) * arm.weight + REACTION * score)
        arm.size = min(float(self._most), max(2.0, arm.size * (GROW if solved else SHRINK)))

    def drop(self, arm: Arm) -> None:
        """Forget a chooser that has nothing to choose."""
        del self.arms[arm.name]
