"""Coefficients that can be indexed by one configuration or by arrays of them, each at its own speed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.speed.contract import Numbers


class Lookup:
    """A table of floats of one or two axes.

    Indexing it with integers gives a Python float, since the search asks for single configurations a hundred thousand
    times and NumPy scalars are five times slower; indexing it with arrays gives an array. The numbers are the same.
    """

    def __init__(self, values: NDArray[np.float64]) -> None:
        self._values = values
        self._list = values.tolist()

    def __getitem__(self, index: Numbers) -> Numbers:
        if type(index) is int:
            return self._list[index]
        if type(index) is tuple and type(index[0]) is int and type(index[1]) is int:
            return self._list[index[0]][index[1]]
        return self._values[index]
