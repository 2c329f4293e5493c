"""Frames of one sender, put into their order and together to messages."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from coplace.training.messages import Header, Message, MessageError, decode_header
from coplace.training.transport import payload
from coplace.training.transport.buffers import Buffers
from coplace.training.transport.tcp_format import CHUNK, SHORT

MOST_HELD = 64
"""Frames held back while one before them is missing. After a connection was renewed, frames that came over the former
one may still be waiting to be read; but those are fewer."""


class Lane:
    """One run of frames from one sender.

    Args:
        buffers: where memory for messages comes from.
    """

    def __init__(self, buffers: Buffers) -> None:
        self._buffers = buffers
        self.sender = ""
        self.next = 0
        self.held: dict[int, list[memoryview]] = {}
        self.gap_since: float | None = None
        self.broken = False
        self._header: Header | None = None
        self._body: np.ndarray | None = None
        self._filled = 0

    def put(self, number: int, parts: list[memoryview]) -> Iterator[Message | MessageError]:
        """Take in a frame: the messages that are whole now, in their order, and what was wrong with frames."""
        if self.broken or number < self.next:
            return
        if number > self.next:
            if len(self.held) < MOST_HELD:
                self.held[number] = parts
            if self.gap_since is None:
                self.gap_since = time.monotonic()
            return
        self.held[number] = parts
        while self.next in self.held:
            parts = self.held.pop(self.next)
            self.next += 1
            try:
                message = self._begin(parts) if self._header is None else self._continue(parts)
            except MessageError as error:
                yield error
            else:
                if message is not None:
                    yield message
        self.gap_since = time.monotonic() if self.held else None

    def break_off(self) -> None:
        """Deliver nothing any more, and give back the memory."""
        self.broken = True
        self.held.clear()
        self.gap_since = None
        self._header = self._body = None

    def _begin(self, parts: list[memoryview]) -> Message | None:
        if not 1 <= len(parts) <= 2:
            raise MessageError(f"a message begins with {len(parts)} parts")
        header = decode_header(parts[0])
        length = payload.length(header)
        if (length > SHORT) != (len(parts) == 1) and length:
            raise MessageError("the payload is not where it belongs")
        self.sender = header.sender
        try:
            body = self._buffers.take(length)
        except (MemoryError, ValueError) as error:
            raise MessageError(f"there is no room for {length} bytes") from error
        if len(parts) == 2:
            if parts[1].nbytes != length:
                raise MessageError(f"{parts[1].nbytes} bytes came for a payload of {length}")
            body[:] = np.frombuffer(parts[1], dtype=np.uint8)
        elif length:
            self._header, self._body, self._filled = header, body, 0
            return None
        return payload.message(header, body)

    def _continue(self, parts: list[memoryview]) -> Message | None:
        header, body, start = self._header, self._body, self._filled
        assert header is not None
        assert body is not None
        stop = min(start + CHUNK, len(body))
        if len(parts) != 1 or parts[0].nbytes != stop - start:
            self._header = self._body = None
            raise MessageError(f"a chunk of {sum(part.nbytes for part in parts)} bytes came instead of {stop - start}")
        body[start:stop] = np.frombuffer(parts[0], dtype=np.uint8)
        self._filled = stop
        if stop < len(body):
            return None
        self._header = self._body = None
        return payload.message(header, body)
