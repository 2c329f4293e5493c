"""Messages through Ray: a mailbox is an actor, a message a call of its method ``deliver``.

Ray moves the arrays: small ones go with the call, large ones through the object store, where a receiver on the same
machine reads them without a copy, and where several receivers share one. Arrays of numpy are all that Ray is given to
pickle, and they bring no code.

A task is an actor itself, and receives what was put into its own process. The coordinator is no actor; it has one of
its own on its machine that takes its mail, and always has a request for the next mail under way.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from coplace.training.messages import Message, MessageError, decode_header, encode
from coplace.training.transport.endpoint import TransportError, receivers
from coplace.training.transport.ray_order import Order

NAMESPACE = "coplace"
"""Ray's namespace of all actors of all jobs."""

INLINE = 100_000
"""Bytes up to which Ray sends an array with the call; larger ones that several receive are stored once."""

_MOST_MAIL = 64 * 2**20
"""Bytes of arrays from which on the coordinator's mail is brought in several parts."""

_LOOK_SECONDS = 1.0
"""How often is looked whether messages are missing."""

_ANSWER_SECONDS = 5.0
"""How long an actor is waited for that should say whether it is there."""

Mail = tuple[bytes, tuple[np.ndarray, ...]]
"""An envelope and the arrays, as they are delivered."""


def actor_name(token: str, name: str) -> str:
    """Ray's name of the actor of a task, or of the coordinator, in the job with this *token*."""
    return f"coplace-{token[:12]}-{name}"


class Mailbox:
    """An actor to which others can send; only one can be in a process.

    The default concurrency group, in which ``deliver`` runs, must have one thread. Ray then runs the calls of a sender
    in their order but for those that it tries again: https://docs.ray.io/en/latest/ray-core/actors/task-orders.html
    """

    here: Mailbox | None = None

    def __init__(self, actor: str) -> None:
        self.actor = actor
        self._incarnation = f"{os.getpid()}.{secrets.token_hex(4)}"
        self.mail: queue.SimpleQueue[Mail] = queue.SimpleQueue()
        self.closed = False
        Mailbox.here = self

    @property
    def address(self) -> str:
        """Where others send to: the actor, and its incarnation, since a restarted actor keeps its name."""
        return f"{self.actor}@{self._incarnation}"

    def deliver(self, incarnation: str, envelope: bytes, *arrays: np.ndarray) -> None:
        """Take a message, unless it is for an earlier incarnation."""
        if incarnation == self._incarnation and not self.closed:
            self.mail.put((envelope, arrays))

    def whereabouts(self) -> str:
        """The address, for those who wonder whether it is still good."""
        return self.address


class CoordinatorMailbox(Mailbox):
    """The actor that takes the coordinator's mail; ``take`` needs a thread of its own."""

    def take(self) -> list[Mail]:
        """All mail there is, or a part of it if it is much; waits for the first message."""
        mail = [self.mail.get()]
        size = _bytes(mail[0])
        with contextlib.suppress(queue.Empty):
            while size < _MOST_MAIL:
                mail.append(self.mail.get_nowait())
                size += _bytes(mail[-1])
        return mail


@dataclass(slots=True)
class _Peer:
    """A receiver: how it is called, the number of the connection, and of the next message on it."""

    deliver: Any
    incarnation: str
    connection: int
    next: int = 0


