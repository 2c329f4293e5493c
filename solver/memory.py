"""What one round leaves to the next."""

from __future__ import annotations

from dataclasses import dataclass, field

from coplace.formulations.memo import Memo
from coplace.formulations.relaxation.rows import PricedRow


@dataclass
class RoundMemory:
    """What a round leaves to the next one. Nothing of it decides what is feasible.

    Attributes:
        jobs: reference speeds and columns.
        guiding: prices by which plans were made.
        bounding: prices with the lowest bound.
    """

    jobs: Memo = field(default_factory=Memo)
    guiding: tuple[PricedRow, ...] = ()
    bounding: tuple[PricedRow, ...] = ()
