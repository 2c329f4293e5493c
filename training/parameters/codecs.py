"""How slices of the flat vector are written for the wire: as they are, as float16, or only their largest entries.

Only the trained parameters are written in fewer bytes. The buffers behind them always travel as float32: they are
few, and among them are counters and indices that must arrive as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Arrays = Sequence[NDArray[Any]]

LARGEST_HALF = 65504.0
"""Largest float16; larger numbers are sent as this."""

NAMES = ("none", "float16", "topk")
"""Codecs that there are. Gradients may travel by any, parameters by none or float16."""


class Codec(Protocol):
    """Writes slices of one vector for the wire; :func:`decode` reads them on the other side."""

    name: str

    def encode(self, start: int, values: Floats) -> list[NDArray[Any]]:
        """*values*, which stand from position *start* on, as arrays to send; they may share memory with *values*."""
        ...

    def decode(self, arrays: Arrays, length: int) -> Floats:
        """What :meth:`encode` was given, or what is left of it; ValueError unless it is *length* floats."""
        ...

    def begin(self) -> None:
        """The next slices are those of a new push."""
        ...

    def undo(self) -> None:
        """Be as before the slices of the last push were written: it is to be written once more, cut in another way."""
        ...

    def reset(self) -> None:
        """Forget what is kept for later, as after a restart from older parameters."""
        ...


def codec(name: str, parameters: int, total: int, ratio: float = 0.01) -> Codec:
    """The codec *name* for a vector of *total* floats, of which the first *parameters* are trained.

    Raises:
        ValueError: there is no such codec, or *ratio* (of topk) is not above 0 and at most 1.
    """
    if not 0 <= parameters <= total:
        raise ValueError(f"{parameters} of {total} floats cannot be parameters")
    if name == "none":
        return Plain()
    if name == "float16":
        return Half(parameters)
    if name == "topk":
        return TopK(parameters, ratio)
    raise ValueError(f"no codec is called {name!r}; there are {', '.join(NAMES)}")


def decode(name: str, arrays: Arrays, length: int) -> Floats:
    """The slice of *length* floats that the codec *name* wrote as *arrays*; it may share their memory.

    Raises:
        ValueError: there is no such codec, or *arrays* are not what it writes for so many floats.
    """
    if name == "none":
        return _decode_plain(arrays, length)
    if name == "float16":
        return _decode_half(arrays, length)
    if name == "topk":
        return _decode_topk(arrays, length)
    raise ValueError(f"no codec is called {name!r}; there are {', '.join(NAMES)}")


class Plain:
    """Sends float32 as they are."""

    name = "none"

    def encode(self, start: int, values: Floats) -> list[NDArray[Any]]:
        """One array: *values* themselves."""
        return [values]

    def decode(self, arrays: Arrays, length: int) -> Floats:
        """The array that was sent."""
        return _decode_plain(arrays, length)

    def begin(self) -> None:
        """Nothing is kept."""

    undo = reset = begin


class Half:
    """Sends parameters as float16, half of the bytes.

    Finite numbers beyond ±65504 become ±65504; NaN and infinities stay, so that divergence is seen.
    """

    name = "float16"

    def __init__(self, parameters: int) -> None:
        self._parameters = parameters

    def encode(self, start: int, values: Floats) -> list[NDArray[Any]]:
        """Two arrays: the parameters as float16, the buffers as float32."""
        front = _front(self._parameters, start, len(values))
        return [_to_half(values[:front]), values[front:]]

    def decode(self, arrays: Arrays, length: int) -> Floats:
        """The numbers that were sent, as float32."""
        return _decode_half(arrays, length)

    def begin(self) -> None:
        """Nothing is kept."""

    undo = reset = begin


class TopK:
    """Sends only the share *ratio* of the parameters' entries that is largest in magnitude, at least one per slice.

    What was not sent is kept and added to the next push (error feedback: Stich, Cordonnier and Jaggi, Sparsified SGD
    with memory, NeurIPS 2018, algorithm 1), wherever the borders of the slices are then.
    """

    name = "topk"

    def __init__(self, parameters: int, ratio: float) -> None:
        if not 0 < ratio <= 1:
            raise ValueError(f"a ratio of {ratio} is not above 0 and at most 1")
        self._parameters = parameters
        self._ratio = ratio
        self._kept: Floats = np.zeros(parameters, np.float32)
        self._before: Floats = self._kept.copy()
        self._magnitude: Floats = np.empty(0, np.float32)

    def encode(self, start: int, values: Floats) -> list[NDArray[Any]]:
        """Three arrays: positions in the slice, ascending, as int32; the entries there; the buffers."""
        front = _front(self._parameters, start, len(values))
        sums = self._kept[start : start + front]
        sums += values[:front]
        chosen = self._largest(sums)
        entries = sums[chosen]
        sums[chosen] = 0
        if not np.isfinite(entries).all():  # one of them is on its way to be seen; the rest must not be sent for ever
            sums[~np.isfinite(sums)] = 0
        return [chosen.astype(np.int32), entries, values[front:]]

    def decode(self, arrays: Arrays, length: int) -> Floats:
        """The entries that were sent, and zeros between them."""
        return _decode_topk(arrays, length)

    def begin(self) -> None:
        """Remember what is kept, for :meth:`undo`."""
        self._before[:] = self._kept

    def undo(self) -> None:
        """Keep again what was kept before the last push."""
        self._kept[:] = self._before

    def reset(self) -> None:
        """Forget what was not sent yet."""
        self._kept.fill(0)
        self._before.fill(0)

    def _largest(self, sums: Floats) -> NDArray[np.intp]:
        if not len(sums):
            return np.empty(0, np.intp)
        count = max(1, round(self._ratio * len(sums)))
        if len(self._magnitude) < len(sums):
            self._magnitude = np.empty(len(sums), np.float32)
        magnitude = np.abs(sums, out=self._magnitude[: len(sums)])
        if np.isnan(magnitude.max()):
            np.nan_to_num(magnitude, copy=False, nan=np.inf, posinf=np.inf)
        least = np.partition(magnitude, len(sums) - count)[len(sums) - count]
        if least == 0:
            return np.flatnonzero(magnitude)
        chosen = np.flatnonzero(magnitude >= least)
        if len(chosen) > count:  # of equal ones the first
            above = magnitude[chosen] > least
            ties = np.flatnonzero(~above)[: count - np.count_nonzero(above)]
            above[ties] = True
            chosen = chosen[above]
        return chosen


def _front(parameters: int, start: int, length: int) -> int:
    """How many of *length* floats from *start* on are trained parameters."""
    return min(length, max(0, parameters - start))


def _to_half(values: Floats) -> NDArray[np.float16]:
    half = _cast(values, "float16")
    wrong = half.view(np.uint16) & 0x7FFF == 0x7C00  # infinite; numpy's isinf takes ten times as long
    if wrong.any():
        wrong &= np.isfinite(values)
        half[wrong] = np.copysign(np.float16(LARGEST_HALF), half[wrong])
    return half


def _cast(values: NDArray[Any], kind: str) -> NDArray[Any]:
    """*values* as *kind*, rounded to nearest; by torch where it is in use, which does it ten times as fast."""
    if "torch" in sys.modules and values.flags.writeable and len(values):
        torch: Any = sys.modules["torch"]
        result: NDArray[Any] = torch.from_numpy(values).to(getattr(torch, kind)).numpy()
        return result
    with np.errstate(over="ignore"):
        return values.astype(kind)


def _decode_plain(arrays: Arrays, length: int) -> Floats:
    (values,) = _checked(arrays, np.float32)
    _require(len(values) == length, f"{len(values)} floats came where {length} belong")
    return values


def _decode_half(arrays: Arrays, length: int) -> Floats:
    half, tail = _checked(arrays, np.float16, np.float32)
    _require(len(half) + len(tail) == length, f"{len(half)} + {len(tail)} floats came where {length} belong")
    front: Floats = _cast(half, "float32")
    return np.concatenate((front, tail)) if len(tail) else front


def _decode_topk(arrays: Arrays, length: int) -> Floats:
    positions, entries, tail = _checked(arrays, np.int32, np.float32, np.float32)
    _require(len(positions) == len(entries), f"{len(entries)} entries came for {len(positions)} positions")
    front = length - len(tail)
    _require(len(positions) <= front, f"{len(positions)} + {len(tail)} floats came where {length} belong")
    if len(positions):
        inside = positions[0] >= 0 and positions[-1] < front and bool((positions[1:] > positions[:-1]).all())
        _require(inside, f"positions must ascend from 0 to below {front}")
    values = np.zeros(length, np.float32)
    values[positions] = entries
    values[front:] = tail
    return values


def _checked(arrays: Arrays, *kinds: type) -> list[NDArray[Any]]:
    _require(len(arrays) == len(kinds), f"{len(arrays)} arrays came where {len(kinds)} belong")
    for array, kind in zip(arrays, kinds, strict=True):
        fits = array.ndim == 1 and array.dtype == kind
        _require(fits, f"an array of {array.dtype} and shape {array.shape} came where {kind.__name__} belong in a row")
    return list(arrays)


def _require(holds: bool, found: str) -> None:
    if not holds:
        raise ValueError(f"this is no slice of the vector: {found}")