class RayEndpoint:
    """A mailbox in this process, which must be an actor's or a driver's; see ``Endpoint`` for what it does.

    Args:
        name: what receivers see as sender.
        token: of the job; names its actors.
        deadline: seconds for which a message that is missing between others is waited for.

    Raises:
        TransportError: Ray is not connected, or makes no mailbox.
    """

    def __init__(self, name: str, token: str, deadline: float = 30.0) -> None:
        self.name = name
        self.bytes_sent = 0
        self.bytes_received = 0
        self.dropped = 0
        self._deadline = deadline
        self._peers: dict[str, _Peer] = {}
        self._connections = 0
        self._order: Order[Message] = Order()
        self._look_at = 0.0
        self._closed = False
        self._source: _Own | _Remote
        try:
            own = Mailbox.here
            self._source = _Remote(actor_name(token, name)) if own is None else _Own(own)
        except (RayError, ValueError, RuntimeError) as error:
            raise TransportError(f"Ray makes no mailbox for {name}: {error}") from error
        self.address = self._source.address

    def send(
        self,
        to: str | Sequence[str],
        kind: str,
        fields: Mapping[str, Any] | None = None,
        arrays: Sequence[np.ndarray] = (),
    ) -> None:
        """See ``Endpoint.send``. It never waits for a receiver: what that has not taken waits in memory."""
        self._check()
        addresses = receivers(to)
        header, flat = encode(kind, self.name, fields, arrays)
        peers = [peer for peer in map(self._peer, addresses) if peer is not None]
        try:
            parts: list[Any] = list(flat)
            if len(peers) > 1:
                parts = [ray.put(array) if array.nbytes > INLINE else array for array in flat]
            for peer in peers:
                about = json.dumps([self.address, peer.connection, peer.next]).encode()
                peer.next += 1
                peer.deliver.remote(peer.incarnation, about + b"\n" + header, *parts)
        except RayError as error:
            raise TransportError(f"Ray does not take a message of {self.name}: {error}") from error
        self.bytes_sent += len(addresses) * sum(array.nbytes for array in flat)

    def receive(self, timeout: float) -> Message | None:
        """See ``Endpoint.receive``."""
        self._check()
        end = time.monotonic() + timeout
        while True:
            message = self._order.take()
            if message is not None:
                self.bytes_received += sum(array.nbytes for array in message.arrays)
                return message
            now = time.monotonic()
            if now >= self._look_at:
                self._look_at = now + _LOOK_SECONDS
                self._look_for_holes(now - self._deadline)
            mail = self._source.get(max(0.0, end - now))
            if mail is not None:
                self._sort(mail)
            elif time.monotonic() >= end:
                return None

    def forget(self, address: str) -> None:
        """See ``Endpoint.forget``. What is on its way to the peer is not called back."""
        self._check()
        self._peers.pop(address, None)
        self._order.forget(address)

    def close(self) -> None:
        """See ``Endpoint.close``."""
        if not self._closed:
            self._closed = True
            self._source.close()
            self._peers.clear()

    def _peer(self, address: str) -> _Peer | None:
        peer = self._peers.get(address)
        if peer is None:
            handle = _handle(address)
            if handle is None:
                return None
            self._connections += 1
            # A sender may take a receiver for dead for a moment when Ray has just started it again: Ray must try again.
            # What comes twice, or late, is put in order by the receiver.
            deliver = handle.deliver.options(num_returns=0, max_task_retries=-1, enable_task_events=False)
            peer = self._peers[address] = _Peer(deliver, address.rpartition("@")[2], self._connections)
        return peer

    def _sort(self, mail: Mail) -> None:
        envelope, arrays = mail
        about, _, raw = envelope.partition(b"\n")
        try:
            sender, connection, number = json.loads(about)
            message = decode_header(raw).message(arrays)
        except (MessageError, ValueError, TypeError):
            self.dropped += 1
            return
        self._order.put(sender, connection, number, message, time.monotonic())

    def _look_for_holes(self, since: float) -> None:
        """Where a message is missing for long, the sender has died with it, or Ray has lost it."""
        for sender in self._order.waiting_since(since):
            self._order.forget(sender)
            handle = _handle(sender)
            if handle is None:
                continue
            with contextlib.suppress(RayError):
                if ray.get(handle.whereabouts.remote(), timeout=_ANSWER_SECONDS) == sender:
                    name = sender.rpartition("@")[0]
                    raise TransportError(f"Ray has lost a message of {name} to {self.name}", name)

    def _check(self) -> None:
        if self._closed:
            raise TransportError(f"the mailbox of {self.name} is closed")


class _Own:
    """Mail of the actor whose process this is."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self.address = mailbox.address

    def get(self, timeout: float) -> Mail | None:
        try:
            return self._mailbox.mail.get(timeout=timeout) if timeout > 0 else self._mailbox.mail.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        self._mailbox.closed = True


class _Remote:
    """Mail of a process that is no actor: an actor on the same node takes it."""

    def __init__(self, actor: str) -> None:
        node = ray.get_runtime_context().get_node_id()
        self._actor = (
            ray.remote(concurrency_groups={"take": 1})(CoordinatorMailbox)
            .options(
                name=actor,
                namespace=NAMESPACE,
                num_cpus=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
            )
            .remote(actor)
        )
        self.address: str = ray.get(self._actor.whereabouts.remote())
        self._take = self._actor.take.options(concurrency_group="take", enable_task_events=False)
        self._mail: deque[Mail] = deque()
        self._next = self._take.remote()

    def get(self, timeout: float) -> Mail | None:
        if not self._mail:
            try:
                ready, _ = ray.wait([self._next], timeout=timeout)
                if not ready:
                    return None
                self._mail.extend(ray.get(self._next))
                self._next = self._take.remote()
            except RayError as error:
                raise TransportError(f"the mailbox at Ray is gone: {error}") from error
        return self._mail.popleft()

    def close(self) -> None:
        with contextlib.suppress(RayError):
            ray.kill(self._actor)


def _handle(address: str) -> Any:
    """The actor of an address, or None if there is none."""
    try:
        return ray.get_actor(address.rpartition("@")[0], namespace=NAMESPACE)
    except ValueError:
        return None


def _bytes(mail: Mail) -> int:
    return sum(array.nbytes for array in mail[1])
