"""A parameter server: holds a slice of the flat state and obeys the coordinator's commits, in their order.

Every server of a job gets the same commits in the same order, so that all slices of one version belong together. A push
is applied only by a commit, which the coordinator sends once *all* servers have the push: it counts on all slices or
on none.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import psutil

from coplace.training.messages import Message
from coplace.training.parameters.codecs import Codec, codec, decode
from coplace.training.parameters.optimizer import ShardOptimizer
from coplace.training.parameters.settings import Sgd
from coplace.training.tasks.spec import TaskSpec
from coplace.training.transport import Endpoint

Pushes = dict[tuple[str, int], np.ndarray[Any, Any]]


class Server:
    """Answers messages until it is told to stop.

    ========== ================================================== =======================================
    message    fields; arrays                                     does
    ========== ================================================== =======================================
    load       generation, version, start, stop, parameters,      takes over a slice; answers ``loaded``
               total, states; values, one array a state
    push       generation, worker, step, codec; encoded slice     keeps it; tells the coordinator ``staged``
    commit     version, pushes [[worker, step, weight]], rate,    applies, sends parameters; ``applied``
               ticket, release [addresses]
    release    ticket, release [addresses]                        sends parameters
    discard    worker, address                                    forgets a worker that is gone, and its pushes
    snapshot   ticket                                             answers ``state`` with values and states
    stop                                                          ends
    ========== ================================================== =======================================
    """

    def __init__(self, spec: TaskSpec, endpoint: Endpoint) -> None:
        self._spec = spec
        self._endpoint = endpoint
        self._coordinator = spec.meeting.coordinator
        self._generation = -1
        self._version = 0
        self._start = self._stop = 0
        self._shard: ShardOptimizer | None = None
        self._staged: Pushes = {}
        self._process = psutil.Process()
        self._codec: Codec | None = None

    def run(self) -> None:
        """Serve until told to stop, or until the process that started this one is gone."""
        warm_up()
        self._tell("ready", {"address": self._endpoint.address, "pid": self._process.pid})
        while True:
            message = self._endpoint.receive(5.0)
            if message is None:
                continue
            if message.kind == "stop":
                return
            getattr(self, f"_on_{message.kind}")(message)

    def _on_load(self, message: Message) -> None:
        fields = message.fields
        self._generation, self._version = fields["generation"], fields["version"]
        self._start, self._stop = fields["start"], fields["stop"]
        values, *states = message.arrays
        trainable = min(max(fields["parameters"] - self._start, 0), self._stop - self._start)
        state = dict(zip(fields["states"], states, strict=True))
        self._shard = ShardOptimizer(self._spec.job.optimizer, values, trainable, state)
        name = "float16" if self._spec.job.compression.name == "float16" else "none"
        self._codec = codec(name, fields["parameters"], fields["total"])
        self._staged.clear()
        self._tell("loaded", {"generation": self._generation})

    def _on_push(self, message: Message) -> None:
        fields = message.fields
        if fields["generation"] != self._generation:
            return  # the worker learns of the new layout and pushes again
        self._staged[fields["worker"], fields["step"]] = decode(
            fields["codec"], message.arrays, self._stop - self._start
        )
        self._tell("staged", {key: fields[key] for key in ("generation", "worker", "step")})

    def _on_commit(self, message: Message) -> None:
        began, fields = time.perf_counter(), message.fields
        shard = self._held()
        self._version += 1
        if fields["version"] != self._version:  # all servers must apply all commits; the job goes back to what was kept
            raise RuntimeError(f"the commit of version {self._version} was lost; {fields['version']} came instead")
        updates = [(self._staged.pop((worker, step)), weight) for worker, step, weight in fields["pushes"]]
        shard.step(updates, fields["rate"])
        self._release(fields)
        self._tell(
            "applied",
            {
                "version": fields["version"],
                "seconds": time.perf_counter() - began,
                "rss": self._process.memory_info().rss / 2**20,
                "sent": self._endpoint.bytes_sent,
                "received": self._endpoint.bytes_received,
            },
        )

    def _on_release(self, message: Message) -> None:
        self._release(message.fields)

    def _release(self, fields: dict[str, Any]) -> None:
        if not fields["release"]:
            return
        values = self._held().values
        assert self._codec is not None
        about = {
            "ticket": fields["ticket"],
            "start": self._start,
            "stop": self._stop,
            "codec": self._codec.name,
        }
        self._endpoint.send(fields["release"], "parameters", about, self._codec.encode(self._start, values))

    def _on_discard(self, message: Message) -> None:
        for key in [key for key in self._staged if key[0] == message.fields["worker"]]:
            del self._staged[key]
        if message.fields.get("address"):
            self._endpoint.forget(message.fields["address"])

    def _on_snapshot(self, message: Message) -> None:
        shard = self._held()
        states = shard.state()
        fields = {**message.fields, "start": self._start, "stop": self._stop, "states": list(states)}
        self._tell("state", fields, [shard.values, *states.values()])

    def _held(self) -> ShardOptimizer:
        if self._shard is None:
            raise RuntimeError("a server was asked for parameters before it got any")
        return self._shard

    def _tell(self, kind: str, fields: dict[str, Any], arrays: list[np.ndarray[Any, Any]] | None = None) -> None:
        fields = {"task": self._spec.name, **fields}
        self._endpoint.send(self._coordinator, kind, fields, arrays or [])


def warm_up() -> None:
    """Have PyTorch load what the first optimiser needs, a second's worth, before others wait for it."""
    ShardOptimizer(Sgd(lr=1.0), np.zeros(1, np.float32), 1)
