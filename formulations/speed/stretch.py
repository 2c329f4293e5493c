"""How pressure and span stretch the step time: φ and ψ, both ≥ 1 and nondecreasing."""

from __future__ import annotations

from coplace.formulations.speed.contract import Numbers
from coplace.instances.speed import Interference, Spread


def phi(interference: Interference, pressure: Numbers) -> Numbers:
    """φ(τ) = 1 + slope · max(0, τ − onset)."""
    excess = pressure - interference.onset
    return 1.0 + interference.slope * (excess * (excess > 0))


def psi(spread: Spread, span: Numbers) -> Numbers:
    """ψ(m) = 1 + slope · (1 − 1/m)."""
    return 1.0 + spread.slope * (1.0 - 1.0 / span)
