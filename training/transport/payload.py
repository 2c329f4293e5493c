"""The arrays of one message as one run of bytes, in which each starts at a multiple of 64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coplace.training.messages import Header, Message
from coplace.training.transport.buffers import ALIGNMENT

_PADDING = np.zeros(ALIGNMENT, dtype=np.uint8)


def padded(nbytes: int) -> int:
    """*nbytes*, rounded up to a multiple of 64."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def pieces(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What to write one after the other: the flat byte arrays and what lies between them, nothing copied."""
    laid: list[np.ndarray] = []
    for array in arrays:
        if array.nbytes:
            laid.append(array)
            if gap := padded(array.nbytes) - array.nbytes:
                laid.append(_PADDING[:gap])
    return laid


def length(header: Header) -> int:
    """Bytes of the payload that belongs to *header*."""
    return sum(padded(spec.nbytes) for spec in header.specs)


def message(header: Header, payload: np.ndarray) -> Message:
    """The message whose payload is in *payload*, of which its arrays are views.

    Raises:
        MessageError: the payload is not as long as the header says.
    """
    views = []
    start = 0
    for spec in header.specs:
        views.append(payload[start : start + spec.nbytes])
        start += padded(spec.nbytes)
    return header.message(views)
