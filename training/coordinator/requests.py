"""What can be asked of a job while it runs; see :mod:`coplace.training.coordinator.control` for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from coplace.instances.errors import InputError, Problem
from coplace.training.coordinator import grants as granting
from coplace.training.coordinator.autoscale import Autoscale
from coplace.training.coordinator.control import Verb
from coplace.training.coordinator.membership import Membership
from coplace.training.coordinator.record import Record
from coplace.training.coordinator.roster import Roster
from coplace.training.coordinator.state import State
from coplace.training.coordinator.training import Training
from coplace.training.job import Grant, Host, TrainingJob
from coplace.training.messages import Message
from coplace.training.nodes.launcher import Launcher, Slowdown
from coplace.training.transport import Endpoint


class Running(Protocol):
    """The job as a whole."""

    @property
    def word(self) -> str:
        """What it is doing."""
        ...

    @property
    def began(self) -> bool:
        """Whether the first step could start."""
        ...

    def clock(self) -> float:
        """Seconds since it started."""
        ...

    def say(self, text: str) -> None:
        """Tell whoever watches."""

    def stop(self, reason: str) -> None:
        """End it."""


class Requests:
    """Answers requests.

    Attributes:
        verbs: what answers each.
        keep: whether a checkpoint was asked for and not begun yet.
    """

    def __init__(
        self,
        job: TrainingJob,
        endpoint: Endpoint,
        launcher: Launcher,
        roster: Roster,
        membership: Membership,
        training: Training,
        state: State,
        record: Record,
        autoscale: Autoscale,
        running: Running,
    ) -> None:
        self._job = job
        self._endpoint = endpoint
        self._launcher = launcher
        self._roster = roster
        self._membership = membership
        self._training = training
        self._state = state
        self._record = record
        self._autoscale = autoscale
        self._running = running
        self.keep = False
        self.verbs: Mapping[str, Verb] = {
            "status": self._status,
            "resize": self._resize,
            "join": self._join,
            "leave": self._leave,
            "slow": self._slow,
            "checkpoint": self._checkpoint,
            "stop": self._stop,
        }

    def part_with_nodes(self) -> None:
        """Let go the nodes that were asked to leave, once their tasks have gone."""
        for node in list(self._membership.leaving):
            if not self._roster.on(node):
                self._membership.leaving.discard(node)
                self._launcher.remove(node)

    def _status(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        training, record, wish = self._training, self._record, self._autoscale.wish
        return {
            "job": self._job.name,
            "state": self._running.word,
            "seconds": self._running.clock(),
            "epoch": training.epochs_done,
            "epochs": self._job.epochs,
            "version": training.version,
            "samples": record.samples,
            "accuracy": record.accuracy,
            "outlook": record.outlook,
            "speed": sum(speed for speed, _ in record.recent().values()),
            "nodes": {
                name: {"cpu": node.cpu, "memory": node.memory, "pid": node.pid}
                for name, node in self._launcher.nodes.items()
            },
            "tasks": [
                {"name": task.name, "role": task.role, "node": task.node, "phase": task.phase, "pid": task.pid}
                for task in self._roster
            ],
            "grants": {node: grant.model_dump() for node, grant in (self._membership.grants or {}).items()},
            "wish": {"workers": wish.workers, "without": list(wish.without), "reason": wish.reason},
            "pauses": [pause.seconds for pause in self._state.pauses],
            "failures": len(self._membership.failures),
        }

    def _resize(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        nodes = self._membership.nodes
        if self._membership.grants is None:
            raise InputError([Problem("", "the job has not started yet")])
        if fields.get("tasks") is not None:
            grants = {str(node): Grant.model_validate(grant) for node, grant in dict(fields["tasks"]).items()}
            for node in grants:
                if node not in nodes:
                    known = ", ".join(sorted(nodes))
                    raise InputError([Problem(f"tasks.{node}", f"must be one of the nodes {known}")])
        else:
            now = self._membership.grants
            workers = fields.get("workers") or granting.total(now, "worker")
            servers = fields.get("servers") or granting.total(now, "ps")
            grants = granting.spread(int(workers), int(servers), nodes, now)
        self._membership.grant(grants)
        return {"tasks": {node: grant.model_dump() for node, grant in grants.items()}}

    def _join(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        host = Host.model_validate(fields["host"])
        if host.name in self._launcher.nodes:
            raise InputError([Problem("host", "is there already", host.name)])
        self._launcher.add(host)
        return {"node": host.name}

    def _leave(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        node = self._known_node(fields)
        grants = self._membership.grants
        if grants is not None:
            others = {name: there for name, there in self._membership.nodes.items() if name != node}
            if not others:
                raise InputError([Problem("node", "is the only one", node, "stop the job instead")])
            self._membership.grant(granting.without(grants, node, others, self._job.worker, self._job.ps))
        self._membership.leaving.add(node)
        return {"node": node}

    def on_departs(self, message: Message) -> None:
        """A node asks to be let go; the only one there is goes at once, and the job waits for another."""
        node = message.fields["node"]
        if node not in self._launcher.nodes:
            return
        self._running.say(f"node {node} asks to leave")
        try:
            self._leave({"node": node})
        except InputError:
            self._launcher.remove(node)

    def _slow(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        node = self._known_node(fields)
        slowdown = Slowdown(fields.get("share"), float(fields.get("pause") or 0.0), fields.get("delay"))
        if slowdown.delay is not None:
            for worker in self._roster.workers.values():
                if worker.node == node:
                    self._endpoint.send(worker.address, "delay", {"seconds": slowdown.delay})
        else:
            self._launcher.slow_down(node, slowdown)
        return {"node": node}

    def _known_node(self, fields: Mapping[str, Any]) -> str:
        node = str(fields["node"])
        if node not in self._launcher.nodes:
            known = ", ".join(sorted(self._launcher.nodes))
            raise InputError([Problem("node", f"must be one of {known}", node)])
        return node

    def _checkpoint(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        if not self._running.began:
            raise InputError([Problem("", "the job has not started yet")])
        self.keep = True  # at the next tick, or once parameters that are being moved have arrived
        return {"version": self._training.version}

    def _stop(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        self._running.stop("stopped on request")
        return {"epoch": self._training.epochs_done}
