"""A launcher whose nodes are those of a Ray cluster: a task is an actor, pinned to the node that it was planned for.

*Where.* Each call of :meth:`RayLauncher.start` makes one placement group with a bundle for each task. A bundle names
its node by the label ``ray.io/node-id``, so that Ray puts it there or nowhere. It reserves a CPU for a worker and half
a one for a server as long as the node has CPUs that this job has not reserved; beyond that it reserves next to nothing.
So Ray keeps other work off the job's CPUs, and a plan that wants more tasks on a node than it has CPUs is obeyed.

*Failures.* Ray notices that a process died and starts the actor again, on the same node and under the same name, as
often as the job's ``restarts``; the new process says ``ready`` as the first one did. What Ray does not start again is
reported as exited, and what runs on a node that Ray has lost as lost with it.

*What the nodes need.* This package, and the user's program at the same path; nothing is shipped. What tasks print is
in Ray's logs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from coplace.instances.consistency import near
from coplace.instances.errors import InputError, Problem
from coplace.training.job import Host, TrainingJob
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
from coplace.training.nodes.ray_actors import Keeper, Task
from coplace.training.tasks.spec import Role, TaskSpec
from coplace.training.transport.ray import NAMESPACE, actor_name

LABEL = "coplace.node"
"""Label by which a node of a Ray cluster has its name: ``ray start --labels coplace.node=n0``."""

NODE_ID = "ray.io/node-id"
"""Label that Ray gives every node."""

CPUS: Mapping[Role, float] = {"worker": 1.0, "ps": 0.5}
"""CPUs that a task reserves, as far as its node has them."""

LOOK_SECONDS = 1.0
"""How often is asked which nodes there are, and what they do."""


@dataclass(frozen=True, slots=True)
class _RayNode:
    """A node as Ray has it: its id, address, CPUs and MiB of memory."""

    id: str
    address: str
    cpus: float
    memory: int


@dataclass(slots=True)
class _Node:
    """A node that the job uses; ``asked`` is the sample that is under way."""

    ray: _RayNode
    keeper: Any
    asked: Any = None


@dataclass(slots=True)
class _Group:
    """A placement group; ``placed`` once Ray was seen to have put all bundles where they belong."""

    handle: Any
    since: float
    bundles: list[_Bundle] = field(default_factory=list)
    placed: bool = False


@dataclass(slots=True, eq=False)
class _Bundle:
    group: _Group
    index: int
    node: str
    role: Role
    cpus: float
    task: str | None


@dataclass(slots=True)
class _Task:
    actor: Any
    run: Any
    bundle: _Bundle
    pid: int = 0


class RayLauncher:
    """Starts tasks as actors of the Ray cluster that this process is connected to.

    Args:
        job: the job; of the nodes that are there already, it uses those that it lists, if it lists any.
        token: of the job, see :func:`~coplace.training.transport.ray.actor_name`.

    Raises:
        InputError: the job wants nodes that are not in the cluster.
    """

    def __init__(self, job: TrainingJob, token: str) -> None:
        self._token = token
        self._job = job
        self._listed: dict[str, Host] = {host.name: host for host in job.nodes or ()}
        self._nodes: dict[str, NodeState] = {}
        self._there: dict[str, _Node] = {}
        self._ignored: set[str] = set()  # ids of nodes that the job is not to use
        self._tasks: dict[str, _Task] = {}
        self._groups: list[_Group] = []
        self._events = Events()
        self._looked = 0.0
        present = _names(_alive(), {})
        _require(job, present)
        self._ignored.update(node.id for name, node in present.items() if self._listed and name not in self._listed)
        self._look(time.monotonic())

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        """The nodes that are there."""
        return self._nodes

    def start(self, tasks: Sequence[TaskSpec]) -> None:
        """Start tasks on their nodes, all of them or none: a placement group is made as a whole."""
        group: _Group | None = None
        placed: list[tuple[TaskSpec, _Bundle]] = []
        for spec in tasks:
            bundle = self._spare(spec)
            if bundle is None:
                group = group or _Group(None, time.monotonic())
                bundle = _Bundle(group, len(group.bundles), spec.node, spec.role, self._cpus(spec, group), spec.name)
                group.bundles.append(bundle)
            bundle.task = spec.name
            placed.append((spec, bundle))
        if group is not None:
            group.handle = placement_group(
                [self._resources(bundle) for bundle in group.bundles],
                bundle_label_selector=[{NODE_ID: self._there[bundle.node].ray.id} for bundle in group.bundles],
            )
            self._groups.append(group)
        for spec, bundle in placed:
            self._create(spec, bundle)

    def kill(self, task: str) -> None:
        """End a task at once."""
        known = self._tasks.pop(task, None)
        if known is not None:
            _end(known.actor)
            self._free(known.bundle)

    def slow_down(self, node: str, slowdown: Slowdown) -> None:
        """Throttle or pause the tasks of a node."""
        keeper = self._there[node].keeper
        keeper.slow.options(num_returns=0).remote(slowdown.share, slowdown.pause, self._pids(node))

    def add(self, host: Host) -> None:
        """Not the launcher's to do.

        Raises:
            InputError: always: nodes join the Ray cluster, and so the job.
        """
        rule = "a node joins a job on Ray by joining the Ray cluster"
        raise InputError([Problem("host", rule, host.name, "run `ray start` there")])

    def remove(self, node: str) -> None:
        """Let a node go: the job uses it no longer, until it comes again as another one."""
        if node in self._there:
            self._ignored.add(self._there[node].ray.id)
            self._lose(node, "it was let go", wanted=True)

    def handle(self, message: Message) -> bool:
        """Note which process a task is now; the message is the coordinator's all the same."""
        if message.kind == "ready" and message.fields["task"] in self._tasks:
            self._tasks[message.fields["task"]].pid = message.fields["pid"]
        return False

    def poll(self) -> list[Event]:
        """What has happened since the last call."""
        now = time.monotonic()
        try:
            if now - self._looked >= LOOK_SECONDS:
                self._look(now)
                self._check_groups(now)
                self._ask_keepers()
            self._hear_tasks()
            self._hear_keepers()
        except RayError as error:
            raise LauncherError(f"Ray does not answer: {error}") from error
        return self._events.take()

    def close(self) -> None:
        """End all tasks, and give back what was reserved."""
        with contextlib.suppress(RayError):  # a process that is stopped would not hear that it should end
            released = [node.keeper.release.remote() for node in self._there.values()]
            if released:
                ray.wait(released, num_returns=len(released), timeout=2.0)
        for task in list(self._tasks):
            self.kill(task)
        for group in list(self._groups):
            self._remove_group(group)
        for node in self._there.values():
            _end(node.keeper)
        self._there.clear()
        self._nodes.clear()

    # --- nodes ---

    def _look(self, now: float) -> None:
        """Compare the cluster's nodes with those known."""
        self._looked = now
        alive = {node.id: (node, row) for node, row in _alive().items()}
        for name, known in list(self._there.items()):
            if known.ray.id not in alive:
                self._lose(name, "Ray has lost it")
        fresh = {node: row for node, row in alive.values() if node.id not in self._ignored}
        known_ids = {node.ray.id for node in self._there.values()}
        taken = {name: node.ray for name, node in self._there.items()}
        for name, node in _names({node: row for node, row in fresh.items() if node.id not in known_ids}, taken).items():
            self._join(name, node)

    def _join(self, name: str, node: _RayNode) -> None:
        host = self._listed.get(name)
        cpu, memory = round(1000 * node.cpus), node.memory
        if host is not None:
            cpu, memory = min(cpu, host.cpu), min(memory, host.memory)
        self._there[name] = _Node(node, _keeper(node.id))
        self._nodes[name] = NodeState(name, cpu, memory)
        self._events.waiting.append(NodeJoined(name))

    def _lose(self, name: str, why: str, wanted: bool = False) -> None:
        node = self._there.pop(name)
        del self._nodes[name]
        _end(node.keeper)
        for task in [task for task, known in self._tasks.items() if known.bundle.node == name]:
            self.kill(task)
        for group in list(self._groups):
            group.bundles = [bundle for bundle in group.bundles if bundle.node != name]
            if not group.bundles:
                self._remove_group(group)
        self._events.waiting.append(NodeLost(name, why, wanted))

    def _ask_keepers(self) -> None:
        for name, node in self._there.items():
            if node.asked is None:
                node.asked = node.keeper.look.remote(self._pids(name))

    def _hear_keepers(self) -> None:
        asked = {node.asked: name for name, node in self._there.items() if node.asked is not None}
        if not asked:
            return
        ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=0)
        for reference in ready:
            name = asked[reference]
            node = self._there[name]
            node.asked = None
            try:
                self._nodes[name].sample = NodeSample.from_document(ray.get(reference))
            except RayError:  # its process died, or its node, which is noticed elsewhere
                node.keeper = _keeper(node.ray.id)

    def _pids(self, node: str) -> dict[str, int]:
        return {name: task.pid for name, task in self._tasks.items() if task.bundle.node == node and task.pid}

    # --- tasks ---

    def _create(self, spec: TaskSpec, bundle: _Bundle) -> None:
        actor = (
            ray.remote(concurrency_groups={"task": 1})(Task)
            .options(
                name=actor_name(self._token, spec.name),
                namespace=NAMESPACE,
                num_cpus=0,  # its bundle has them
                max_restarts=self._job.restarts,
                scheduling_strategy=PlacementGroupSchedulingStrategy(bundle.group.handle, bundle.index),
            )
            .remote(actor_name(self._token, spec.name))
        )
        run = actor.run.options(concurrency_group="task", max_task_retries=-1)  # as often as Ray restarts the actor
        self._tasks[spec.name] = _Task(actor, run.remote(spec.model_dump(mode="json")), bundle)

    def _hear_tasks(self) -> None:
        runs = {task.run: name for name, task in self._tasks.items()}
        if not runs:
            return
        ready, _ = ray.wait(list(runs), num_returns=len(runs), timeout=0)
        for reference in ready:
            try:
                why = f"exit code {ray.get(reference)}"
            except RayError as error:
                why = f"Ray gave it up: {str(error).splitlines()[0]}"
            self.kill(runs[reference])
            self._events.waiting.append(TaskExited(runs[reference], why))

    # --- places ---

    def _cpus(self, spec: TaskSpec, pending: _Group) -> float:
        """CPUs that a further task may reserve on its node: what its role asks for, or else none."""
        groups = [*self._groups, pending]
        used = sum(bundle.cpus for group in groups for bundle in group.bundles if bundle.node == spec.node)
        return CPUS[spec.role] if used + CPUS[spec.role] <= self._there[spec.node].ray.cpus else 0.0

    def _resources(self, bundle: _Bundle) -> dict[str, float]:
        if bundle.cpus:
            return {"CPU": bundle.cpus}
        return {f"node:{self._there[bundle.node].ray.address}": 0.001}  # every node has 1 of it

    def _spare(self, spec: TaskSpec) -> _Bundle | None:
        """A bundle that a task of the same role has left on the node."""
        for group in self._groups:
            for bundle in group.bundles:
                if bundle.task is None and (bundle.node, bundle.role) == (spec.node, spec.role):
                    return bundle
        return None

    def _free(self, bundle: _Bundle) -> None:
        bundle.task = None
        if all(other.task is None for other in bundle.group.bundles):
            self._remove_group(bundle.group)

    def _remove_group(self, group: _Group) -> None:
        if group in self._groups:
            self._groups.remove(group)
        with contextlib.suppress(RayError):
            remove_placement_group(group.handle)

    def _check_groups(self, now: float) -> None:
        """See that Ray has put all bundles where they belong; what finds no place in time has failed."""
        for group in [group for group in self._groups if not group.placed]:
            table = placement_group_table(group.handle)
            if table["state"] == "CREATED":
                group.placed = True
                for bundle in group.bundles:
                    if table["bundles_to_node_id"][bundle.index] != self._there[bundle.node].ray.id:
                        raise LauncherError(f"Ray has put {bundle.task} elsewhere than on {bundle.node}")
            elif now - group.since > 0.9 * self._job.deadlines.start:
                for bundle in list(group.bundles):
                    if bundle.task is not None:
                        name = bundle.task
                        self.kill(name)
                        why = f"Ray found no place for it, or what starts with it, within {now - group.since:.0f} s"
                        self._events.waiting.append(TaskExited(name, why))


