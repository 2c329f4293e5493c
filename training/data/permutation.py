"""The order of an epoch's samples, which every process makes for itself."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


@lru_cache(maxsize=2)  # a step may still be of the epoch before
def order(samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The sample at each position of an epoch: a uniformly random permutation, the same on every machine.

    Positions are sorted by random keys. NumPy keeps the raw stream of a bit generator over its versions, which it does
    not promise for ``Generator.permutation`` (NEP 19). Two of 2^64 keys hardly ever agree; the sort is stable even so.

    Args:
        samples: how many, at least 0.
        seed: of the run, at least 0.
        epoch: counted from 0.

    Returns:
        Shape [samples], read-only; the last two orders asked for are kept.

    Raises:
        ValueError: a number is negative.
    """
    if samples < 0 or seed < 0 or epoch < 0:
        raise ValueError(f"samples, seed and epoch must be at least 0; found {samples}, {seed} and {epoch}")
    source = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(epoch,)))
    result = np.argsort(source.random_raw(samples), kind="stable").astype(np.int64, copy=False)
    result.setflags(write=False)
    return result


def indices(order: NDArray[np.int64], spans: Iterable[tuple[int, int]]) -> NDArray[np.int64]:
    """The samples at the positions of *spans* [start, stop) of *order*, in that order."""
    pieces = [order[start:stop] for start, stop in spans]
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64)
