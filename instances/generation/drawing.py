"""Draws with exact shares."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def apportion(shares: Sequence[float], total: int) -> list[int]:
    """*total* split by *shares* (which sum to 1) into whole numbers by largest remainder; ties to the first."""
    exact = [share * total for share in shares]
    parts = [math.floor(value + 1e-9) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda i: (parts[i] - exact[i], i))
    for i in by_remainder[: total - sum(parts)]:
        parts[i] += 1
    return parts


def shuffled(weights: Sequence[tuple[T, float]], total: int, rng: random.Random) -> list[T]:
    """*total* values that occur by their weights, in random order."""
    parts = apportion([share for _, share in weights], total)
    values = [value for (value, _), part in zip(weights, parts, strict=True) for _ in range(part)]
    rng.shuffle(values)
    return values


def lognormal(rng: random.Random, median: float, sigma: float, low: float, high: float) -> float:
    """A log-normal draw, clipped to [low, high]."""
    return min(high, max(low, median * math.exp(rng.gauss(0.0, sigma))))
