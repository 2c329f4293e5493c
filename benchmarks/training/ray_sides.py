"""Two actors that push and pull a large array through the Ray transport."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from coplace.training.transport import open_endpoint
from coplace.training.transport.ray import Mailbox, actor_name

TOKEN = "benchmark"


class Side(Mailbox):
    """One side; what it does runs in the concurrency group ``run``."""

    def open(self, name: str) -> str:
        """Open the mailbox; its address."""
        self._endpoint = open_endpoint("ray", name, token=TOKEN)
        return self._endpoint.address

    def serve(self, to: str) -> None:
        """Send back what comes, until told to stop."""
        while (message := self._endpoint.receive(60)) is not None and message.kind == "push":
            self._endpoint.send(to, "pull", {}, message.arrays)

    def exchange(self, to: str, size: int) -> float:
        """Send *size* bytes to the other side and get them back; how long that took, in seconds."""
        data = np.ones(size // 4, np.float32)
        start = time.perf_counter()
        self._endpoint.send(to, "push", {}, [data])
        if self._endpoint.receive(60) is None:
            raise TimeoutError("nothing came back")
        return time.perf_counter() - start

    def stop(self, to: str) -> None:
        """Let the other side end."""
        self._endpoint.send(to, "stop")


def push_and_pull(size: int) -> Iterator[float]:
    """Seconds of one exchange after the other; Ray must be connected, in the namespace that the transport uses."""
    import ray

    actor: Any = ray.remote(concurrency_groups={"run": 1})(Side)
    near, far = (
        actor.options(name=actor_name(TOKEN, name), num_cpus=0).remote(actor_name(TOKEN, name))
        for name in ("near", "far")
    )
    run = {"concurrency_group": "run"}
    here = ray.get(near.open.options(**run).remote("near"))
    there = ray.get(far.open.options(**run).remote("far"))
    serving = far.serve.options(**run).remote(here)
    try:
        while True:
            yield ray.get(near.exchange.options(**run).remote(there, size))
    finally:
        ray.get(near.stop.options(**run).remote(there))
        ray.get(serving, timeout=30)
        for each in (near, far):
            ray.kill(each)
