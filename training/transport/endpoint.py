"""What every transport offers: a mailbox with an address, to which others send messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from coplace.training.messages import Message


class TransportError(Exception):
    """The medium failed for longer than its deadline.

    Attributes:
        peer: name of the one sender whose messages are affected, with whom no further message is exchanged by this
            endpoint while others go on; empty if the medium itself is gone.
    """

    def __init__(self, text: str, peer: str = "") -> None:
        self.peer = peer
        super().__init__(text)


def receivers(to: str | Sequence[str]) -> list[str]:
    """The addresses that a message goes to, each once."""
    return [to] if isinstance(to, str) else list(dict.fromkeys(to))


class Endpoint(Protocol):
    """The mailbox of one process; to be used by one thread of the process that opened it.

    Messages from one sender to one receiver arrive in the order in which they were sent, and none without all before
    it, except those that were dropped as corrupt.

    Attributes:
        address: where others send to: an opaque string of one line. No two endpoints ever have the same, not even two
            incarnations of one task.
        bytes_sent: bytes of arrays sent since the start, once for every receiver.
        bytes_received: bytes of arrays received since the start.
    """

    address: str
    bytes_sent: int
    bytes_received: int

    @property
    def dropped(self) -> int:
        """Messages dropped since the start because they were corrupt or foreign."""

    def send(
        self,
        to: str | Sequence[str],
        kind: str,
        fields: Mapping[str, Any] | None = None,
        arrays: Sequence[np.ndarray] = (),
    ) -> None:
        """Send a message to one address or several; what goes to a peer that is gone is silently lost.

        The arrays may be modified as soon as this returns. It waits where the medium is slow, within a deadline.

        Raises:
            TransportError: the medium failed for longer than the deadline.
            coplace.training.messages.MessageError: the message cannot be encoded; nothing was sent.
        """

    def receive(self, timeout: float) -> Message | None:
        """The next message, or None when none came within *timeout* seconds (0: look once).

        The arrays are the caller's to keep; they may be read-only.

        Raises:
            TransportError: the medium failed for longer than the deadline, or lost a message.
        """

    def forget(self, address: str) -> None:
        """Drop the connection to a peer that is gone, and what was sent to it and not yet delivered.

        What has come from it is still received. Sending to the address again starts anew.
        """

    def close(self) -> None:
        """Give back everything, what has not been received included; closing twice is harmless."""
