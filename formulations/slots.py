"""Slots: how many tasks of a size fit on one node, as rows that sums of amounts do not imply.

A dual feasible function f says of whatever amounts v_1, v_2, … fit on one node of capacity C that Σ f(v_i) ≤ f(C). Two
families (Fekete and Schepers, "New classes of fast lower bounds for bin packing problems", 2001):

* ``whole``: f(v) = ⌊v / a⌋, so many pieces of size a. Without it 3-GPU tasks fill 4-GPU nodes.
* ``half``: for a ≤ C/2, f(v) = C if v > C − a, 0 if v < a, and v else: what leaves less than a on a node fills it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

MOST_SIZES = 12
"""Slot rows of one resource in one class at one level."""


class Slot(NamedTuple):
    """One dual feasible function.

    Attributes:
        family: ``whole`` or ``half``.
        size: a.
        room: C.
    """

    family: Literal["whole", "half"]
    size: int
    room: int

    def of(self, amount: int) -> int:
        """f(v)."""
        if self.family == "whole":
            return amount // self.size
        if amount > self.room - self.size:
            return self.room
        return 0 if amount < self.size else amount

    @property
    def on_node(self) -> int:
        """f(C)."""
        return self.room // self.size if self.family == "whole" else self.room


def slots(amounts: Iterable[int], room: int) -> list[Slot]:
    """The functions that say more than the sum does of tasks with these *amounts* on nodes of capacity *room*.

    Sizes a just above C / (i + 1), of which i fit, and the amounts themselves; sizes for ``half`` just such that
    another amount counts as a whole node.
    """
    known = sorted({amount for amount in amounts if 0 < amount <= room})
    if not known:
        return []
    sizes = sorted({room // (i + 1) + 1 for i in range(1, 9)} | {amount for amount in known if 3 * amount > room})
    lifts = sorted({room - amount + 1 for amount in known if 2 * amount > room})
    found = [Slot("whole", size, room) for size in sizes if size <= room]
    found += [Slot("half", lift, room) for lift in lifts if 2 * lift <= room]
    found = [slot for slot in found if any(slot.of(amount) * room > amount * slot.on_node for amount in known)]
    return _strongest(found, known)


def _strongest(found: list[Slot], known: list[int]) -> list[Slot]:
    """Without those that another one implies."""
    weights = [tuple(slot.of(amount) / slot.on_node for amount in known) for slot in found]
    kept: list[int] = []
    for i, weight in enumerate(weights):
        implied = any(
            (other != weight or h < i) and all(a >= b for a, b in zip(other, weight, strict=True))
            for h, other in enumerate(weights)
            if h != i
        )
        if not implied:
            kept.append(i)
    # most first: how much they raise the amounts above their share
    raised = {i: sum(weights[i]) for i in kept}
    kept.sort(key=lambda i: -raised[i])
    return [found[i] for i in sorted(kept[:MOST_SIZES])]
