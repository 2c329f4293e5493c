"""The connection to one receiver over TCP."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import zmq
from zmq.utils.monitor import recv_monitor_message

from coplace.training.transport.tcp_format import MAGIC, STAMP, parse_address

_MOST_BYTES = 256 * 2**20
"""Bytes that may wait for one receiver; who sends more waits."""

_MOST_FRAMES = 4000
"""Frames that may wait for one receiver."""

_GRACE = 2.0
"""Seconds after which a receiver to which there is no connection is not waited for."""

_STEP = 0.001
"""Seconds between two looks whether what waits has become less."""

_EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_DISCONNECTED
)

_log = logging.getLogger(__name__)


class Peer:
    """A connection for sending.

    Args:
        context: of this process.
        address: of the receiver.
        origin: random part of the sender's own address, 8 bytes.
        lane: how many connections the sender has opened before.
        password: the secret to show.
        deadline: seconds for which the receiver may take nothing.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: str,
        origin: bytes,
        lane: int,
        password: bytes,
        deadline: float,
    ) -> None:
        where, username = parse_address(address)
        self._address = address
        self._origin = origin
        self._lane = lane
        self._deadline = deadline
        self._next = 0
        self._waiting: deque[tuple[zmq.MessageTracker, int]] = deque()  # what the network has not taken, with its bytes
        self._waiting_bytes = 0
        self._connected = False
        self._unconnected_since = time.monotonic()
        self._failed = False  # whether connecting failed, or the connection broke, and was not renewed since
        self.gone = False
        self._socket = context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.sndhwm = _MOST_FRAMES
        self._socket.rcvhwm = 1  # nothing is ever received here
        self._socket.ipv6 = "[" in where
        self._socket.reconnect_ivl = 100  # ms
        self._socket.reconnect_ivl_max = 5000
        # Only the sender's side asks for a sign of life, which it can tell after its own frame is on its way. It is
        # patient: a connection that breaks loses what is on it, and who is really gone is found out elsewhere.
        self._socket.heartbeat_ivl = 5000
        self._socket.heartbeat_timeout = 60000
        self._socket.tcp_keepalive = 1
        self._socket.plain_username = username.encode()
        self._socket.plain_password = password
        events = f"inproc://peer-{lane}"
        self._socket.monitor(events, _EVENTS)
        self._events = context.socket(zmq.PAIR)
        self._events.linger = 0
        self._events.rcvhwm = 0  # else the library would stop when nobody looks
        self._events.connect(events)
        self._socket.connect(where)

    def send(self, parts: Sequence[bytes | np.ndarray], meanwhile: Callable[[float], object]) -> None:
        """Send a frame of a stamp and *parts*; bytes are copied, arrays must not be modified before they are sent.

        It waits while too much is waiting already, and calls *meanwhile* with a time in seconds again and again. A
        receiver that takes nothing within the deadline is gone from then on.
        """
        stamp = STAMP.pack(MAGIC, self._origin, self._lane, self._next)
        frames = [zmq.Frame(stamp)]
        trackers = []
        for part in parts:
            if isinstance(part, bytes):
                frames.append(zmq.Frame(part))
            else:
                frame = zmq.Frame(part.data, track=True, copy=False)
                trackers.append((frame.tracker, part.nbytes))
                frames.append(frame)
        end = time.monotonic() + self._deadline
        while not self.gone:
            if self._room():
                try:
                    self._socket.send_multipart(frames, flags=zmq.NOBLOCK, copy=False)
                except zmq.Again:
                    pass
                else:
                    self._next += 1
                    for tracker, nbytes in trackers:
                        self._waiting.append((tracker, nbytes))
                        self._waiting_bytes += nbytes
                    return
            if time.monotonic() >= end or self._given_up():
                _log.warning("%s takes no messages; what is sent to it from now on is lost", self._address)
                self.close(0)
                self.gone = True
                return
            meanwhile(_STEP)

    def close(self, linger: float) -> None:
        """Close the connection; what waits is still sent, for *linger* seconds after the context terminates.

        There is nothing to wait for where the receiver was reached once and is not any more, or turns us away.
        """
        if not self.gone:
            self._look()
            self._socket.disable_monitor()
            self._events.close(0)
            self._socket.close(0 if self._failed else int(linger * 1000))
        self._waiting.clear()

    def _room(self) -> bool:
        while self._waiting and self._waiting[0][0].done:
            self._waiting_bytes -= self._waiting.popleft()[1]
        return self._waiting_bytes <= _MOST_BYTES

    def _given_up(self) -> bool:
        self._look()
        return not self._connected and time.monotonic() - self._unconnected_since >= _GRACE

    def _look(self) -> None:
        while self._events.poll(0):
            event = recv_monitor_message(self._events, zmq.NOBLOCK)["event"]
            self._connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            if self._failed and not self._connected:
                continue
            self._failed = not self._connected
            self._unconnected_since = time.monotonic()
