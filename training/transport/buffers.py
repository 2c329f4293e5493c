"""Memory that is used again: fresh pages cost as much time as the copying into them."""

from __future__ import annotations

import weakref

import numpy as np

ALIGNMENT = 64
"""Every buffer starts at a multiple of this many bytes, which suits vector instructions and all element types."""

SMALLEST = 2**20
"""Buffers of fewer bytes are not kept, since the allocator does that well itself."""


class Buffers:
    """Hands out byte arrays, and again those that nobody uses any more, not even by a view.

    Args:
        keep: at most this many bytes are kept unused.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._all: list[tuple[np.ndarray, weakref.ref[np.ndarray]]] = []  # oldest first

    def take(self, nbytes: int) -> np.ndarray:
        """An array of *nbytes* uint8 with any content; it is the caller's as long as it or a view of it lives."""
        if nbytes < SMALLEST:
            return _aligned(nbytes)
        fitting = None
        for index, (memory, lease) in enumerate(self._all):
            if lease() is None and nbytes <= len(memory) <= 2 * nbytes:
                fitting = index
                break
        memory = _aligned(nbytes) if fitting is None else self._all.pop(fitting)[0]
        # Views keep the array alive that they were taken from, down to one whose memory is no array: this one.
        leased = np.frombuffer(memory.data, dtype=np.uint8)
        self._all.append((memory, weakref.ref(leased)))
        self._trim()
        return leased[:nbytes]

    def _trim(self) -> None:
        unused = sum(len(memory) for memory, lease in self._all if lease() is None)
        while unused > self._keep:
            index = next(index for index, (_, lease) in enumerate(self._all) if lease() is None)
            unused -= len(self._all.pop(index)[0])


def _aligned(nbytes: int) -> np.ndarray:
    memory = np.empty(nbytes + ALIGNMENT, dtype=np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes]
