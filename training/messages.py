"""Messages between the processes of a job, and their form on the wire: a JSON header, then the arrays' raw bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

DTYPES = {
    name: np.dtype(name).newbyteorder("<")
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64",
    )
}  # fmt: skip
"""The element types that a message may carry, little-endian on the wire; nothing that would need pickle."""

MOST_HEADER = 64 * 2**20
"""Largest header, in bytes: what is longer belongs into an array."""

MOST_DIMENSIONS = 32
"""Most dimensions of an array; every numpy can hold as many."""


class MessageError(ValueError):
    """Bytes that are no message, or something that cannot be sent as one."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message as its receiver gets it.

    Attributes:
        kind: what the receiver is to do with it, e.g. ``push``.
        sender: name of the sending endpoint, as given to ``open_endpoint``; not its address.
        fields: what JSON can hold (keys are strings, tuples arrive as lists).
        arrays: numeric arrays of any shape, C-contiguous; may be read-only.
    """

    kind: str
    sender: str
    fields: dict[str, Any] = field(default_factory=dict)
    arrays: tuple[np.ndarray, ...] = ()


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Element type (a key of ``DTYPES``) and shape of one array."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


@dataclass(frozen=True, slots=True)
class Header:
    """Everything of a message but the elements of its arrays."""

    kind: str
    sender: str
    fields: dict[str, Any]
    specs: tuple[ArraySpec, ...]

    def message(self, arrays: Sequence[memoryview | np.ndarray]) -> Message:
        """The message whose arrays' raw bytes are *arrays*, which are not copied.

        Args:
            arrays: contiguous buffers of bytes, one per spec and exactly as long.

        Raises:
            MessageError: the number of buffers or the length of one is not as the header says.
        """
        if len(arrays) != len(self.specs):
            raise MessageError(f"{len(arrays)} arrays came, the header tells of {len(self.specs)}")
        made = []
        for raw, spec in zip(arrays, self.specs, strict=True):
            if raw.nbytes != spec.nbytes:
                raise MessageError(f"{raw.nbytes} bytes came for an array of {spec.nbytes}")
            dtype = DTYPES[spec.dtype]
            if isinstance(raw, np.ndarray):
                made.append(raw.view(dtype).reshape(spec.shape))
            elif raw.nbytes:
                made.append(np.frombuffer(raw, dtype=dtype).reshape(spec.shape))
            else:  # frombuffer refuses empty buffers
                made.append(np.empty(spec.shape, dtype=dtype))
        return Message(self.kind, self.sender, self.fields, tuple(made))


def encode(
    kind: str, sender: str, fields: Mapping[str, Any] | None = None, arrays: Sequence[np.ndarray] = ()
) -> tuple[bytes, list[np.ndarray]]:
    """The header's bytes, and the arrays as they go on the wire: flat uint8 views, copies only where not contiguous.

    Numbers of numpy in *fields* go as plain numbers; NaN and infinities are kept.

    Raises:
        MessageError: an array is not numeric or has too many dimensions, the fields are nothing for JSON, or too long.
    """
    specs: list[list[Any]] = []
    payload: list[np.ndarray] = []
    for array in arrays:
        name = array.dtype.name
        if name not in DTYPES or array.ndim > MOST_DIMENSIONS:
            raise MessageError(f"an array of {array.dtype} in {array.ndim} dimensions cannot be sent")
        specs.append([name, list(array.shape)])
        flat = np.ascontiguousarray(array, dtype=DTYPES[name]).reshape(-1)
        payload.append(flat.view(np.uint8))
    try:
        header = json.dumps([kind, sender, dict(fields or {}), specs], separators=(",", ":"), default=_plain).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageError(f"the fields of {kind} cannot be sent: {error}") from error
    if len(header) > MOST_HEADER:
        raise MessageError(f"the header of {kind} has {len(header)} bytes, more than {MOST_HEADER}")
    return header, payload


def decode_header(raw: bytes | memoryview) -> Header:
    """The header of which these are the bytes, checked throughout.

    Raises:
        MessageError: it is none.
    """
    if len(raw) > MOST_HEADER:
        raise MessageError(f"a header of {len(raw)} bytes, more than {MOST_HEADER}")
    try:
        parts = json.loads(bytes(raw))
    except (ValueError, RecursionError) as error:
        raise MessageError("the header is no JSON") from error
    match parts:
        case [str(kind), str(sender), dict(fields), list(specs)]:
            return Header(kind, sender, fields, tuple(map(_spec, specs)))
    raise MessageError("the header is not [kind, sender, fields, arrays]")


def _spec(parts: object) -> ArraySpec:
    match parts:
        case [str(dtype), list(shape)] if (
            dtype in DTYPES
            and len(shape) <= MOST_DIMENSIONS
            and all(type(size) is int and 0 <= size < 2**62 for size in shape)
        ):
            spec = ArraySpec(dtype, tuple(shape))
            if math.prod(max(size, 1) for size in shape) < 2**62:  # numpy multiplies the sizes that are not zero
                return spec
    raise MessageError("the header tells of an array that there cannot be")


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is nothing for JSON")
