"""Which errors of a file system pass, and how long they are waited for."""

from __future__ import annotations

import errno
import time

PASSING = frozenset(
    {
        errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ENOSPC, errno.EDQUOT,
        errno.ENOBUFS, errno.ENOMEM, errno.ENFILE, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN,
        errno.ENETUNREACH, errno.ENOTCONN, errno.ECONNRESET, errno.EREMOTEIO,
    }
)  # fmt: skip
"""Errors after which a file system, above all one across the network, may well work again."""

NO_LINKS = frozenset({errno.EPERM, errno.EXDEV, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})
"""Errors by which a file system says that it makes no hard link here."""


class Trouble:
    """Something that does not work and is tried again, ever more rarely.

    Args:
        deadline: seconds after which it is given up.
    """

    _first, _longest = 0.002, 0.5  # seconds between attempts

    def __init__(self, deadline: float) -> None:
        self._end = time.monotonic() + deadline
        self._pause = self._first
        self._again = 0.0

    def waiting(self) -> bool:
        """Whether it is too early for the next attempt."""
        return time.monotonic() < self._again

    def hopeless(self) -> bool:
        """Note an attempt that failed: whether the deadline has passed."""
        now = time.monotonic()
        self._again = min(now + self._pause, max(self._end, now + self._first))  # one attempt at the deadline itself
        self._pause = min(self._pause * 1.5, self._longest)
        return now >= self._end

    def sleep(self) -> None:
        """Wait for the next attempt."""
        time.sleep(max(0.0, self._again - time.monotonic()))
