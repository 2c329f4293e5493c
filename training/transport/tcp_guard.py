"""Who may connect: ZeroMQ's PLAIN mechanism with a secret of the job, asked for over ZAP (ZeroMQ RFC 24, 27)."""

from __future__ import annotations

import hashlib
import hmac
import threading

import zmq

DOMAIN = b"coplace"
"""The ZAP domain of all mailboxes."""

_REQUESTS = "inproc://zeromq.zap.01"  # where the library sends its questions
_VERSION = b"1.0"


def password(token: str) -> bytes:
    """What is sent in place of the token, since PLAIN takes at most 255 bytes."""
    return hashlib.sha256(b"coplace " + token.encode("utf-8", "surrogatepass")).hexdigest().encode()


class Guard:
    """Answers, in a thread of its own, whether someone who connects may do so.

    It must be there before the first socket is bound, and ends with the context.

    Args:
        context: the context whose sockets it guards.
        username: which mailbox the other must mean. Where a port has been given to another process meanwhile, those
            who still look for the former owner are thus turned away.
        token: the secret of the job.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], username: bytes, token: str) -> None:
        self._expected = [username, password(token)]
        self._socket = context.socket(zmq.REP)
        self._socket.linger = 0
        self._socket.bind(_REQUESTS)
        self.refused = 0
        self._thread = threading.Thread(target=self._run, name="coplace-guard", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the end, after the context was told to terminate."""
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                self._socket.send_multipart(self._answer(self._socket.recv_multipart()))
        except zmq.ZMQError:  # the context terminates
            self._socket.close(0)

    def _answer(self, request: list[bytes]) -> list[bytes]:
        version, number, domain, _, _, mechanism, *credentials = [*request, *[b""] * (6 - len(request))]
        welcome = (
            (version, domain, mechanism) == (_VERSION, DOMAIN, b"PLAIN")
            and len(credentials) == len(self._expected)
            # In a time that does not depend on where they differ.
            and hmac.compare_digest(b"\0".join(credentials), b"\0".join(self._expected))
        )
        if welcome:
            return [_VERSION, number, b"200", b"OK", b"", b""]
        self.refused += 1
        return [_VERSION, number, b"400", b"not of this job", b"", b""]
