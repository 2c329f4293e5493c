"""The receiving side of the file transport: one directory, read in the order of the numbers in the names."""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from pathlib import Path
from typing import NoReturn

import numpy as np

from coplace.training.messages import Message, MessageError, decode_header
from coplace.training.transport import payload
from coplace.training.transport.buffers import Buffers
from coplace.training.transport.endpoint import TransportError
from coplace.training.transport.faults import PASSING, Trouble
from coplace.training.transport.file_format import PREAMBLE, CorruptError, checksum, entry, parse_entry, parse_preamble

_FIRST_READ = 4096
"""Bytes read at first: a whole small message."""

_KEPT = 256 * 2**20
"""Bytes of memory kept for the next large messages."""

_log = logging.getLogger(__name__)


class _Lane:
    """What is known of one run of messages from one sender."""

    def __init__(self) -> None:
        self.next = 0  # number of the message to be delivered next
        self.listed: set[int] = set()  # numbers seen in the directory and not delivered
        self.sender = ""
        self.trouble: Trouble | None = None
        self.broken = False  # a message is lost for good: nothing may be delivered any more


class Inbox:
    """The messages in *directory*, which must be there.

    Args:
        deadline: seconds for which a message or the directory may be unreadable.

    Attributes:
        dropped: files that were no message.
    """

    def __init__(self, directory: Path, deadline: float) -> None:
        self._directory = directory
        self._deadline = deadline
        self._lanes: dict[str, _Lane] = {}
        self._turns: deque[str] = deque()  # lanes with something listed, which take turns
        self._trouble: Trouble | None = None  # with the directory itself
        self._foreign: set[str] = set()
        self._buffers = Buffers(_KEPT)
        self.dropped = 0

    def poll(self) -> Message | None:
        """The next message if there is one to be read now.

        Raises:
            TransportError: the directory or a message has been unreadable for longer than the deadline, or one is lost.
        """
        if not self._turns:
            self._list()
        while self._turns:
            name = self._turns.popleft()
            lane = self._lanes[name]
            if lane.trouble is not None and lane.trouble.waiting():
                continue  # it is listed again when all others have had their turn
            message = self._take(name, lane)
            if message is not None:
                lane.sender = message.sender
            if lane.trouble is None and lane.next in lane.listed:
                self._turns.append(name)
            if message is not None:
                return message
        return None

    def stir(self) -> None:
        """Make a client of NFS, which may keep a listing for half a minute, look at the server's directory again.

        A change to the directory that the client makes itself invalidates what it has kept.
        """
        try:
            os.utime(self._directory)
        except OSError:
            _log.debug("%s cannot be touched", self._directory, exc_info=True)

    def _list(self) -> None:
        if self._trouble is not None and self._trouble.waiting():
            return
        try:
            names = os.listdir(self._directory)
        except OSError as error:
            if self._trouble is None:
                self._trouble = Trouble(self._deadline)
            # An inbox that is missing may be there again, too, when a mount comes back.
            passing = error.errno in PASSING or error.errno in (errno.ENOENT, errno.ENOTDIR)
            if self._trouble.hopeless() or not passing:
                raise TransportError(f"the inbox {self._directory} cannot be read: {error.strerror}") from error
            return
        self._trouble = None
        found: dict[str, set[int]] = {}
        foreign = set()
        for name in names:
            parsed = parse_entry(name)
            if parsed is not None:
                found.setdefault(parsed[1], set()).add(parsed[0])
            elif not name.startswith("."):
                foreign.add(name)
        for name in sorted(foreign - self._foreign):
            self._drop(name, "its name is not that of a message", remove=False)
        self._foreign = foreign
        for name, lane in self._lanes.items():
            if name not in found:
                lane.listed.clear()
                lane.trouble = None
        for name in sorted(found):
            lane = self._lanes.setdefault(name, _Lane())
            for number in found[name]:
                if number < lane.next or lane.broken:
                    self._remove(entry(number, name))  # an earlier attempt failed, or the listing is old
            lane.listed = set() if lane.broken else {number for number in found[name] if number >= lane.next}
            if lane.listed:  # even where the next is not among them: the listing may have missed it
                self._turns.append(name)

    def _take(self, name: str, lane: _Lane) -> Message | None:
        """Read the next message of *lane* and remove its file; None if that does not work (yet)."""
        file = entry(lane.next, name)
        try:
            message = self._read(file, name)
        except (OSError, CorruptError) as error:
            if lane.trouble is None:
                lane.trouble = Trouble(self._deadline)
            if lane.trouble.hopeless():
                self._give_up(name, lane, error)
            return None
        self._advance(file, lane)
        return message

    def _give_up(self, name: str, lane: _Lane, error: OSError | CorruptError) -> None:
        file = entry(lane.next, name)
        if isinstance(error, CorruptError):
            self._drop(file, str(error))
            self._advance(file, lane)
            return
        if error.errno != errno.ENOENT:
            raise TransportError(f"{self._directory / file} cannot be read: {error.strerror}") from error
        later = min((number for number in lane.listed if number > lane.next), default=None)
        if later is None:  # it is listed, again and again, and yet not there
            self._lost(lane, lane.sender, f"message {lane.next} of {name}, in {self._directory}, cannot be opened")
        try:
            sender = self._read(entry(later, name), name).sender
        except CorruptError as wrong:  # nothing is missing then, but something is there that should not
            self._drop(entry(later, name), str(wrong))
            lane.listed.discard(later)
            lane.trouble = None
            return
        except OSError:
            return
        self._lost(
            lane, sender, f"message {lane.next} from {sender} is missing in {self._directory}, where message {later} is"
        )

    def _lost(self, lane: _Lane, sender: str, text: str) -> NoReturn:
        lane.broken = True
        lane.listed.clear()
        lane.trouble = None
        raise TransportError(text, sender)

    def _advance(self, file: str, lane: _Lane) -> None:
        lane.listed.discard(lane.next)
        lane.next += 1
        lane.trouble = None
        self._remove(file)

    def _read(self, file: str, lane: str) -> Message:
        """Read and check a file.

        A copy and no memory map, which would be faster: where a mapped file's server fails, the process is killed.
        """
        descriptor = os.open(self._directory / file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            first = os.read(descriptor, _FIRST_READ)
            told = parse_preamble(first)
            if told.file != size:
                raise CorruptError(f"it has {size} bytes instead of {told.file}")
            rest = told.file - len(first)
            head = PREAMBLE.size + told.header
            if len(first) < head:
                first += _read_all(descriptor, np.empty(head - len(first), dtype=np.uint8)).tobytes()
                rest = told.file - len(first)
            raw = first[PREAMBLE.size : head]
            body = self._buffers.take(told.payload)
            body[: len(first) - head] = np.frombuffer(first, dtype=np.uint8, offset=head)
            if rest:
                _read_all(descriptor, body[len(first) - head :])
        finally:
            os.close(descriptor)
        if checksum([raw, body]) != told.checksum:
            raise CorruptError("its checksum is wrong")
        if told.origin != lane[:16]:
            raise CorruptError("it comes from another sender than its name says")
        try:
            header = decode_header(raw)
            if payload.length(header) != told.payload:
                raise CorruptError("its arrays are not as long as it says")
            return payload.message(header, body)
        except MessageError as error:
            raise CorruptError(str(error)) from error

    def _drop(self, file: str, why: str, remove: bool = True) -> None:
        self.dropped += 1
        _log.warning("%s in %s is dropped: %s", file, self._directory, why)
        if remove:
            self._remove(file)

    def _remove(self, file: str) -> None:
        try:
            os.unlink(self._directory / file)
        except OSError:  # it is tried again when it is listed again
            _log.debug("%s cannot be removed", file, exc_info=True)


def _read_all(descriptor: int, into: np.ndarray) -> np.ndarray:
    done = 0
    while done < len(into):
        count = os.readv(descriptor, [into[done:].data])
        if count == 0:
            raise CorruptError(f"{len(into) - done} bytes are missing at its end")
        done += count
    return into
