"""Whole numbers in proportion to weights."""

from __future__ import annotations

import math
from collections.abc import Sequence


def apportion(total: int, weights: Sequence[float], least: int = 1) -> list[int]:
    """Split *total* in proportion to *weights*, by largest remainder (Hamilton's method), ties to whoever comes first.

    Computed in integers, so exact for any finite weights.

    Args:
        total: to be split, at least 0.
        weights: at least 0 each. All zero means equal. Infinite ones share equally, as if the others were zero.
        least: what each gets at least. If *total* is too small for that, all get something if possible, and otherwise
            those of the largest weights get 1.

    Returns:
        By weight; the sum is *total*.

    Raises:
        ValueError: a weight is negative or no number, *total* or *least* is negative, or there is nobody to take it.
    """
    if total < 0 or least < 0:
        raise ValueError(f"the total and the least share must be at least 0; found {total} and {least}")
    whole = _whole(weights)
    n = len(whole)
    if n == 0:
        if total:
            raise ValueError(f"{total} cannot be split: there are no weights")
        return []
    if least and total < n:
        first = sorted(range(n), key=lambda i: -whole[i])[:total]
        return [int(i in first) for i in range(n)]
    least = min(least, total // n)
    fixed: set[int] = set()  # those whose proportional share is below the least; the others share the rest
    while True:
        rest = total - least * len(fixed)
        weight = sum(whole[i] for i in range(n) if i not in fixed)
        below = {i for i in range(n) if i not in fixed and rest * whole[i] < least * weight}
        if not below:
            break
        fixed |= below
    result = [least] * n
    remainders = []
    for i in range(n):
        if i not in fixed:
            result[i], remainder = divmod(rest * whole[i], weight)
            remainders.append((-remainder, i))
    for _, i in sorted(remainders)[: total - sum(result)]:
        result[i] += 1
    return result


def _whole(weights: Sequence[float]) -> list[int]:
    """Whole numbers in exactly the same proportion."""
    values = [float(weight) for weight in weights]
    for i, value in enumerate(values):
        if math.isnan(value) or value < 0:
            raise ValueError(f"weight {i} must be a number of at least 0; found {value}")
    if math.inf in values:
        return [int(value == math.inf) for value in values]
    if not any(values):
        return [1] * len(values)
    ratios = [value.as_integer_ratio() for value in values]
    common = max(denominator for _, denominator in ratios)  # they are powers of two
    return [numerator * (common // denominator) for numerator, denominator in ratios]
