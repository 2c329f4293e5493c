"""Pushing and pulling a large array through each transport, against copying as many bytes through its medium.

    python -m benchmarks.training.copying KIND ADDRESS BYTES

is the other side: it sends back what it gets, until it is told to stop.
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from coplace.training.transport import Endpoint, open_endpoint

TOKEN = "benchmark"


def ratio(transport: str, size: int, rounds: int) -> float:
    """Median time of copying over that of pushing and pulling, of alternating rounds; above 1 if copying takes longer.

    ``file``: written to a file in the same directory and read back into a buffer that is used again. ``tcp``: sent
    through a socket to another process and back. ``ray``: put into the object store, got and copied out, twice.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = {"file": _copy_file, "tcp": _copy_socket, "ray": _copy_ray}[transport]
        copies, pushes = copy(Path(folder), size), _push_and_pull(transport, Path(folder), size)
        times: tuple[list[float], list[float]] = ([], [])
        next(copies)  # what is slow once only
        next(pushes)
        for _ in range(rounds):
            times[0].append(next(copies))
            times[1].append(next(pushes))
        copies.close()
        pushes.close()
    return statistics.median(times[0]) / statistics.median(times[1])


def _timed(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def _copy_file(folder: Path, size: int) -> Generator[float, None, None]:
    data, buffer = np.ones(size, np.uint8), np.zeros(size, np.uint8)

    def there_and_back() -> None:
        for _ in range(2):
            path = folder / "copy"
            with path.open("wb", buffering=0) as file:
                done = 0
                while done < size:
                    done += file.write(data.data[done:])
            with path.open("rb", buffering=0) as file:
                done = 0
                while done < size:
                    done += file.readinto(buffer.data[done:])
            path.unlink()

    while True:
        yield _timed(there_and_back)


def _copy_socket(folder: Path, size: int) -> Generator[float, None, None]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = str(server.getsockname()[1])
        with _other_side("socket", address, size) as process:
            connection, _ = server.accept()
            data, buffer = np.ones(size, np.uint8).data, np.zeros(size, np.uint8).data

            def there_and_back() -> None:
                connection.sendall(data)
                done = 0
                while done < size:
                    done += connection.recv_into(buffer[done:])

            try:
                while True:
                    yield _timed(there_and_back)
            finally:
                connection.close()
                process.wait(10)


def _copy_ray(folder: Path, size: int) -> Generator[float, None, None]:
    import ray

    data, buffer = np.ones(size, np.uint8), np.zeros(size, np.uint8)

    def there_and_back() -> None:
        for _ in range(2):
            np.copyto(buffer, ray.get(ray.put(data)))

    _connect()
    while True:
        yield _timed(there_and_back)


def _push_and_pull(transport: str, folder: Path, size: int) -> Generator[float, None, None]:
    if transport == "ray":  # between two tasks' actors, which is where arrays travel
        from benchmarks.training.ray_sides import push_and_pull

        _connect()
        yield from push_and_pull(size)
        return
    endpoint = _open(transport, str(folder))
    try:
        with _other_side(transport, json.dumps([str(folder), endpoint.address]), size) as process:
            yield from _exchange(endpoint, size)
            process.wait(10)
    finally:
        endpoint.close()


def _exchange(endpoint: Endpoint, size: int) -> Iterator[float]:
    message = None
    while message is None:
        message = endpoint.receive(60)
    to = message.fields["address"]
    data = np.ones(size // 4, np.float32)

    def there_and_back() -> None:
        endpoint.send(to, "push", {}, [data])
        if endpoint.receive(60) is None:
            raise TimeoutError("nothing came back")

    try:
        while True:
            yield _timed(there_and_back)
    finally:
        endpoint.send(to, "stop")


def _serve(endpoint: Endpoint, report: str) -> None:
    endpoint.send(report, "ready", {"address": endpoint.address})
    while (message := endpoint.receive(60)) is not None and message.kind == "push":
        endpoint.send(report, "pull", {}, message.arrays)
    endpoint.close()


def _open(transport: str, folder: str) -> Endpoint:
    return open_endpoint(transport, "side", directory=Path(folder), token=TOKEN)


def _other_side(kind: str, address: str, size: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", __spec__.name, kind, address, str(size)])


def _connect() -> Any:
    import ray

    from coplace.training.transport.ray import NAMESPACE

    if not ray.is_initialized():
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, namespace=NAMESPACE)


def main(kind: str, address: str, size: int) -> None:
    """Be the other side."""
    if kind == "socket":
        connection = socket.create_connection(("127.0.0.1", int(address)))
        buffer = np.zeros(size, np.uint8).data
        while True:
            done = 0
            while done < size:
                got = connection.recv_into(buffer[done:])
                if not got:
                    return
                done += got
            connection.sendall(buffer)
    folder, report = json.loads(address)
    _serve(_open(kind, folder), report)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