def _alive() -> dict[_RayNode, Mapping[str, Any]]:
    """The nodes that have CPUs, each with Ray's row about it."""
    nodes = {}
    for row in ray.nodes():
        cpus = row["Resources"].get("CPU", 0.0)
        if row["Alive"] and cpus > 0:
            memory = int(row["Resources"].get("memory", 0.0) / 2**20)
            nodes[_RayNode(row["NodeID"], row["NodeManagerAddress"], cpus, memory)] = row
    return nodes


def _names(rows: Mapping[_RayNode, Mapping[str, Any]], taken: Mapping[str, _RayNode]) -> dict[str, _RayNode]:
    """A name for each node: by its label, else its name at Ray, its host's name or its id, the first that is free."""
    names: dict[str, _RayNode] = {}
    order = sorted(rows.items(), key=lambda item: (item[1]["Labels"].get(LABEL, "~"), item[0].id))
    for node, row in order:
        own = row["NodeName"] if row["NodeName"] != node.address else None
        choices = (row["Labels"].get(LABEL), own, row["NodeManagerHostname"], node.id)
        names[next(name for name in choices if name and name not in names and name not in taken)] = node
    return names


def _require(job: TrainingJob, present: Mapping[str, _RayNode]) -> None:
    wanted = {host.name: f"nodes[{index}].name" for index, host in enumerate(job.nodes or ())}
    for name in job.tasks or ():
        wanted.setdefault(name, f"tasks.{name}")
    problems = [
        Problem(place, "is not in the Ray cluster", name, near(name, list(present)) or _label_hint(name))
        for name, place in wanted.items()
        if name not in present
    ]
    if problems:
        raise InputError(problems)


def _label_hint(name: str) -> str:
    return f"start the node with: ray start --labels {LABEL}={name}"


def _keeper(node: str) -> Any:
    pinned = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(Keeper).options(num_cpus=0, scheduling_strategy=pinned).remote()


def _end(actor: Any) -> None:
    with contextlib.suppress(RayError, ValueError):
        ray.kill(actor, no_restart=True)
