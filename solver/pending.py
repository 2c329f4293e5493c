"""Why a job waits: the first thing that holds it in this plan, in a sentence with amounts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.rules import format_amount
from coplace.formulations.scoring import Scoring
from coplace.instances.cluster import NO_GPU, RESOURCES, Vector
from coplace.instances.job import Job
from coplace.instances.plan import Plan
from coplace.solver.packing import ANY_TYPE, Packer, Shortage
from coplace.solver.placement import Shape
from coplace.solver.result import Pending
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


_SERVERS_STAGE = 7
"""Stage of the first look that depends on the number of servers."""

_FITS = 20
"""Stage of a job that nothing holds."""

_Held = tuple[str, str | None, str]
"""Rule, resource and sentence of an obstacle."""


@dataclass(frozen=True, slots=True)
class _Case:
    """A shape that a waiting job could start in, and the open nodes for its workers."""

    j: int
    job: Job
    shape: Shape
    hosts: NDArray[np.intp]
    nodes: str
    worker: Vector
    server: Vector


class _Explainer:
    def __init__(self, state: State, left_out: str) -> None:
        self.state = state
        self.left_out = left_out
        self.packer = Packer(state)
        self.top = len(state.scoring.levels) - 1
        self.type_names = state.instance.gpu_types

    def explain(self, j: int) -> Pending:
        job = self.state.instance.jobs[j]
        nearest = max(self._obstacles(j, job), key=lambda obstacle: obstacle.stage)
        return Pending(job.name, nearest.rule, nearest.resource, nearest.reason)

    def _obstacles(self, j: int, job: Job) -> Iterator[_Obstacle]:
        if self.state.scoring.reference[j] <= 0:
            types = ", ".join(job.types)
            yield _Obstacle(0, "speed", None, f"no speed is known for its counts on the GPU types it allows ({types})")
            return
        for cluster_type in self.state.types_of(j):
            obstacle = self._on_type(j, job, cluster_type)
            yield obstacle
            if obstacle.stage == _FITS:
                return

    def _on_type(self, j: int, job: Job, t: int) -> _Obstacle:
        """What holds the smallest configuration of the job on GPU type *t*; of several profiles, the nearest to fit."""
        least = self.state.scoring.reference_workers[j]
        obstacles = []
        for worker_profile in range(len(job.worker.profiles)):
            for ps_profile in range(len(job.ps.profiles) if job.ps else 1):
                for servers in range(job.min_servers, job.max_servers + 1):
                    shape = Shape(t, least, servers, worker_profile, ps_profile)
                    if self.state.speed(j, shape, 1, 0) > 0:
                        obstacles.append(self._of_shape(j, job, shape))
                        if obstacles[-1].stage < _SERVERS_STAGE:
                            break  # more servers change nothing about that
                        if obstacles[-1].stage == _FITS:
                            return obstacles[-1]
        none = _Obstacle(0, "speed", None, f"no speed is known for its counts on {self.type_names[t]}")
        return max(obstacles, key=lambda obstacle: obstacle.stage, default=none)

    def _of_shape(self, j: int, job: Job, shape: Shape) -> _Obstacle:
        gpu_type = self.type_names[shape.gpu_type]
        hosts = self.packer.hosts(j, shape.gpu_type)
        nodes = f"{gpu_type} node" if gpu_type != NO_GPU else "node without GPUs"
        if not hosts.size:
            if job.node_selector:
                wanted = ", ".join(f"{key}={value}" for key, value in job.node_selector.items())
                return _Obstacle(1, "selector", None, f"no open {nodes} carries {wanted}")
            return _Obstacle(1, "cordon", None, self._closed(shape.gpu_type, nodes))
        case = _Case(j, job, shape, hosts, nodes, *self.state.demands(j, shape))
        looks = (self._too_large, self._quota, self._short, self._fragmented, self._calm_enough, self._servers)
        for stage, look in enumerate(looks, start=2):
            held = look(case)
            if held is not None:
                return _Obstacle(stage, *held)
        return self._fits(case)

    def _closed(self, gpu_type: int, nodes: str) -> str:
        """How many nodes of the type are cordoned and lost, where none is open."""
        of_type = [node for node in self.state.instance.nodes if node.gpu_type == self.type_names[gpu_type]]
        lost = sum(not node.available for node in of_type)
        parts = [f"{n} {what}" for n, what in ((len(of_type) - lost, "cordoned"), (lost, "lost")) if n]
        return f"no {nodes} is open: {' and '.join(parts)}"

    def _too_large(self, case: _Case) -> _Held | None:
        """One worker against the largest empty node."""
        empty = self.state.nodes.free[case.hosts]
        for r, resource in enumerate(RESOURCES):
            largest = int(empty[:, r].max())
            if case.worker[r] > largest:
                needs, offers = format_amount(resource, case.worker[r]), format_amount(resource, largest)
                return "capacity", resource, f"a worker needs {needs}, the largest {case.nodes} offers {offers}"
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
        free = self.state.free[case.hosts].sum(axis=0)
        for r, resource in enumerate(RESOURCES):
            need = case.shape.workers * case.worker[r]
            if need > free[r]:
                needs, left = format_amount(resource, need), format_amount(resource, int(free[r]))
                return "capacity", resource, f"its workers need {needs} on {case.nodes}s, {left} free"
        return None

    def _fragmented(self, case: _Case) -> _Held | None:
        """Room node by node: each resource alone, then together."""
        workers = case.shape.workers
        free = self.state.free[case.hosts]
        rooms = {r: free[:, i] // case.worker[i] for i, r in enumerate(RESOURCES) if case.worker[i]}
        for resource, room in rooms.items():
            if int(np.minimum(room, workers).sum()) < workers:
                i = RESOURCES.index(resource)
                total, each = format_amount(resource, int(free[:, i].sum())), format_amount(resource, case.worker[i])
                fit = f"{int(room.sum())} of {workers} fit"
                message = f"{total} free, but in pieces: a worker needs {each} on one {case.nodes}, {fit}"
                return "fragmentation", resource, message
        together = np.minimum.reduce([*rooms.values(), np.full(len(free), workers)])
        if int(together.sum()) < workers:
            message = (
                f"a worker needs {_list(case.worker)} together on one {case.nodes}, "
                f"{int(together.sum())} of {workers} fit"
            )
            return "fragmentation", _scarce(rooms), message
        most = self.state.instance.rules.max_tasks_per_node
        if most is not None and int(np.minimum(together, most).sum()) < workers:
            message = f"at most {most} tasks of a job may share a node, and too few {case.nodes}s have room"
            return "tasks-per-node", None, message
        return None

    def _calm_enough(self, case: _Case) -> _Held | None:
        """Room below the highest pressure level."""
        intensity = self.state.intensities(case.j)[0]
        if not intensity:
            return None
        free, load = self.state.free[case.hosts], self.state.load[case.hosts]
        room = self.packer.room(case.hosts, self.top, case.worker, intensity, free, load)
        if int(np.minimum(room, case.shape.workers).sum()) >= case.shape.workers:
            return None
        holds = self.packer.room(case.hosts, self.top, case.worker, 0, free, load) > 0
        left = int((self.state.nodes.capacities[case.hosts, self.top] - load)[holds].max())
        each = f"its workers add intensity {intensity} each"
        return "pressure", None, f"{each}, the calmest {case.nodes} with room for one bears {left} more"

    def _servers(self, case: _Case) -> _Held | None:
        """Room for the parameter servers on any node."""
        servers = case.shape.servers
        if not servers:
            return None
        free = self.state.free[self.packer.hosts(case.j, ANY_TYPE)]
        rooms = {r: free[:, i] // case.server[i] for i, r in enumerate(RESOURCES) if case.server[i]}
        together = np.minimum.reduce([*rooms.values(), np.full(len(free), servers)])
        if int(together.sum()) >= servers:
            return None
        needs = f"a parameter server needs {_list(case.server)} together on one node"
        return "capacity", _scarce(rooms), f"{needs}, {int(together.sum())} of {servers} fit on what is free"

    def _fits(self, case: _Case) -> _Obstacle:
        """Every single look passes; so it is the combination, the value, or the search."""
        state, shape = self.state, case.shape
        placement = self.packer.place(case.j, shape, self.top)
        if isinstance(placement, Shortage):
            tasks = f"its tasks, workers × {shape.workers} and servers × {shape.servers},"
            return _Obstacle(
                _FITS - 2, "fragmentation", None, f"{tasks} find no room together on {case.nodes}s and others"
            )
        effect = state.effect(case.j, placement)
        own = effect.values[case.j]
        if state.worth(effect):
            return _Obstacle(_FITS, "search", None, self.left_out)
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
