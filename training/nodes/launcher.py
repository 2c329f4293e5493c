"""What the coordinator asks of whatever starts tasks on nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from coplace.training.job import Host
from coplace.training.messages import Message
from coplace.training.nodes.monitor import NodeSample
from coplace.training.tasks.spec import TaskSpec


@dataclass(slots=True)
class NodeState:
    """A node that is there.

    Attributes:
        name: its name.
        cpu: milli-cores that the job may use there.
        memory: MiB that the job may use there.
        pid: of its agent, on the node; 0 without one.
        sample: the newest sample of its monitor; None before the first.
    """

    name: str
    cpu: int
    memory: int
    pid: int = 0
    sample: NodeSample | None = None


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """A node can be given tasks from now on."""

    node: str


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node is gone, and what ran there with it; *wanted* if somebody let it go."""

    node: str
    why: str
    wanted: bool = False


@dataclass(frozen=True, slots=True)
class TaskExited:
    """The process of a task is gone."""

    task: str
    why: str


Event: TypeAlias = NodeJoined | NodeLost | TaskExited


@dataclass(frozen=True, slots=True)
class Slowdown:
    """A straggler to be made, for tests and benchmarks.

    Attributes:
        share: cores that the tasks of the node may use together; None = no limit.
        pause: seconds for which the tasks stand still from now on.
        delay: seconds that each step of a worker takes longer from now on.
    """

    share: float | None = None
    pause: float = 0.0
    delay: float | None = None


class LauncherError(Exception):
    """No tasks can be started any more."""


class Launcher(Protocol):
    """Starts and ends tasks on nodes, and says what becomes of nodes and tasks."""

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        """The nodes that are there, by name."""
        ...

    def start(self, tasks: Sequence[TaskSpec]) -> None:
        """Start tasks on their nodes, all of which are there."""

    def kill(self, task: str) -> None:
        """End a task at once; it is not reported as exited any more."""

    def add(self, host: Host) -> None:
        """Start a node; it is there once it is said to have joined.

        Raises:
            InputError: nodes are not started by this launcher, but come by themselves.
        """

    def remove(self, node: str) -> None:
        """Let a node go that has no tasks any more, if it is the launcher's to let go."""

    def slow_down(self, node: str, slowdown: Slowdown) -> None:
        """Make a straggler of a node's tasks."""

    def handle(self, message: Message) -> bool:
        """Take a message that came to the coordinator; False if it is not for the launcher."""
        ...

    def poll(self) -> Sequence[Event]:
        """What has happened since the last call; also where it does what is due by time.

        Raises:
            LauncherError: nothing can be started any more.
        """
        ...

    def close(self) -> None:
        """End everything that was started."""


@dataclass(slots=True)
class Events:
    """Events that wait to be polled."""

    waiting: list[Event] = field(default_factory=list)

    def take(self) -> list[Event]:
        """All, once."""
        waiting, self.waiting = self.waiting, []
        return waiting
