"""A launcher whose nodes are agents: those it starts on this host, and those that join from elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coplace.training.job import Host
from coplace.training.messages import Message
from coplace.training.nodes.launcher import (
    Event,
    Events,
    LauncherError,
    NodeJoined,
    NodeLost,
    NodeState,
    Slowdown,
    TaskExited,
)
from coplace.training.nodes.monitor import NodeSample
from coplace.training.tasks.spec import Meeting, TaskSpec
from coplace.training.transport import Endpoint

BEAT_SECONDS = 1.0
"""Time between two signs of life to agents."""


@dataclass(slots=True)
class _Agent:
    address: str
    heard: float
    pause: float = 0.0


class AgentLauncher:
    """Starts tasks by messages to agents.

    Args:
        endpoint: of the coordinator.
        meeting: where agents and tasks meet.
        logs: folder for what tasks print; None = where the coordinator prints.
        node_deadline: seconds without a sign of life after which a node is lost.
        agent_patience: seconds without one of the coordinator after which an agent ends.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        meeting: Meeting,
        logs: Path | None,
        node_deadline: float = 10.0,
        agent_patience: float = 30.0,
    ) -> None:
        self._endpoint = endpoint
        self._meeting = meeting
        self._logs = logs
        self._deadline = node_deadline
        self._patience = agent_patience
        self._nodes: dict[str, NodeState] = {}
        self._agents: dict[str, _Agent] = {}
        self._former: set[str] = set()  # addresses of agents that were let go
        self._homes: dict[str, str] = {}  # node of each task
        self._events = Events()
        self._beaten = 0.0
        self._polled = time.monotonic()
        self._local: subprocess.Popen[str] | None = None

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        """The nodes that are there."""
        return self._nodes

    def add(self, host: Host) -> None:
        """Start an agent on this host; the node is there once it has said so."""
        if self._local is None:
            command = [sys.executable, "-m", "coplace.training.nodes.local"]
            # In a session of its own: signals for the coordinator's group, such as Ctrl-C, are the coordinator's.
            self._local = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
        settings = {
            "host": host.model_dump(),
            "meeting": self._meeting.model_dump(),
            "logs": None if self._logs is None else str(self._logs),
            "patience": self._patience,
        }
        assert self._local.stdin is not None
        self._local.stdin.write(json.dumps(settings) + "\n")
        self._local.stdin.flush()

    def remove(self, node: str) -> None:
        """Let a node go, with all that runs there."""
        agent = self._agents.get(node)
        if agent is not None:
            self._let_go(agent.address)
            self._lose(node, "it was let go", wanted=True)

    def start(self, tasks: Sequence[TaskSpec]) -> None:
        """Start tasks on their nodes."""
        for spec in tasks:
            self._homes[spec.name] = spec.node
            self._send(spec.node, "start", {"spec": spec.model_dump(mode="json")})

    def kill(self, task: str) -> None:
        """End a task at once."""
        node = self._homes.pop(task, None)
        if node is not None:
            self._send(node, "kill", {"task": task})

    def slow_down(self, node: str, slowdown: Slowdown) -> None:
        """Throttle or pause the tasks of a node."""
        self._send(node, "slow", {"share": slowdown.share, "pause": slowdown.pause})

    def handle(self, message: Message) -> bool:
        """Take a message of an agent."""
        fields = message.fields
        if message.kind == "node":
            self._join(fields)
        elif message.kind == "sample":
            agent = self._agents.get(fields["node"])
            if fields["address"] in self._former:
                self._let_go(fields["address"])
            elif agent is None or agent.address != fields["address"]:
                self._endpoint.send(fields["address"], "expelled")
            else:
                agent.heard = time.monotonic()
                self._nodes[fields["node"]].sample = NodeSample.from_document(fields["sample"])
        elif message.kind == "gone":
            agent = self._agents.get(fields["node"])
            if agent is not None and agent.address == fields["address"]:
                self._lose(fields["node"], "its agent was ended")
        elif message.kind == "exited":
            if self._homes.pop(fields["task"], None) is not None:
                self._events.waiting.append(TaskExited(fields["task"], fields["why"]))
        else:
            return False
        return True

    def poll(self) -> list[Event]:
        """What has happened; nodes from which nothing is heard any more are lost."""
        now = time.monotonic()
        stalled = now - self._polled - 1.0  # what came meanwhile has not been looked at
        self._polled = now
        if stalled > 0:
            for agent in self._agents.values():
                agent.heard += stalled
        if now - self._beaten >= BEAT_SECONDS:
            self._beaten = now
            for agent in self._agents.values():
                self._endpoint.send(agent.address, "beat")
        for node, agent in list(self._agents.items()):
            if now - agent.heard > self._deadline:
                self._lose(node, f"nothing was heard from it for {self._deadline:g} s")
        if self._local is not None and self._local.poll() is not None:
            code = self._local.returncode
            self._local = None
            raise LauncherError(f"the process of the local nodes has ended with exit code {code}")
        return self._events.take()

    def close(self) -> None:
        """End all agents and tasks."""
        for agent in self._agents.values():
            self._endpoint.send(agent.address, "stop", {"why": "the job has ended"})
        nobody = not self._agents
        self._agents.clear()
        self._nodes.clear()
        if self._local is not None:
            assert self._local.stdin is not None
            if nobody:  # it is still loading PyTorch, and would look up only afterwards
                self._local.kill()
            time.sleep(0.1)  # for agents to hear that they should end; whoever does not is killed
            self._local.stdin.close()
            try:
                self._local.wait(5.0)
            except subprocess.TimeoutExpired:
                self._local.kill()
                self._local.wait()
            self._local = None

    def _join(self, fields: dict[str, Any]) -> None:
        name = fields["name"]
        known = self._agents.get(name)
        if known is not None and known.address != fields["address"]:
            self._endpoint.send(fields["address"], "refused", {"why": f"the job has a node {name} already"})
            return
        self._agents[name] = _Agent(fields["address"], time.monotonic())
        self._nodes[name] = NodeState(name, fields["cpu"], fields["memory"], fields["pid"])
        self._endpoint.send(fields["address"], "welcome")
        self._events.waiting.append(NodeJoined(name))

    def _let_go(self, address: str) -> None:
        self._former.add(address)
        self._endpoint.send(address, "stop", {"why": "the node was let go"})

    def _lose(self, node: str, why: str, wanted: bool = False) -> None:
        del self._agents[node]  # its address is not forgotten: it may yet have to hear that it is out
        del self._nodes[node]
        for task in [task for task, home in self._homes.items() if home == node]:
            del self._homes[task]
        self._events.waiting.append(NodeLost(node, why, wanted))

    def _send(self, node: str, kind: str, fields: dict[str, Any]) -> None:
        agent = self._agents.get(node)
        if agent is not None:
            self._endpoint.send(agent.address, kind, fields)
