"""What goes over the wire with TCP: frames, numbered without gaps from each sender to each receiver.

A message begins with a frame of a stamp and its header, and of the payload where that is short. A longer payload
follows in frames of a stamp and a chunk each. In chunks the copying on both sides goes on while the network is busy,
and what waits for a receiver that is busy itself has a bound.
"""

from __future__ import annotations

import re
import secrets
import struct

STAMP = struct.Struct("<8s8sIxxxxQ")
"""Magic number, random part of the sender, count of its lanes, number of the frame in this lane."""

MAGIC = b"coplace1"

CHUNK = 4 * 2**20
"""Bytes of a chunk; of 0.25 to 100 MB the fastest: larger ones get new pages from the system every time."""

SHORT = 64 * 2**10
"""Bytes of payload up to which it goes with the header."""

_ADDRESS = re.compile(r"(tcp://[^\s#]+)#([0-9a-f]{16})")


def new_random() -> str:
    """The part of an address that no other endpoint has ever had."""
    return secrets.token_hex(8)


def parse_address(address: str) -> tuple[str, str]:
    """Where to connect and the random part.

    Raises:
        ValueError: it is no address of this transport.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise ValueError(f"{address!r} is no address of the TCP transport")
    return match[1], match[2]
