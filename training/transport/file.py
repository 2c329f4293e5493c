"""Messages through a file system that all machines share, as ParaisoML exchanges them."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coplace.training.messages import Message, encode
from coplace.training.transport import payload
from coplace.training.transport.endpoint import TransportError, receivers
from coplace.training.transport.file_format import new_address
from coplace.training.transport.file_inbox import Inbox
from coplace.training.transport.file_outbox import Outbox

_SHORTEST, _LONGEST = 0.0002, 0.005
"""Seconds between two looks into the inbox: right after something happened, and when nothing has for long."""

_GROWTH = 1.05
"""Factor from one pause to the next."""

_STIRRING = 1.0
"""Seconds without a message after which the directory's listing is renewed."""

_log = logging.getLogger(__name__)


class FileEndpoint:
    """A mailbox that is a directory within *directory*; see ``Endpoint`` for what it does.

    Args:
        name: what receivers see as sender.
        directory: the same for all processes of a job and for no other job; made if it is missing.
        deadline: seconds for which the file system may fail or show old contents.

    Raises:
        TransportError: the directory cannot be made.
    """

    def __init__(self, name: str, directory: Path, deadline: float = 30.0) -> None:
        self.name = name
        self.address = new_address(name)
        self.bytes_sent = 0
        self.bytes_received = 0
        self._owner = os.getpid()
        self._inbox_path = Path(directory) / self.address
        try:
            Path(directory).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._inbox_path.mkdir(mode=0o700)
        except OSError as error:
            raise TransportError(f"the inbox {self._inbox_path} cannot be made: {error.strerror}") from error
        self._inbox = Inbox(self._inbox_path, deadline)
        self._outbox = Outbox(Path(directory), self.address, deadline)
        self._pause = _SHORTEST
        self._stirred = time.monotonic()
        self._closed = False

    @property
    def dropped(self) -> int:
        """Files in the inbox that were no message."""
        return self._inbox.dropped

    def send(
        self,
        to: str | Sequence[str],
        kind: str,
        fields: Mapping[str, Any] | None = None,
        arrays: Sequence[np.ndarray] = (),
    ) -> None:
        """See ``Endpoint.send``."""
        self._check()
        addresses = receivers(to)
        header, flat = encode(kind, self.name, fields, arrays)
        self._outbox.send(addresses, header, payload.pieces(flat))
        self.bytes_sent += len(addresses) * sum(array.nbytes for array in flat)
        self._pause = _SHORTEST  # there may soon be an answer

    def receive(self, timeout: float) -> Message | None:
        """See ``Endpoint.receive``. It looks into the inbox again and again, more rarely as time passes."""
        self._check()
        end = time.monotonic() + timeout
        while True:
            message = self._inbox.poll()
            now = time.monotonic()
            if message is not None:
                self.bytes_received += sum(array.nbytes for array in message.arrays)
                self._pause = _SHORTEST
                self._stirred = now
                return message
            if now - self._stirred >= _STIRRING:
                self._stirred = now
                self._inbox.stir()
            if now >= end:
                return None
            time.sleep(min(self._pause, end - now))
            self._pause = min(self._pause * _GROWTH, _LONGEST)

    def forget(self, address: str) -> None:
        """See ``Endpoint.forget``."""
        self._check()
        self._outbox.forget(address)

    def close(self) -> None:
        """Remove the inbox with all that is in it; in a process forked from the owner it does nothing."""
        if not self._closed and os.getpid() == self._owner:
            _remove_tree(self._inbox_path)
        self._closed = True

    def _check(self) -> None:
        if self._closed:
            raise TransportError(f"the mailbox of {self.name} is closed")


def clean(directory: Path) -> None:
    """Remove all that is in *directory*, such as the inboxes of processes that died; it stays itself."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    for name in names:
        path = Path(directory) / name
        if path.is_dir() and not path.is_symlink():
            _remove_tree(path)
        else:
            path.unlink(missing_ok=True)


def _remove_tree(path: Path) -> None:
    # Others may be writing into it meanwhile, so that it is not empty when its turn comes.
    for _ in range(20):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(0.005)
    _log.warning("%s cannot be removed", path)
