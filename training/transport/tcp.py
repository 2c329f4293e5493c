"""Messages over TCP, by ZeroMQ: everyone listens at one port, and connects to those to whom it sends."""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import zmq

from coplace.training.messages import MOST_HEADER, Message, MessageError, encode
from coplace.training.transport import payload
from coplace.training.transport.buffers import Buffers
from coplace.training.transport.endpoint import TransportError, receivers
from coplace.training.transport.tcp_format import CHUNK, MAGIC, SHORT, STAMP, new_random, parse_address
from coplace.training.transport.tcp_guard import DOMAIN, Guard, password
from coplace.training.transport.tcp_lane import MOST_HELD, Lane
from coplace.training.transport.tcp_peer import Peer

_MOST_QUEUED = 16
"""Frames of one sender that may wait to be received; what more it sends waits in the network, then at the sender."""

_LINGER = 2.0
"""Seconds for which closing waits at most until the last messages are on their way."""

_KEPT = 256 * 2**20
"""Bytes of memory kept for the next large messages to be received, and half of it for those to be sent."""

_log = logging.getLogger(__name__)


class TcpEndpoint:
    """A mailbox at a TCP port; see ``Endpoint`` for what it does.

    Args:
        name: what receivers see as sender.
        host: name or number of this machine, as the others reach it.
        token: the job's secret.
        deadline: seconds for which a receiver may take nothing, or a frame may be missing between others.

    Raises:
        TransportError: no port can be had at this host.
    """

    def __init__(self, name: str, host: str, token: str, deadline: float = 30.0) -> None:
        self.name = name
        self.bytes_sent = 0
        self.bytes_received = 0
        self.dropped = 0
        self._owner = os.getpid()
        self._deadline = deadline
        self._password = password(token)
        random = new_random()
        self._origin = bytes.fromhex(random)
        self._peers: dict[str, Peer] = {}
        self._opened = 0
        self._lanes: dict[tuple[bytes, int], Lane] = {}
        self._gaps: set[tuple[bytes, int]] = set()  # lanes of which a frame is missing
        self._ready: deque[Message] = deque()
        self._incoming = Buffers(_KEPT)
        self._outgoing = Buffers(_KEPT // 2)
        self._closed = False
        # A context of its own, made where it is used: a process that was forked cannot use that of its parent.
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._guard = Guard(self._context, random.encode(), token)
        self._router = self._context.socket(zmq.ROUTER)
        self._router.linger = 0
        self._router.rcvhwm = _MOST_QUEUED
        self._router.maxmsgsize = max(MOST_HEADER, CHUNK)
        self._router.tcp_keepalive = 1
        self._router.plain_server = True
        self._router.zap_domain = DOMAIN
        try:
            number = _number_of(host)
            self._router.ipv6 = ":" in number
            where = f"tcp://[{number}]" if ":" in number else f"tcp://{number}"
            port = self._router.bind_to_random_port(where)
        except (OSError, zmq.ZMQError) as error:
            self.close()
            raise TransportError(f"no port can be had at {host}: {error.strerror}") from error
        self.address = f"{where}:{port}#{random}"

    @property
    def refused(self) -> int:
        """How many tried to connect without knowing the token."""
        return self._guard.refused

    def send(
        self,
        to: str | Sequence[str],
        kind: str,
        fields: Mapping[str, Any] | None = None,
        arrays: Sequence[np.ndarray] = (),
    ) -> None:
        """See ``Endpoint.send``. The arrays are copied once for all receivers, and sent behind the caller's back."""
        self._check()
        peers = [self._peer(address) for address in receivers(to)]
        header, flat = encode(kind, self.name, fields, arrays)
        pieces = payload.pieces(flat)
        length = sum(piece.nbytes for piece in pieces)
        if length <= SHORT:
            body = [b"".join(piece.tobytes() for piece in pieces)] if length else []
            self._give(peers, [header, *body])
        else:
            self._give(peers, [header])
            for chunk in _chunks(pieces, length, self._outgoing):
                self._give(peers, [chunk])
        self.bytes_sent += len(peers) * sum(array.nbytes for array in flat)

    def receive(self, timeout: float) -> Message | None:
        """See ``Endpoint.receive``."""
        self._check()
        end = time.monotonic() + timeout
        while not self._ready:
            left = end - time.monotonic()
            self._pump(max(0.0, min(left, 0.5) if self._gaps else left))
            self._look_for_losses()
            if left <= 0:
                break
        if not self._ready:
            return None
        message = self._ready.popleft()
        self.bytes_received += sum(array.nbytes for array in message.arrays)
        return message

    def forget(self, address: str) -> None:
        """See ``Endpoint.forget``. A message of which only a part has come will not be completed."""
        self._check()
        peer = self._peers.pop(address, None)
        if peer is not None:
            peer.close(0)
        origin = bytes.fromhex(parse_address(address)[1])
        while self._pump(0.0):  # what has come from it is still received
            pass
        for key, lane in self._lanes.items():
            if key[0] == origin:
                lane.break_off()
                self._gaps.discard(key)

    def close(self) -> None:
        """Close all connections, and wait briefly until what was sent is on its way.

        In a process forked from the owner it does nothing.
        """
        if self._closed or os.getpid() != self._owner:
            self._closed = True
            return
        self._closed = True
        for peer in self._peers.values():
            peer.close(_LINGER)
        self._router.close(0)
        self._context.term()
        self._guard.join()
        self._ready.clear()
        self._lanes.clear()

    def _check(self) -> None:
        if self._closed:
            raise TransportError(f"the mailbox of {self.name} is closed")

    def _peer(self, address: str) -> Peer:
        peer = self._peers.get(address)
        if peer is None:
            peer = Peer(self._context, address, self._origin, self._opened, self._password, self._deadline)
            self._peers[address] = peer
            self._opened += 1
        return peer

    def _give(self, peers: list[Peer], parts: Sequence[bytes | np.ndarray]) -> None:
        for peer in peers:
            if not peer.gone:
                # Two that send to each other more than may wait would both wait for ever, were nothing received.
                peer.send(parts, self._pump)

    def _pump(self, timeout: float) -> bool:
        """Take in what has come, waiting at most *timeout* seconds for something: whether there was anything."""
        came = False
        while self._router.poll(0 if came else math.ceil(timeout * 1000)):
            try:
                frames = self._router.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            came = True
            self._take([frame.buffer for frame in frames[1:]])  # the first names the connection
            if self._ready:
                break  # the rest can wait where it is, which is what bounds it
        return came

    def _take(self, parts: list[memoryview]) -> None:
        if len(parts) < 2 or parts[0].nbytes != STAMP.size:
            self._drop("it has no stamp")
            return
        magic, origin, count, number = STAMP.unpack(parts[0])
        if magic != MAGIC:
            self._drop("its stamp is wrong")
            return
        key = (origin, count)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(self._incoming)
        for result in lane.put(number, parts[1:]):
            if isinstance(result, MessageError):
                self._drop(str(result))
            else:
                self._ready.append(result)
        if lane.gap_since is not None:
            self._gaps.add(key)
        else:
            self._gaps.discard(key)

    def _look_for_losses(self) -> None:
        """Give up lanes of which a frame does not come.

        Raises:
            TransportError: there is one.
        """
        for key in self._gaps:
            lane = self._lanes[key]
            waited = time.monotonic() - (lane.gap_since or 0.0)
            if len(lane.held) >= MOST_HELD or waited >= self._deadline:
                self._gaps.discard(key)
                number, later = lane.next, min(lane.held)
                lane.break_off()
                raise TransportError(
                    f"frames {number} to {later - 1} from {lane.sender or 'a sender'} were lost with a connection",
                    lane.sender,
                )

    def _drop(self, why: str) -> None:
        self.dropped += 1
        _log.warning("a frame to %s is dropped: %s", self.name, why)


def _chunks(pieces: Sequence[np.ndarray], length: int, buffers: Buffers) -> Iterator[np.ndarray]:
    """Copies of the pieces, joined and cut again into chunks."""
    chunk, filled = buffers.take(min(CHUNK, length)), 0
    for piece in pieces:
        start = 0
        while start < len(piece):
            count = min(len(piece) - start, len(chunk) - filled)
            chunk[filled : filled + count] = piece[start : start + count]
            start += count
            filled += count
            if filled == len(chunk):
                yield chunk
                length -= filled
                if not length:
                    return
                chunk, filled = buffers.take(min(CHUNK, length)), 0


def _number_of(host: str) -> str:
    return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
