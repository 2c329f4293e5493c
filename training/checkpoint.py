"""Checkpoints: one file is one consistent version of the parameters, the optimiser, the ledger and the facts."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import xxhash
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from coplace.instances.errors import InputError, Problem
from coplace.instances.files import PREFIX, replace_file

_LOG = logging.getLogger(__name__)

FORMAT = "coplace.checkpoint/v1"
_NAME = re.compile(r"checkpoint-([0-9]{9,})\.safetensors", re.ASCII)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One version of a training run.

    Attributes:
        version: number of the version; later ones are larger.
        layout: the layout's document.
        state: the whole vector under ``values`` and the optimiser's state beside it, none of them cut in shards.
        ledger: which samples are used up, in what JSON can hold.
        facts: whatever else is to be known again, in what JSON can hold.
    """

    version: int
    layout: dict[str, Any]
    state: dict[str, NDArray[Any]]
    ledger: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint and compare it with its checksum.

    Raises:
        InputError: the file cannot be read, is no checkpoint, or is damaged.
    """
    source = os.fspath(path)
    try:
        with safe_open(source, framework="numpy") as file:
            metadata = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
    except (OSError, SafetensorError) as error:
        raise _refused("cannot be read", str(error), source) from None
    if metadata.get("format") != FORMAT:
        raise _refused(f"must be a checkpoint of format {FORMAT}", str(metadata.get("format", "none")), source)
    document = metadata.get("document", "")
    if metadata.get("checksum") != _checksum(document, state):
        raise _refused("is damaged: its content does not match its checksum", "", source)
    content = json.loads(document)
    return Checkpoint(content["version"], content["layout"], state, content["ledger"], content["facts"])


class CheckpointStore:
    """The newest checkpoints of one run, in a directory of their own.

    A process killed while it writes leaves the earlier checkpoints as they are; what it had begun is removed when the
    directory is next opened. One process at a time may use a directory.

    Args:
        directory: made if it does not exist.
        keep: how many checkpoints are kept, at least 1.

    Raises:
        OSError: the directory cannot be made or read.
    """

    def __init__(self, directory: str | os.PathLike[str], keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"{keep} checkpoints cannot be kept; keep at least 1")
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        for leftover in self.directory.glob(f"{PREFIX}*.safetensors"):
            leftover.unlink(missing_ok=True)
        self._keep = keep
        self._damaged: set[int] = set()
        self._written: int | None = None
        self._writing = threading.Lock()
        self._changed = threading.Condition()
        self._waiting: Checkpoint | None = None
        self._busy = False
        self._closed = False
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None

    @property
    def written(self) -> int | None:
        """The newest version that this store has written; None before the first."""
        return self._written

    def versions(self) -> list[int]:
        """Versions in the directory, ascending, sound or not."""
        found = (_NAME.fullmatch(path.name) for path in self.directory.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def path(self, version: int) -> Path:
        """The file of *version*."""
        return self.directory / f"checkpoint-{version:09}.safetensors"

    def latest(self) -> Checkpoint | None:
        """The newest sound checkpoint; damaged newer ones are logged and passed over. None if there is none."""
        for version in reversed(self.versions()):
            try:
                return read_checkpoint(self.path(version))
            except InputError as error:
                _LOG.warning("passing over a checkpoint: %s", error)
                self._damaged.add(version)
        return None

    def write(self, checkpoint: Checkpoint) -> Path:
        """Write *checkpoint*, then remove those that are too many.

        Raises:
            InputError: the directory holds a newer version, of another run.
            OSError: the file cannot be written; the earlier ones are as they were.
            TypeError: JSON cannot hold what the ledger or the facts hold.
        """
        with self._writing:
            return self._write(checkpoint)

    def write_later(self, checkpoint: Checkpoint) -> None:
        """Have a thread write *checkpoint*, whose arrays must stay as they are meanwhile, and return at once.

        If the thread is still at an earlier one, this one waits, in the place of any other that was waiting.

        Raises:
            Exception: what an earlier write raised; *checkpoint* is nevertheless to be written.
            ValueError: the store is closed.
        """
        with self._changed:
            if self._closed:
                raise ValueError("the store of checkpoints is closed")
            self._waiting = checkpoint
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
                self._thread.start()
            self._raise_earlier()

    def flush(self) -> None:
        """Wait until all that :meth:`write_later` took is written; raises what a write raised."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is None and not self._busy)
            self._raise_earlier()

    def close(self) -> None:
        """Write what is waiting, end the thread, and raise what a write raised; a second call does nothing."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        with self._changed:
            self._raise_earlier()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting is not None or self._closed)
                if self._waiting is None:
                    return
                checkpoint, self._waiting = self._waiting, None
                self._busy = True
            try:
                self.write(checkpoint)
            except Exception as error:
                self._error = error
            del checkpoint  # it may be large
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _raise_earlier(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _write(self, checkpoint: Checkpoint) -> Path:
        target = self.path(checkpoint.version)
        sound = [version for version in self.versions() if version not in self._damaged]
        if sound and sound[-1] > checkpoint.version:
            mend = "give each run a directory of its own, or resume from the newest checkpoint"
            rule = f"must hold no checkpoint newer than the one to be written, {checkpoint.version}"
            raise InputError([Problem("checkpoints", rule, str(sound[-1]), mend)], str(self.directory))
        document = json.dumps(
            {
                "version": checkpoint.version,
                "layout": checkpoint.layout,
                "ledger": checkpoint.ledger,
                "facts": checkpoint.facts,
            }
        )
        state = {name: np.ascontiguousarray(array) for name, array in checkpoint.state.items()}
        metadata = {"format": FORMAT, "document": document, "checksum": _checksum(document, state)}
        replace_file(target, lambda temporary: save_file(state, temporary, metadata))
        _sync_directory(self.directory)
        self._damaged.discard(checkpoint.version)
        self._written = checkpoint.version
        kept = {*sound, checkpoint.version}
        for version in self._damaged | set(sorted(kept)[: -self._keep]):
            self.path(version).unlink(missing_ok=True)
        self._damaged.clear()
        return target


def _checksum(document: str, state: Mapping[str, NDArray[Any]]) -> str:
    """Hash (XXH3, 128 bits) of the document and of every array's name, type, shape and bytes."""
    total = xxhash.xxh3_128(document.encode())
    for name in sorted(state):
        array = np.ascontiguousarray(state[name])
        total.update(f"\n{name} {array.dtype.str} {list(array.shape)}\n".encode())
        total.update(array.reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def _sync_directory(directory: Path) -> None:
    """Make a rename survive a power failure, where the system can open directories."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        _LOG.debug("%s cannot be synchronised", directory)
    finally:
        os.close(descriptor)


def _refused(rule: str, found: str, source: str) -> InputError:
    return InputError([Problem("", rule, found)], source)
