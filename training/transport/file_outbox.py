"""The sending side of the file transport: files that appear whole in the inboxes of others."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from coplace.training.transport.endpoint import TransportError
from coplace.training.transport.faults import NO_LINKS, PASSING, Trouble
from coplace.training.transport.file_format import entry, origin_of, parse_entry, preamble

_MOST_PIECES = 512
"""Pieces written by one call of the system, which allows 1024."""

_log = logging.getLogger(__name__)


class _Lane:
    """The run of messages to one receiver."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.next = 0


class Outbox:
    """Writes to the inboxes that are in *directory*, as the sender with the address *address*.

    Args:
        deadline: seconds for which the file system may fail.
    """

    def __init__(self, directory: Path, address: str, deadline: float) -> None:
        self._directory = directory
        self._origin = origin_of(address)
        self._deadline = deadline
        self._lanes: dict[str, _Lane] = {}
        self._opened = 0

    def send(self, to: Sequence[str], header: bytes, payload: list[np.ndarray]) -> None:
        """Write the message into every inbox that is there: the bytes once, the other inboxes get hard links to them.

        Raises:
            TransportError: the file system failed for longer than the deadline.
        """
        content = [np.frombuffer(preamble(self._origin, header, payload) + header, dtype=np.uint8), *payload]
        source: Path | None = None
        first = ""
        try:
            for address in to:
                lane = self._lane(address)
                if source is None:
                    source = self._write(address, lane, content)
                    first = address
                else:
                    self._link(source, address, lane, content)
            if source is not None:
                self._reveal(source, first, self._lanes[first])
        except BaseException:
            if source is not None:
                _remove(source)
            raise

    def forget(self, address: str) -> None:
        """Take back what was sent to *address* and not yet received, and begin anew with it."""
        lane = self._lanes.pop(address, None)
        if lane is None:
            return
        try:
            names = os.listdir(self._directory / address)
        except OSError:
            return
        # The last first, so that never one is missing before another.
        for name in sorted(names, reverse=True):
            parsed = parse_entry(name)
            if parsed is not None and parsed[1] == lane.name:
                _remove(self._directory / address / name)

    def _lane(self, address: str) -> _Lane:
        lane = self._lanes.get(address)
        if lane is None:
            origin_of(address)
            lane = self._lanes[address] = _Lane(f"{self._origin}-{self._opened:x}")
            self._opened += 1
        return lane

    def _write(self, address: str, lane: _Lane, content: list[np.ndarray]) -> Path | None:
        """Write the message under a name that the receiver passes over; None if the receiver is gone."""
        path = self._directory / address / f".{entry(lane.next, lane.name)}"

        def write() -> None:
            # No fsync: a message need not outlive the machine, only appear whole, for which the renaming cares.
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                _write_all(descriptor, content)
            finally:
                os.close(descriptor)  # a network file system may fail only here

        try:
            return path if self._try(write, path) else None
        except BaseException:
            _remove(path)
            raise

    def _link(self, source: Path, address: str, lane: _Lane, content: list[np.ndarray]) -> None:
        inbox = self._directory / address
        target = inbox / entry(lane.next, lane.name)
        tried = 0

        def link() -> None:
            nonlocal tried
            tried += 1
            try:
                os.link(source, target)
            except FileExistsError:
                if tried == 1:  # else an attempt of which failure was reported did succeed
                    raise

        try:
            if self._try(link, target):
                lane.next += 1
                return
            if not inbox.exists():
                return
            # It is there, so it is the source that is gone, with the inbox of the first receiver.
        except _NoLinkError:
            pass
        own = self._write(address, lane, content)
        if own is not None:
            self._reveal(own, address, lane)

    def _reveal(self, path: Path, address: str, lane: _Lane) -> None:
        # Only the sender removes what is still being written, so where it is not there the renaming did succeed
        # though failure was reported, or the inbox is gone.
        target = self._directory / address / entry(lane.next, lane.name)
        self._try(lambda: os.rename(path, target), target)
        lane.next += 1

    def _try(self, action: Callable[[], None], path: Path) -> bool:
        """Do it, again where that may help; False where the directory is not there."""
        trouble: Trouble | None = None
        while True:
            try:
                action()
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR):
                    return False
                if error.errno in NO_LINKS:
                    raise _NoLinkError(f"{path} cannot be written: {error.strerror}") from error
                trouble = trouble or Trouble(self._deadline)
                if trouble.hopeless() or error.errno not in PASSING:
                    raise TransportError(f"{path} cannot be written: {error.strerror}") from error
                trouble.sleep()
            else:
                return True


class _NoLinkError(TransportError):
    """The file system refuses what may be a matter of hard links only."""


def _write_all(descriptor: int, content: list[np.ndarray]) -> None:
    left = [piece.data for piece in content]
    left.reverse()
    while left:
        count = os.writev(descriptor, left[: -_MOST_PIECES - 1 : -1])
        while left and count >= left[-1].nbytes:
            count -= left.pop().nbytes
        if count:
            left[-1] = left[-1][count:]


def _remove(path: Path) -> None:
    try:
        os.unlink(path)
    except OSError:
        _log.debug("%s cannot be removed", path, exc_info=True)
