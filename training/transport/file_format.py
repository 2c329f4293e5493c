"""Names and content of the files by which messages travel.

An inbox is a directory ``NAME~RANDOM``, and this is also the address of its owner. A message is a file in it,
``NUMBER.LANE``: a lane is one run of messages from one sender to one receiver, numbered from 0 in hexadecimal, named
by the sender's random part and a count. What begins with a dot is still being written.

A file holds the preamble, the header and the payload. The checksum is over header and payload, so that a file of
which a part is not there yet, or wrong, is told from a whole one.
"""

from __future__ import annotations

import re
import secrets
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

import numpy as np
import xxhash

PREAMBLE = struct.Struct("<8s8sIxxxxQQ")
"""Magic number, random part of the sender, length of the header, of the payload (bytes), checksum."""

MAGIC = b"coplace1"

_ADDRESS = re.compile(r"[^/\0\n]{1,200}~([0-9a-f]{16})")
_ENTRY = re.compile(r"([0-9a-f]{16})\.([0-9a-f]{16}-[0-9a-f]+)")


class CorruptError(Exception):
    """A file that is no message, or none yet."""


@dataclass(frozen=True, slots=True)
class Preamble:
    """What a file says of itself: lengths in bytes."""

    origin: str
    header: int
    payload: int
    checksum: int

    @property
    def file(self) -> int:
        """Length of the whole file."""
        return PREAMBLE.size + self.header + self.payload


def new_address(name: str) -> str:
    """An address for the endpoint *name* that no other has ever had."""
    return f"{quote(name, safe='')[:150] or 'endpoint'}~{secrets.token_hex(8)}"


def origin_of(address: str) -> str:
    """The random part of an address.

    Raises:
        ValueError: it is no address of this transport.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or address.startswith("."):
        raise ValueError(f"{address!r} is no address of the file transport")
    return match[1]


def entry(number: int, lane: str) -> str:
    """Name of the file of message *number* of *lane*."""
    return f"{number:016x}.{lane}"


def parse_entry(name: str) -> tuple[int, str] | None:
    """Number and lane of the message in the file *name*; None if it is no such name."""
    match = _ENTRY.fullmatch(name)
    return (int(match[1], 16), match[2]) if match else None


def checksum(parts: Iterable[bytes | memoryview | np.ndarray]) -> int:
    """XXH3 of 64 bits over the parts in their order: finds accidents, no malice, at the speed of memory."""
    digest = xxhash.xxh3_64()
    for part in parts:
        digest.update(part.data if isinstance(part, np.ndarray) else part)
    return digest.intdigest()


def preamble(origin: str, header: bytes, payload: list[np.ndarray]) -> bytes:
    """The preamble of a message from the sender whose random part is *origin*."""
    size = sum(piece.nbytes for piece in payload)
    return PREAMBLE.pack(MAGIC, bytes.fromhex(origin), len(header), size, checksum([header, *payload]))


def parse_preamble(raw: bytes) -> Preamble:
    """What the first bytes of a file say.

    Raises:
        CorruptError: they are no preamble.
    """
    if len(raw) < PREAMBLE.size:
        raise CorruptError("it is too short")
    magic, origin, header, payload, digest = PREAMBLE.unpack_from(raw)
    if magic != MAGIC:
        raise CorruptError("it does not begin like a message")
    return Preamble(origin.hex(), header, payload, digest)
