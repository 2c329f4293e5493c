"""Tasks come and go until the roster is as granted: started, welcomed, let go, and started again when they fail."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from coplace.instances.errors import InputError, Problem
from coplace.training.coordinator import grants as granting
from coplace.training.coordinator.grants import Grants
from coplace.training.coordinator.roster import Roster, Server, Worker
from coplace.training.coordinator.state import START, State
from coplace.training.coordinator.training import Training
from coplace.training.job import Grant, TrainingJob
from coplace.training.messages import Message
from coplace.training.nodes.launcher import Event, Launcher, NodeJoined, NodeLost, NodeState, TaskExited
from coplace.training.tasks.spec import Meeting, Role, TaskSpec
from coplace.training.transport import Endpoint

GRACE_SECONDS = 10.0
"""How long a task may take to end once it is told to; then it is killed."""

UNABLE = 3.0
"""A job that has no worker or no complete set of servers for so many times the deadline of a start ends."""


class JobError(Exception):
    """The job cannot go on."""


class NeverBegan(JobError):
    """The job was stopped before its first step."""


@dataclass(slots=True)
class Failure:
    """A task or node that was lost, and when, in seconds since the job started."""

    at_seconds: float
    name: str
    why: str


class Membership:
    """Keeps the tasks as granted.

    Attributes:
        grants: tasks that should run on each node.
        failures: tasks and nodes that were lost.
        leaving: nodes that are to be let go, and get no new tasks.
    """

    def __init__(
        self,
        job: TrainingJob,
        meeting: Meeting,
        endpoint: Endpoint,
        launcher: Launcher,
        roster: Roster,
        training: Training,
        state: State,
        clock: Callable[[], float],
        say: Callable[[str], None],
    ) -> None:
        self._job = job
        self._meeting = meeting
        self._endpoint = endpoint
        self._launcher = launcher
        self._roster = roster
        self._training = training
        self._state = state
        self._clock = clock
        self._say = say
        self._count = {"worker": 0, "ps": 0}
        self._restarts = 0
        self._not_before = 0.0
        self._began_at = clock()
        self._able_at = self._began_at  # when training could last go on, or the job started
        self._starting: list[TaskSpec] = []  # all that are due at once are started by one call
        self._dismissed: deque[tuple[float, str, str]] = deque()
        self.leaving: set[str] = set()
        self.grants: Grants | None = None
        self.failures: list[Failure] = []
        self.resumes: Any = None

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        """The nodes that tasks may be put on, those that the job lists first, in its order."""
        nodes = granting.ordered(self._job, self._launcher.nodes)
        return {name: node for name, node in nodes.items() if name not in self.leaving}

    # --- what happens ---

    def on_event(self, event: Event) -> None:
        """A node came or went, or a task ended."""
        if isinstance(event, NodeJoined):
            self._say(f"node {event.node} is there")
            if self.grants is not None and self._job.elastic:
                self._move_from_lost_nodes()
                self.grants = self._grown(event.node)
        elif isinstance(event, NodeLost):
            if not event.wanted:
                self.failures.append(Failure(self._clock(), event.node, event.why))
            self.leaving.discard(event.node)
            self._say(f"node {event.node} {'has left' if event.wanted else f'is lost: {event.why}'}")
            for task in self._roster.on(event.node):
                self._lose(task, f"its node {event.node} is lost")
            if self.grants is not None and self._job.elastic:
                self.grants = granting.without(self.grants, event.node, self.nodes, self._job.worker, self._job.ps)
        elif isinstance(event, TaskExited):
            exited = self._roster.get(event.task)
            if exited is not None:
                self._fail(exited, event.why)

    def _move_from_lost_nodes(self) -> None:
        """What was left granted on nodes that are gone, for want of any other, comes to those that are there."""
        assert self.grants is not None
        nodes = self.nodes
        for node in [node for node in self.grants if node not in nodes]:
            self.grants = granting.without(self.grants, node, nodes, self._job.worker, self._job.ps)

    def _grown(self, node: str) -> Grants:
        assert self.grants is not None
        nodes = self.nodes
        if node not in nodes:
            return self.grants
        short = self._job.tasks is None and (self._job.workers - granting.total(self.grants, "worker"))
        if short and short > 0:
            servers = max(granting.total(self.grants, "ps"), self._job.ps.min)
            return granting.spread(self._job.workers, servers, nodes, self.grants)
        return granting.grown(self.grants, node, nodes, self._job.worker)

    def on_ready(self, message: Message) -> None:
        """A task has started, or has been started again by the launcher under its old name."""
        fields = message.fields
        task = self._roster.get(fields["task"])
        if task is None:
            self._endpoint.send(fields["address"], "stop")
            return
        if task.phase != "starting":
            if task.address == fields["address"]:
                return
            task = self._again(task)
        task.address, task.pid = fields["address"], fields["pid"]
        task.phase = "ready"
        if isinstance(task, Worker):
            self._state.meet(task, fields)
            if self._training.ledger is None:
                kept = self.resumes
                version = 0 if kept is None else kept.version
                document = None if kept is None else kept.ledger
                self._training.begin(fields["samples"], fields["validation"], document, version)
            self._training.join(task)
            self._state.introduce(task)

    def _again(self, task: Worker | Server) -> Worker | Server:
        """The launcher has started a task again under its old name: that failed, and a new one came."""
        why = "its process failed, and was started again"
        if task.phase != "leaving":
            self._count_failure(task, why)
        self._lose(task, why)
        fresh: Worker | Server = type(task)(task.name, task.node, self._clock())
        if isinstance(fresh, Worker) and isinstance(task, Worker):
            fresh.steps = task.steps  # a late message about a step of the old one must not meet one of the new one
        self._add(fresh)
        return fresh

    def on_failed(self, message: Message) -> None:
        """A task says why it ends.

        Raises:
            InputError: the user's program is at fault, so that trying again is of no use.
        """
        fields = message.fields
        if fields["by_user"]:
            raise InputError([Problem("", fields["error"])])
        task = self._roster.get(fields["task"])
        if task is not None:
            self._fail(task, fields["error"])

    def overdue(self) -> None:
        """Give up tasks that have not answered within their deadlines."""
        now, limits = self._clock(), self._job.deadlines
        if self._state.phase == "held" and self._roster.workers:
            self._able_at = now
        elif now - self._able_at > UNABLE * limits.start:
            lacking = "no worker" if self._state.phase == "held" else "no server" if self._roster.workers else "no task"
            raise JobError(f"{lacking} could be started for {UNABLE * limits.start:g} s")
        for task in self._roster:
            if task.phase == "starting" and now - task.started_at > limits.start:
                self._kill(task, f"it was not ready within {limits.start:g} s")
            elif isinstance(task, Server):
                if task.asked_at is not None and now - task.asked_at > limits.server:
                    self._kill(task, f"it did not answer within {limits.server:g} s")
            elif task.step is not None and task.step.ready_at is None and not self._training.paused:
                self._overdue_step(task, now)

    def _overdue_step(self, worker: Worker, now: float) -> None:
        step, limits = worker.step, self._job.deadlines
        assert step is not None
        if step.report is not None:
            since = max(step.reported_at, self._state.held_since)
            if now - since > limits.server:
                for server in self._training.servers:
                    if server.name not in step.staged:
                        self._kill(server, f"it has not got a gradient of {worker.name} within {limits.server:g} s")
            return
        limit = max(limits.step, 10 * worker.seconds)
        if now - max(step.released_at, self._state.held_since) > limit:
            self._kill(worker, f"its step was not done within {limit:g} s")

    def _kill(self, task: Worker | Server, why: str) -> None:
        self._launcher.kill(task.name)
        self._fail(task, why)

    def _fail(self, task: Worker | Server, why: str) -> None:
        if task.phase != "leaving":
            self._count_failure(task, why)
            # At once the first times; a task that fails whenever it starts must not keep the node busy with that.
            early = task.phase == "starting"
            self._not_before = self._clock() + (min(10.0, 0.2 * 2**self._restarts) if early else 0.0)
        self._lose(task, why)

    def _count_failure(self, task: Worker | Server, why: str) -> None:
        self.failures.append(Failure(self._clock(), task.name, why))
        self._say(f"{task.name} on {task.node} failed: {why}")
        self._restarts += 1
        if self._restarts > self._job.restarts:
            raise JobError(f"more than {self._job.restarts} tasks failed; the last, {task.name}: {why}")

    def _lose(self, task: Worker | Server, why: str) -> None:
        self._forget(task)
        if isinstance(task, Server):
            self._state.lost(task)
        else:
            self._state.asked_again()

    def _forget(self, task: Worker | Server) -> None:
        self._remove(task)
        if task.address:
            self._endpoint.forget(task.address)

    def _remove(self, task: Worker | Server) -> None:
        if isinstance(task, Worker):
            self._roster.workers.pop(task.name, None)
            self._training.leave(task)
        else:
            self._roster.servers.pop(task.name, None)

    # --- what should be ---

    def grant(self, grants: Grants) -> None:
        """Take over other grants.

        Raises:
            InputError: there would be no worker or no server, or a count is out of the job's bounds.
        """
        for role, bounds in (("worker", self._job.worker), ("ps", self._job.ps)):
            count = granting.total(grants, role)
            if not bounds.min <= count <= bounds.max:
                rule = f"a job has {bounds.min} to {bounds.max} tasks of role {role}"
                raise InputError([Problem("tasks", rule, str(count))])
        self.grants = grants

    def reconcile(self) -> None:
        """Start what is missing, let go what is too much, and move the parameters when their servers change."""
        if self.grants is None:
            return
        now = self._clock()
        for node in self._launcher.nodes:
            self._adjust(node, self.grants.get(node, Grant()), now)
        if self._starting:
            starting, self._starting = self._starting, []
            self._launcher.start(starting)
        for task in self._roster:
            if task.node not in self.grants or task.node not in self._launcher.nodes:
                task.phase = "leaving" if task.phase != "starting" else self._abort(task)
        self._let_go()
        self._forget_dismissed()
        self._place_parameters()

    def _adjust(self, node: str, grant: Grant, now: float) -> None:
        roles: tuple[Role, Role] = ("ps", "worker")
        for role in roles:
            wanted = grant.ps if role == "ps" else grant.worker
            have = [task for task in self._roster.on(node) if task.role == role and task.phase != "leaving"]
            while len(have) < wanted and now >= self._not_before:
                have.append(self._start(role, node))
            for task in have[wanted:]:  # the latest ones go
                task.phase = "leaving" if task.phase != "starting" else self._abort(task)

    def _abort(self, task: Worker | Server) -> Any:
        self._launcher.kill(task.name)
        self._forget(task)
        return "leaving"

    def _start(self, role: Role, node: str) -> Worker | Server:
        name = f"{'worker' if role == 'worker' else 'server'}-{self._count[role]}"
        self._count[role] += 1
        task: Worker | Server = (Worker if role == "worker" else Server)(name, node, self._clock())
        self._add(task)
        self._starting.append(TaskSpec(name=name, role=role, node=node, meeting=self._meeting, job=self._job))
        return task

    def _add(self, task: Worker | Server) -> None:
        if isinstance(task, Worker):
            self._roster.workers[task.name] = task
        else:
            self._roster.servers[task.name] = task

    def _let_go(self) -> None:
        for task in self._roster:
            if task.phase != "leaving":
                continue
            if isinstance(task, Worker):
                if task.step is None:
                    self._dismiss(task)
            elif task not in self._training.servers and not self._awaits(task):
                self._dismiss(task)

    def _awaits(self, server: Server) -> bool:
        """Whether a worker may still wait for parameters that *server* sent before it was relieved."""
        return any(
            worker.step is not None
            and worker.step.report is None
            and server.started_at < worker.step.released_at <= self._state.loading_since
            for worker in self._roster.busy_workers()
        )

    def _dismiss(self, task: Worker | Server) -> None:
        self._endpoint.send(task.address, "stop")
        self._remove(task)
        self._dismissed.append((self._clock(), task.name, task.address))
        if isinstance(task, Worker):
            self._state.asked_again()

    def _forget_dismissed(self) -> None:
        """Only some time after they were told to end: what is forgotten at once does not get there."""
        while self._dismissed and self._clock() - self._dismissed[0][0] > GRACE_SECONDS:
            _, name, address = self._dismissed.popleft()
            self._launcher.kill(name)
            self._endpoint.forget(address)

    def _place_parameters(self) -> None:
        state, training = self._state, self._training
        servers = self._roster.ready_servers()
        complete = bool(servers) and not self._missing("ps")
        if state.phase == "absent":
            started = not self._missing("worker") or self._clock() - self._began_at > self._job.deadlines.start
            workers = self._roster.ready_workers()
            if complete and workers and started:
                if state.kept is not None:
                    state.load(servers, START)
                else:
                    state.ask(workers[0])
        elif state.phase == "broken":
            if complete:
                state.recover(servers)
        elif state.phase == "held" and complete and not state.keeping and servers != training.servers:
            state.keep(move=servers, write=True, why=f"from {len(training.servers)} to {len(servers)} servers")

    def _missing(self, role: Role) -> int:
        """Tasks of a role that are granted on nodes that are there, and not ready."""
        assert self.grants is not None
        there = {node: grant for node, grant in self.grants.items() if node in self._launcher.nodes}
        ready = [task for task in self._roster if task.role == role and task.phase == "ready"]
        if role == "worker" and not self._roster.workers:
            return 1
        return granting.total(there, role) - len(ready)
