"""States of optimisers when the number of servers changes; free of torch, as checkpoints hold them whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

STEP = "step"
"""Name of the number of steps taken, an array of one; all else in a state is one float for each parameter."""

State = dict[str, NDArray[np.float32]]


def gather(parts: Sequence[Mapping[str, NDArray[Any]]]) -> State:
    """The state of the whole vector from those of all shards, in the order of the vector.

    Raises:
        ValueError: there is none, or they are of different optimisers or steps.
    """
    if not parts:
        raise ValueError("there is no state to gather")
    steps = {float(part[STEP].reshape(-1)[0]) for part in parts if STEP in part}
    if len(steps) != 1 or any(part.keys() != parts[0].keys() for part in parts):
        raise ValueError(f"states of steps {sorted(steps)} and of {sorted({*map(tuple, parts)})} are not of one moment")
    full = {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name != STEP}
    return {**full, STEP: np.array(parts[0][STEP], np.float32).reshape(1)}


def cut(full: Mapping[str, NDArray[Any]], start: int, stop: int) -> State:
    """The state of the shard from *start* to *stop* (positions in the vector) as views of *full*, but for ``step``.

    What of the shard lies behind the parameters has no state, so that less than stop − start, or nothing, is left.
    """
    state = {name: array[start:stop] for name, array in full.items() if name != STEP}
    return {**state, STEP: np.array(full[STEP], np.float32).reshape(1)}
