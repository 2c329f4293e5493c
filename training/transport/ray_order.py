"""Messages of several senders, each sender's in the order in which they were sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Stream(Generic[T]):
    """What came from one sender: the number of its connection, of the next message, and what came too early."""

    connection: int
    next: int = 0
    early: dict[int, T] = field(default_factory=dict)
    since: float = 0.0


class Order(Generic[T]):
    """Gives messages out in the order of their numbers, which start at 0 on each connection of a sender.

    What belongs to an older connection than has been seen, or came before, is dropped.
    """

    def __init__(self) -> None:
        self._streams: dict[str, _Stream[T]] = {}
        self._ready: deque[T] = deque()

    def put(self, sender: str, connection: int, number: int, message: T, now: float) -> None:
        """A message has come, at the time *now* in seconds."""
        stream = self._streams.get(sender)
        if stream is None or connection > stream.connection:
            stream = self._streams[sender] = _Stream(connection)
        if connection < stream.connection or number < stream.next:
            return
        if number > stream.next:
            if not stream.early:
                stream.since = now
            stream.early[number] = message
            return
        self._ready.append(message)
        stream.next += 1
        while stream.next in stream.early:
            self._ready.append(stream.early.pop(stream.next))
            stream.next += 1
            stream.since = now

    def take(self) -> T | None:
        """The next message."""
        return self._ready.popleft() if self._ready else None

    def forget(self, sender: str) -> None:
        """The sender is gone: what is missing does not come any more, nor what should have come after it."""
        stream = self._streams.get(sender)
        if stream is not None:
            stream.early.clear()

    def waiting_since(self, time: float) -> Iterable[str]:
        """Senders from which a message is missing, and was already at *time*."""
        return [sender for sender, stream in self._streams.items() if stream.early and stream.since <= time]
