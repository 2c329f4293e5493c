"""Whether pieces fit on nodes as far as fractions of patterns tell, and the cut where they do not.

A pattern is what one node may hold. If no mix of at most N patterns covers the pieces, the dual of that linear program
weighs pieces such that no node holds more than 1, and all of them together weigh more than N: a violated cut (Gilmore
and Gomory, "A linear programming approach to the cutting-stock problem", 1961). The best pattern for given weights is a
knapsack over GPUs, CPU and intensity at once, solved by dynamic programming over what is left of a node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.classes import Amounts, Place
from coplace.formulations.cuts import Cut

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_CELLS = 40_000
"""States of the knapsack; amounts are rounded down to coarser units above, which leaves cuts valid."""

MOST_ROUNDS = 60
"""Patterns that are added before a place is given up."""

DENOMINATORS = (*range(1, 61), 240)
"""Units of weight that one node holds: the first that gives whole weights, else the last."""

LEAST_VIOLATION = 1e-3
"""Nodes that the pieces must want above those there are."""


class Knapsack:
    """Patterns of one node, over amounts rounded down to whole units.

    Attributes:
        room: units of GPUs, CPU and intensity on an empty node.
        sizes: units of each piece, by [piece, 3].
    """

    def __init__(self, pieces: list[Amounts], room: Amounts) -> None:
        limits = np.array([room[0], room[1], room[3]], dtype=np.int64)
        amounts = np.array([[p[0], p[1], p[3]] for p in pieces], dtype=np.int64).reshape(-1, 3)
        units = np.ones(3, dtype=np.int64)
        for r in range(3):
            used = amounts[:, r][amounts[:, r] > 0]
            # a resource that no piece asks for, or that nobody can run out of, has one unit
            units[r] = math.gcd(*(int(a) for a in used)) if len(used) else limits[r] + 1
        while math.prod(int(n) for n in limits // units + 1) > MOST_CELLS:
            units[int(np.argmax(limits // units))] *= 2
        self.room = limits // units
        self.sizes: Ints = amounts // units
        self._value = np.zeros(tuple(int(n) + 1 for n in self.room))

    def best(self, weights: Floats) -> tuple[float, Ints]:
        """The largest weight of a pattern, and how many of each piece it holds; pieces with weight have a size."""
        value = self._value
        value[:] = 0.0
        tables = []
        fitting = (self.sizes <= self.room).all(axis=1) & self.sizes.any(axis=1)
        for i in np.flatnonzero(fitting & (weights > 1e-12)).tolist():
            size, weight = self.sizes[i], float(weights[i])
            before = value.copy()
            shifted = tuple(slice(0, int(n) + 1 - int(s)) for n, s in zip(self.room, size, strict=True))
            target = tuple(slice(int(s), None) for s in size)
            copies = int(min(int(n) // int(s) for n, s in zip(self.room, size, strict=True) if s))
            for _ in range(copies):  # each time one more of the piece may be there
                better = value[shifted] + weight
                improved = better > value[target] + 1e-12
                if not improved.any():
                    break
                np.maximum(value[target], better, out=value[target])
            tables.append((i, before))
        best = float(value[tuple(self.room)])
        counts = np.zeros(len(weights), dtype=np.int64)
        left, now = self.room.copy(), best
        for i, before in reversed(tables):
            size, weight = self.sizes[i], float(weights[i])
            while now > before[tuple(left)] + 1e-9 and (left >= size).all():
                counts[i] += 1
                left = left - size
                now -= weight
        return best, counts


def weigh(knapsack: Knapsack, wanted: Floats, enough: float = -1.0) -> tuple[Floats, list[Ints]]:
    """Weights of the pieces such that no pattern holds more than 1 and all that is wanted weighs most; the patterns.

    Stops early, with weights that some pattern exceeds, when all that is wanted weighs no more than *enough*, or after
    :data:`MOST_ROUNDS`.
    """
    import highspy

    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    infinity = highspy.kHighsInf
    patterns: list[Ints] = []

    def add(pattern: Ints) -> None:
        at = np.flatnonzero(pattern)
        solver.addRow(-infinity, 1.0, len(at), at.astype(np.int32), pattern[at].astype(float))
        patterns.append(pattern)

    for count, size in zip(wanted, knapsack.sizes, strict=True):
        solver.addVar(0.0, 1.0 if size.any() else 0.0)  # of pieces without size any number fits
        solver.changeColCost(solver.getNumCol() - 1, -float(count))
    for i, size in enumerate(knapsack.sizes):
        fits = min((int(n) // int(s) for n, s in zip(knapsack.room, size, strict=True) if s), default=1)
        alone = np.zeros(len(wanted), dtype=np.int64)
        alone[i] = max(fits, 1)
        add(alone)
    weights = np.zeros(len(wanted))
    for _ in range(MOST_ROUNDS):
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            break
        weights = np.maximum(np.array(solver.getSolution().col_value), 0.0)
        if float(weights @ wanted) <= enough:
            break
        best, pattern = knapsack.best(weights)
        if best <= 1.0 + 1e-6:
            break
        add(pattern)
    return weights, patterns


def violated(place: Place, pieces: Mapping[Amounts, float], room: Amounts, nodes: float) -> Cut | None:
    """A cut that so many *pieces* on so many *nodes* of a place break; None if none is found.

    Args:
        place: c and ℓ.
        pieces: how many, also in fractions, by what they ask for.
        room: what one empty node offers.
        nodes: how many run at that level.
    """
    kinds = [amounts for amounts, count in pieces.items() if count > 1e-9 and any(amounts)]
    if not kinds:
        return None
    wanted = np.array([float(pieces[amounts]) for amounts in kinds])
    knapsack = Knapsack(kinds, room)
    enough = nodes * (1 + 1e-9) + LEAST_VIOLATION
    weights, _ = weigh(knapsack, wanted, enough)
    if float(weights @ wanted) <= enough:
        return None
    # whatever the weights are, what one node holds at most is found here
    cut = _rounded(place, kinds, weights, knapsack)
    weight = sum(cut.of(kind) * pieces[kind] for kind in kinds)
    return cut if weight > cut.on_node * enough else None


def _rounded(place: Place, kinds: list[Amounts], weights: Floats, knapsack: Knapsack) -> Cut:
    """The weights in whole units, and what one node then holds at most."""
    off = [float(np.abs(weights * units - np.rint(weights * units)).max()) for units in DENOMINATORS]
    units = next((d for d, by in zip(DENOMINATORS, off, strict=True) if by < 1e-4), DENOMINATORS[-1])
    whole = np.rint(weights * units)
    samples = tuple((kind, int(w)) for kind, w in zip(kinds, whole, strict=True) if w > 0)
    most, _ = knapsack.best(whole)
    return Cut(place, samples, round(most))
