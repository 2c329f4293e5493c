"""Checkpoints survive damage, kills and disks that fail."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coplace.instances.errors import InputError
from coplace.training import checkpoint as module
from coplace.training.checkpoint import Checkpoint, CheckpointStore, read_checkpoint


def version(number: int, size: int = 100) -> Checkpoint:
    values = np.full(size, number, np.float32)
    state = {"values": values, "exp_avg": values[::-1] + 1, "step": np.array([number], np.float32)}
    return Checkpoint(number, {"parameters": size}, state, {"epoch": 2, "left": [[0, 5]]}, {"seed": 3, "loss": 0.1})


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_is_written_is_read_and_the_newest_are_kept(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "deep" / "er", keep=2)
    assert store.latest() is None
    for number in (1, 2, 123):
        path = store.write(version(number))
    assert files(store.directory) == ["checkpoint-000000002.safetensors", "checkpoint-000000123.safetensors"]
    for found in (read_checkpoint(path), CheckpointStore(store.directory).latest()):
        assert found is not None
        expected = version(123)
        assert (found.version, found.layout, found.ledger, found.facts) == (
            123,
            expected.layout,
            expected.ledger,
            expected.facts,
        )
        for name, array in expected.state.items():
            np.testing.assert_array_equal(found.state[name], array)
    assert store.written == 123


@pytest.mark.parametrize("damage", ["a bit of a tensor", "a bit of the facts", "cut short", "empty", "no safetensors"])
def test_a_damaged_newest_is_passed_over_and_gives_way(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = CheckpointStore(tmp_path)
    store.write(version(1))
    path = store.write(version(2))
    data = bytearray(path.read_bytes())
    if damage == "a bit of a tensor":
        data[-5] ^= 16
    elif damage == "a bit of the facts":
        place = data.index(b"seed")
        data[place] ^= 1
    data = data[: {"cut short": len(data) // 2, "empty": 0}.get(damage, len(data))]
    path.write_bytes(b"nonsense" * 9 if damage == "no safetensors" else data)
    found = store.latest()
    assert found is not None
    assert found.version == 1
    assert path.name in caplog.text
    store.write(version(3))
    assert store.versions() == [1, 3], "the damaged one must not count as one that is kept"


def test_a_killed_writer_leaves_the_earlier_checkpoint(tmp_path: Path) -> None:
    CheckpointStore(tmp_path).write(version(1))
    program = f"""
import time, coplace.training.checkpoint as module, numpy as np
def slowly(state, path, metadata):
    path.write_bytes(b"begun")
    print("writing", flush=True)
    time.sleep(60)
module.save_file = slowly
module.CheckpointStore({str(tmp_path)!r}).write(module.Checkpoint(2, {{}}, {{"values": np.zeros(5)}}))
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert len(files(tmp_path)) == 2
    store = CheckpointStore(tmp_path)
    assert files(tmp_path) == ["checkpoint-000000001.safetensors"]
    found = store.latest()
    assert found is not None
    assert found.version == 1


def test_the_thread_writes_the_newest_that_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    real = module.save_file
    numbers: list[float] = []

    def held(state: Any, path: Any, metadata: Any) -> None:
        numbers.append(float(state["step"][0]))
        begun.set()
        assert go_on.wait(10)
        real(state, path, metadata)

    monkeypatch.setattr(module, "save_file", held)
    with CheckpointStore(tmp_path, keep=5) as store:
        store.write_later(version(1))
        assert begun.wait(10)
        for number in (2, 3, 4):
            store.write_later(version(number))
        go_on.set()
        store.flush()
        assert store.versions() == [1, 4]
        store.write_later(version(5))
    assert numbers == [1, 4, 5]
    with pytest.raises(ValueError, match="closed"):
        store.write_later(version(6))


def test_an_error_of_the_thread_surfaces_at_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    store = CheckpointStore(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(module, "save_file", full)
        store.write_later(version(1))
        with pytest.raises(OSError, match="No space left"):
            store.flush()
    assert files(tmp_path) == []
    store.write_later(version(2))
    store.close()
    assert store.versions() == [2]


def test_checkpoints_of_another_run_are_not_overwritten(tmp_path: Path) -> None:
    CheckpointStore(tmp_path).write(version(50))
    with pytest.raises(InputError, match="no checkpoint newer than the one to be written, 3; found 50"):
        CheckpointStore(tmp_path).write(version(3))
    (tmp_path / "checkpoint-000000051.safetensors").mkdir()
    found = CheckpointStore(tmp_path).latest()
    assert found is not None
    assert found.version == 50
