"""Cuts: what a search for a packing has shown of all packings, as weights of pieces."""

from __future__ import annotations

from dataclasses import dataclass

from coplace.formulations.classes import Amounts, Place


@dataclass(frozen=True, slots=True)
class Cut:
    """No node of class c at level ℓ holds pieces of more than ``on_node`` weight: Σ weight ≤ on_node · N[c,ℓ].

    A piece weighs as much as the heaviest sample that could take its place, which asks for no more of anything. If
    every set of samples that fits on one node weighs at most ``on_node``, so does every set of pieces.

    Attributes:
        place: c and ℓ.
        samples: what a piece asks for, and its weight.
        on_node: most weight on one node.
    """

    place: Place
    samples: tuple[tuple[Amounts, int], ...]
    on_node: int

    def of(self, amounts: Amounts) -> int:
        """Weight of a piece."""
        return max(
            (weight for sample, weight in self.samples if all(a >= b for a, b in zip(amounts, sample, strict=True))),
            default=0,
        )
