"""The agent of a node: starts tasks there, watches them, samples the node, and makes stragglers for tests.

Tasks are forked from the agent, which has loaded PyTorch: a task is there within milliseconds, and the libraries'
memory is shared. The agent itself computes nothing with PyTorch, so that no thread of it can be lost by forking.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coplace.training.job import Host
from coplace.training.nodes.monitor import NodeMonitor
from coplace.training.nodes.throttle import Throttle, throttle
from coplace.training.tasks.main import run_task
from coplace.training.tasks.spec import Meeting, TaskSpec
from coplace.training.transport import TransportError

BEAT_SECONDS = 0.5
"""Time between two signs of life."""


@dataclass(slots=True)
class _Child:
    pid: int


class AgentError(Exception):
    """The node cannot be of use to the job; says why."""


class Agent:
    """Obeys the coordinator's messages until it is told to stop, or has not heard from it for *patience* seconds.

    ========== ======================================= ====================================================
    message    fields                                  does
    ========== ======================================= ====================================================
    start      spec                                    forks a task; its exit is told as ``exited``
    kill       task                                    ends it at once
    slow       share, pause                            holds the tasks to a share of CPU together, or pauses
    welcome                                            the coordinator knows the node
    refused    why                                     ends: there is another node of that name
    expelled                                           ends all tasks and introduces the node anew
    beat                                               says that the coordinator is there
    stop       why                                     ends all tasks, then itself
    ========== ======================================= ====================================================

    *say* gets a line when the node is welcomed, and for each task that starts or ends.
    """

    def __init__(
        self,
        host: Host,
        meeting: Meeting,
        logs: Path | None,
        patience: float,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._host = host
        self._meeting = meeting
        self._logs = logs
        self._patience = patience
        self._say = say
        self._welcome = self._departing = self._stopped = False
        self._endpoint = meeting.open(f"node-{host.name}")
        self._monitor = NodeMonitor()
        self._children: dict[str, _Child] = {}
        self._throttle: Throttle | None = None
        self._share: float | None = host.cpu / 1000 if host.limit else None
        self._paused_until = 0.0

    def leave(self) -> None:
        """Ask the coordinator to let the node go, its tasks first; safe in a signal handler."""
        self._departing = True

    def run(self) -> str:
        """Work until told to stop; why that is.

        Raises:
            AgentError: the coordinator refuses the node, or is not heard from.
        """
        try:
            self._introduce()
            heard = beaten = time.monotonic()
            asked = False
            while time.monotonic() - heard < self._patience:
                if self._departing and not asked:
                    asked = True
                    self._tell("departs", {})
                message = self._endpoint.receive(0.05)
                if message is not None:
                    heard = time.monotonic()
                    if message.kind in ("stop", "refused"):
                        self._stopped = True
                        if message.kind == "refused":
                            raise AgentError(message.fields["why"])
                        return str(message.fields["why"])
                    getattr(self, f"_on_{message.kind}")(message.fields)
                self._reap()
                self._resume()
                if time.monotonic() - beaten >= BEAT_SECONDS:
                    beaten = time.monotonic()
                    self._beat()
            raise AgentError(f"nothing was heard from the job for {self._patience:g} s")
        finally:
            self._end_all()
            if not self._stopped:
                with contextlib.suppress(TransportError):
                    self._tell("gone", {"address": self._endpoint.address})
            self._endpoint.close()

    def _introduce(self) -> None:
        about = {"address": self._endpoint.address, "pid": os.getpid(), **self._host.model_dump()}
        self._tell("node", about)

    def _beat(self) -> None:
        sample = self._monitor.sample({name: child.pid for name, child in self._children.items()})
        self._tell("sample", {"address": self._endpoint.address, "sample": sample.to_document()})

    # --- messages ---

    def _on_start(self, fields: dict[str, Any]) -> None:
        spec = TaskSpec.model_validate(fields["spec"])
        pid = fork(lambda: self._become(spec))
        self._children[spec.name] = _Child(pid)
        self._limit()
        self._say(f"{spec.name} has started")

    def _on_kill(self, fields: dict[str, Any]) -> None:
        child = self._children.pop(fields["task"], None)
        if child is not None:
            _end(child)

    def _on_slow(self, fields: dict[str, Any]) -> None:
        if fields["pause"]:
            self._paused_until = time.monotonic() + fields["pause"]
            for child in self._children.values():
                _signal(child.pid, signal.SIGSTOP)
            return
        self._share = fields["share"]
        if self._throttle is not None:
            self._throttle.close()
            self._throttle = None
        self._limit()

    def _on_welcome(self, fields: dict[str, Any]) -> None:
        if not self._welcome:
            self._welcome = True
            self._say("the node has joined")

    def _on_beat(self, fields: dict[str, Any]) -> None:
        """That it came is all it says."""

    def _on_expelled(self, fields: dict[str, Any]) -> None:
        self._end_all()
        self._introduce()

    # --- tasks ---

    def _limit(self) -> None:
        """Hold all tasks together to the node's share of CPU, if it has one."""
        pids = [child.pid for child in self._children.values()]
        if self._share is None or not pids:
            return
        if self._throttle is None:
            self._throttle = throttle(pids, self._share)
        else:
            for pid in pids:
                self._throttle.add(pid)

    def _become(self, spec: TaskSpec) -> int:
        """Go on as the process of a task; its exit code."""
        os.setsid()  # signals for the agent's group are not for its tasks
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator decides what Ctrl-C means
        if self._logs is not None:
            with (self._logs / f"{spec.name}.log").open("ab") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
        return run_task(spec)

    def _reap(self) -> None:
        for name, child in list(self._children.items()):
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                del self._children[name]
                code = os.waitstatus_to_exitcode(status)
                why = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
                self._tell("exited", {"task": name, "why": why, "code": code})
                self._say(f"{name} has ended: {why}" if code else f"{name} has ended")

    def _resume(self) -> None:
        if self._paused_until and time.monotonic() >= self._paused_until:
            self._paused_until = 0.0
            for child in self._children.values():
                _signal(child.pid, signal.SIGCONT)

    def _end_all(self) -> None:
        if self._throttle is not None:
            self._throttle.close()
            self._throttle = None
        for child in self._children.values():
            _end(child)
        self._children.clear()

    def _tell(self, kind: str, fields: dict[str, Any]) -> None:
        self._endpoint.send(self._meeting.coordinator, kind, {"node": self._host.name, **fields})


def _end(child: _Child) -> None:
    _signal(child.pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child.pid, 0)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def fork(act: Callable[[], int]) -> int:
    """Start a process that does *act*, exits with its result, and ends with this one; its number."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        die_with_parent()
        code = act()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def die_with_parent() -> None:
    """Ask Linux to kill this process when the one that started it ends, however that happens."""
    if sys.platform == "linux":
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:  # it has ended already
        os._exit(1)


def load_torch() -> None:
    """Load PyTorch before tasks are forked, without starting its threads."""
    import torch

    import coplace.training.tasks.worker  # noqa: F401
    from coplace.training.tasks.server import warm_up

    torch.set_num_threads(1)
    warm_up()
