"""What runs on the nodes of a Ray cluster: a task's process, and one that samples and throttles for each node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coplace.training.nodes.monitor import NodeMonitor
from coplace.training.nodes.throttle import Throttle, pause, throttle
from coplace.training.tasks.spec import TaskSpec
from coplace.training.transport.ray import Mailbox


class Task(Mailbox):
    """A task: messages come in by ``deliver``, while ``run`` has a thread of its own."""

    def run(self, spec: Mapping[str, Any]) -> int:
        """Run the task to its end; its exit code. Ray calls it again in a process that it starts again."""
        from coplace.training.tasks.main import run_task

        return run_task(TaskSpec.model_validate(spec))


class Keeper:
    """Of a node: what it does, and stragglers for tests."""

    def __init__(self) -> None:
        self._monitor = NodeMonitor()
        self._share: float | None = None
        self._throttles: dict[int, Throttle] = {}

    def look(self, pids: Mapping[str, int]) -> dict[str, Any]:
        """A sample of the node with the tasks *pids*; those that are new are throttled as the others are."""
        self._hold(pids)
        return self._monitor.sample(pids).to_document()

    def slow(self, share: float | None, seconds: float, pids: Mapping[str, int]) -> None:
        """Pause the tasks for so many seconds or, if that is 0, hold each to *share* cores; None = no limit."""
        if seconds:
            for pid in pids.values():
                pause(pid, seconds)
            return
        self.release()
        self._share = share
        self._hold(pids)

    def release(self) -> None:
        """Let all tasks run as before."""
        self._share = None
        for held in self._throttles.values():
            held.close()
        self._throttles.clear()

    def _hold(self, pids: Mapping[str, int]) -> None:
        for pid in set(self._throttles) - set(pids.values()):
            self._throttles.pop(pid).close()
        if self._share is not None:
            for pid in pids.values():
                if pid not in self._throttles:
                    self._throttles[pid] = throttle([pid], self._share)
