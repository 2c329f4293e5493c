"""The tasks of a job that are there, and what each is busy with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from coplace.training.data.ledger import Batch
from coplace.training.sync import Pace

Phase = Literal["starting", "ready", "leaving"]


@dataclass(slots=True)
class Step:
    """What a worker has been given to do.

    Attributes:
        number: of the worker's steps.
        version: of the parameters that it starts from.
        batch: its samples, of one epoch; None if it only validates.
        share: of the samples of all workers, when it was given.
        released_at: when it was given, in seconds of the coordinator's clock.
        waited: seconds that the worker had waited for it, for others or for permission.
        validates: whether a part of a validation comes before it.
        staged: servers that have its gradient, of the present generation.
        report: what the worker said when it was done; None before.
        ready_at: when the last server had its gradient and the report was there; None before.
    """

    number: int
    version: int
    batch: tuple[Batch, ...] | None
    share: float
    released_at: float
    waited: float
    validates: bool = False
    staged: set[str] = field(default_factory=set)
    report: dict[str, float] | None = None
    reported_at: float = 0.0
    ready_at: float | None = None


@dataclass(slots=True)
class Task:
    """What a worker and a server have in common.

    Attributes:
        pid: of its process, on its node.
        sent, received: bytes, as of its last report.
    """

    name: str
    node: str
    started_at: float
    phase: Phase = "starting"
    address: str = ""
    pid: int = 0
    sent: int = 0
    received: int = 0


@dataclass(slots=True)
class Worker(Task):
    """A worker.

    Attributes:
        idle_since: when its last step was committed or, before the first one, when it was ready.
        seconds: of its longest step so far.
    """

    pace: Pace = field(default_factory=Pace)
    steps: int = 0
    step: Step | None = None
    idle_since: float = 0.0
    seconds: float = 0.0
    threads: int = 1
    row: dict[str, float] = field(default_factory=dict)

    role: Literal["worker"] = "worker"


@dataclass(slots=True)
class Server(Task):
    """A server.

    Attributes:
        slice: floats of the flat state that it holds, [start, stop); empty before it holds any.
        asked_at: since when an answer of it is due; None if none is.
        applied: version up to which it has applied commits.
    """

    slice: tuple[int, int] = (0, 0)
    asked_at: float | None = None
    applied: int = 0
    rss: float = 0.0

    role: Literal["ps"] = "ps"


def number(name: str) -> int:
    """The number at the end of a task's name."""
    return int(name.rpartition("-")[2])


@dataclass(slots=True)
class Roster:
    """All tasks, by name, in the order of their starts."""

    workers: dict[str, Worker] = field(default_factory=dict)
    servers: dict[str, Server] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Worker | Server]:
        yield from list(self.workers.values())
        yield from list(self.servers.values())

    def get(self, name: str) -> Worker | Server | None:
        """The task called *name*, if it is there."""
        return self.workers.get(name) or self.servers.get(name)

    def on(self, node: str) -> list[Worker | Server]:
        """The tasks on a node."""
        return [task for task in self if task.node == node]

    def ready_workers(self) -> list[Worker]:
        """Workers that can be given steps."""
        return [worker for worker in self.workers.values() if worker.phase == "ready"]

    def busy_workers(self) -> list[Worker]:
        """Workers that have a step, those that are about to leave included."""
        return [worker for worker in self.workers.values() if worker.step is not None]

    def ready_servers(self) -> list[Server]:
        """Servers that can hold parameters."""
        return [server for server in self.servers.values() if server.phase == "ready"]
