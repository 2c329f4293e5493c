"""Why a job waits: the first thing that holds it in this plan, in a sentence with amounts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.rules import format_amount
from coplace.formulations.scoring import Scoring
from coplace.instances.cluster import NO_GPU, RESOURCES, Vector
from coplace.instances.job import Job
from coplace.instances.plan import Plan
from coplace.solver.packing import ANY_TYPE, Packer
from coplace.solver.placement import Placement, Shape
from coplace.solver.result import Pending
from coplace.solver.smallest import SmallestShapes
from coplace.solver.state import State


def pending_jobs(
    scoring: Scoring, plan: Plan, *, left_out: str = "it would fit, but was left out"
) -> tuple[Pending, ...]:
    """The jobs that *plan* (feasible) leaves waiting, each with what holds it.

    *left_out* is said of a job that nothing holds.
    """
    state = State(scoring, plan)
    explainer = _Explainer(state, left_out)
    waiting = (j for j, placement in enumerate(state.placements) if placement is None)
    return tuple(explainer.explain(j) for j in waiting)


@dataclass(frozen=True, slots=True)
class _Obstacle:
    """What holds a job on one GPU type; obstacles met later (higher ``stage``) are nearer to admission."""

    stage: int
    rule: str
    resource: str | None
    reason: str


_FITS = 20
"""Stage of a job that nothing holds."""

_Held = tuple[str, str | None, str]
"""Rule, resource and sentence of an obstacle."""


@dataclass(frozen=True, slots=True)
class _Group:
    """The open nodes of one GPU type (or any) that a job selects; no job is started here, so amounts do not change.

    Attributes:
        hosts: their positions.
        nodes: what one of them is called.
        free: what is free on each, by [host, resource].
        total: what is free on all together, by resource.
        largest: the most that one of them offers when empty, by resource.
        where: added to what is free where cordoned nodes are left out: they may have room, but take no new tasks.
    """

    hosts: NDArray[np.intp]
    nodes: str
    free: NDArray[np.int64]
    total: list[int]
    largest: list[int]
    where: str


@dataclass(frozen=True, slots=True)
class _Case:
    """A shape that a waiting job could start in, and the open nodes for its workers."""

    j: int
    job: Job
    shape: Shape
    group: _Group
    worker: Vector
    server: Vector


class _Explainer:
    """Looks at the smallest shapes of each job; jobs that ask for the same share what was found."""

    def __init__(self, state: State, left_out: str) -> None:
        self.state = state
        self.left_out = left_out
        self.packer = Packer(state)
        self.smallest = SmallestShapes(state)
        self.top = len(state.scoring.levels) - 1
        self.type_names = state.instance.gpu_types
        self._groups: dict[tuple[int, int], _Group] = {}
        self._found: dict[tuple[object, ...], _Obstacle | Placement] = {}

    def explain(self, j: int) -> Pending:
        job = self.state.instance.jobs[j]
        nearest = self._general(j, job)
        for shape in () if nearest else self.smallest.of(j):
            obstacle = self._of_shape(j, job, shape)
            if nearest is None or obstacle.stage > nearest.stage:
                nearest = obstacle
            if nearest.stage == _FITS:
                break
        assert nearest is not None
        return Pending(job.name, nearest.rule, nearest.resource, nearest.reason)

    def _general(self, j: int, job: Job) -> _Obstacle | None:
        """What holds the job whatever is free."""
        scoring = self.state.scoring
        if not self.state.instance.nodes:
            return _Obstacle(0, "capacity", None, "the cluster has no node")
        if scoring.reference[j] <= 0:
            types = ", ".join(job.types)
            return _Obstacle(0, "speed", None, f"no speed is known for its counts on the GPU types it allows ({types})")
        if scoring.value(j, scoring.reference[j], kept=False) <= 0:
            goal = self.state.instance.goal
            return _Obstacle(0, "value", None, f"running it is worth 0 for the goal {goal}, so that nothing is gained")
        return None

    def _of_shape(self, j: int, job: Job, shape: Shape) -> _Obstacle:
        """What holds one shape; of what jobs with the same demands share, only what it is worth is looked at again."""
        state = self.state
        demands = state.demands(j, shape)
        tenant = job.tenant if job.tenant in state.tenant_limit else None
        key = (id(state.nodes.selected(job)), tenant, shape.gpu_type, shape.workers, shape.servers, demands,
               state.intensities(j))  # fmt: skip
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._look(j, job, shape, demands)
        if isinstance(found, _Obstacle):
            return found
        return self._worth(j, Placement(shape, found.workers, found.servers))

    def _look(self, j: int, job: Job, shape: Shape, demands: tuple[Vector, Vector]) -> _Obstacle | Placement:
        """The first thing that holds the shape, or where it would fit."""
        group = self._group(j, shape.gpu_type)
        if not group.hosts.size:
            if job.node_selector:
                wanted = ", ".join(f"{key}={value}" for key, value in job.node_selector.items())
                return _Obstacle(1, "selector", None, f"no open {group.nodes} carries {wanted}")
            return _Obstacle(1, "cordon", None, self._closed(shape.gpu_type, group.nodes))
        case = _Case(j, job, shape, group, *demands)
        looks = (self._too_large, self._quota, self._short, self._fragmented, self._calm_enough, self._servers)
        for stage, look in enumerate(looks, start=2):
            held = look(case)
            if held is not None:
                return _Obstacle(stage, *held)
        placement = self.packer.place(j, shape, self.top)
        if isinstance(placement, Placement):
            return placement
        tasks = f"its tasks, workers × {shape.workers} and servers × {shape.servers},"
        return _Obstacle(
            _FITS - 2, "fragmentation", None, f"{tasks} find no room together on {group.nodes}s and others"
        )

    def _group(self, j: int, gpu_type: int) -> _Group:
        job, arrays = self.state.instance.jobs[j], self.state.nodes
        selected = arrays.selected(job)
        key = (id(selected), gpu_type)
        group = self._groups.get(key)
        if group is None:
            hosts = self.packer.hosts(j, gpu_type)
            here = len(selected) if gpu_type == ANY_TYPE else int((arrays.gpu_type[selected] == gpu_type).sum())
            name = NO_GPU if gpu_type == ANY_TYPE else self.type_names[gpu_type]
            group = self._groups[key] = _Group(
                hosts,
                f"{name} node" if name != NO_GPU else "node without GPUs",
                self.state.free[hosts],
                self.state.free[hosts].sum(axis=0).tolist(),
                arrays.free[hosts].max(axis=0, initial=0).tolist(),
                " on open nodes" if here > len(hosts) else "",
            )
        return group

    def _closed(self, gpu_type: int, nodes: str) -> str:
        """How many nodes of the type are cordoned and lost, where none is open."""
        of_type = [node for node in self.state.instance.nodes if node.gpu_type == self.type_names[gpu_type]]
        lost = sum(not node.available for node in of_type)
        parts = [f"{n} {what}" for n, what in ((len(of_type) - lost, "cordoned"), (lost, "lost")) if n]
        return f"no {nodes} is open: {' and '.join(parts)}"

    def _too_large(self, case: _Case) -> _Held | None:
        """One worker against the largest empty node."""
        group = case.group
        for resource, need, largest in zip(RESOURCES, case.worker, group.largest, strict=True):
            if need > largest:
                needs, offers = format_amount(resource, need), format_amount(resource, largest)
                nodes = f"open {group.nodes}" if group.where else group.nodes
                return "capacity", resource, f"a worker needs {needs}, the largest {nodes} offers {offers}"
        return None

    def _quota(self, case: _Case) -> _Held | None:
        """The tenant's quota."""
        if self.state.within_quota(case.j, case.shape):
            return None
        tenant = case.job.tenant
        need, use = self.state.total_demand(case.j, case.shape), self.state.tenant_use[tenant]
        limit = self.state.tenant_limit[tenant]
        r = int(np.flatnonzero(use + need > limit)[0])
        used, allowed, more = (format_amount(RESOURCES[r], int(x[r])) for x in (use, limit, need))
        return "quota", RESOURCES[r], f"tenant {tenant} uses {used} of its quota of {allowed}, and it needs {more}"

    def _short(self, case: _Case) -> _Held | None:
        """What is free on all nodes of the type together."""
        group = case.group
        for resource, each, free in zip(RESOURCES, case.worker, group.total, strict=True):
            need = case.shape.workers * each
            if need > free:
                needs, left = format_amount(resource, need), format_amount(resource, free)
                return "capacity", resource, f"its workers need {needs} on {group.nodes}s, {left} free{group.where}"
        return None

    def _fragmented(self, case: _Case) -> _Held | None:
        """Room node by node: each resource alone, then together."""
        workers, nodes, where = case.shape.workers, case.group.nodes, case.group.where
        free = case.group.free
        rooms = {r: free[:, i] // case.worker[i] for i, r in enumerate(RESOURCES) if case.worker[i]}
        for resource, room in rooms.items():
            if int(np.minimum(room, workers).sum()) < workers:
                i = RESOURCES.index(resource)
                total, each = format_amount(resource, case.group.total[i]), format_amount(resource, case.worker[i])
                fit = f"{int(room.sum())} of {workers} fit"
                message = f"{total} free{where}, but in pieces: a worker needs {each} on one {nodes}, {fit}"
                return "fragmentation", resource, message
        together = np.minimum.reduce([*rooms.values(), np.full(len(free), workers)])
        if int(together.sum()) < workers:
            message = (
                f"a worker needs {_list(case.worker)} together on one {nodes}, {int(together.sum())} of {workers} fit"
            )
            return "fragmentation", _scarce(rooms), message
        most = self.state.instance.rules.max_tasks_per_node
        if most is not None and int(np.minimum(together, most).sum()) < workers:
            message = f"at most {most} tasks of a job may share a node, and too few {nodes}s have room"
            return "tasks-per-node", None, message
        return None

    def _calm_enough(self, case: _Case) -> _Held | None:
        """Room below the highest pressure level."""
        intensity = self.state.intensities(case.j)[0]
        if not intensity:
            return None
        hosts, free = case.group.hosts, case.group.free
        load = self.state.load[hosts]
        room = self.packer.room(hosts, self.top, case.worker, intensity, free, load)
        if int(np.minimum(room, case.shape.workers).sum()) >= case.shape.workers:
            return None
        holds = self.packer.room(hosts, self.top, case.worker, 0, free, load) > 0
        left = int((self.state.nodes.capacities[hosts, self.top] - load)[holds].max())
        each = f"its workers add intensity {intensity} each"
        return "pressure", None, f"{each}, the calmest {case.group.nodes} with room for one bears {left} more"

    def _servers(self, case: _Case) -> _Held | None:
        """Room for the parameter servers on any node."""
        servers = case.shape.servers
        if not servers:
            return None
        group = self._group(case.j, ANY_TYPE)
        free = group.free
        rooms = {r: free[:, i] // case.server[i] for i, r in enumerate(RESOURCES) if case.server[i]}
        together = np.minimum.reduce([*rooms.values(), np.full(len(free), servers)])
        if int(together.sum()) >= servers:
            return None
        needs = f"a parameter server needs {_list(case.server)} together on one node"
        return (
            "capacity",
            _scarce(rooms),
            f"{needs}, {int(together.sum())} of {servers} fit on what is free{group.where}",
        )

    def _worth(self, j: int, placement: Placement) -> _Obstacle:
        """Every single look passes; so it is the value, or the search."""
        effect = self.state.effect(j, placement)
        if self.state.worth(effect):
            return _Obstacle(_FITS, "search", None, self.left_out)
        own = effect.values[j]
        message = (
            f"it would fit, but the pressure it adds costs others {own - effect.gain:.4g}, more than its own {own:.4g}"
        )
        return _Obstacle(_FITS - 1, "value", None, message)


def _list(demand: Vector) -> str:
    """A demand as text: ``2 GPUs, 4 CPU, 16Gi memory``."""
    return ", ".join(format_amount(r, amount) for r, amount in zip(RESOURCES, demand, strict=True) if amount)


def _scarce(rooms: dict[str, NDArray[np.int64]]) -> str:
    """The resource that leaves room for the fewest tasks."""
    return min(rooms, key=lambda resource: int(rooms[resource].sum()))
