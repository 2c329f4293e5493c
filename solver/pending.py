"""Why a job waits: the first thing that holds it in this plan, in a sentence with amounts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.rules import format_amount
from coplace.formulations.scoring import Scoring
from coplace.instances.cluster import RESOURCES, Vector
from coplace.instances.job import Job
from coplace.instances.plan import Plan
from coplace.solver.packing import Packer
from coplace.solver.placement import Shape
from coplace.solver.result import Pending
from coplace.solver.state import State


def pending_jobs(scoring: Scoring, plan: Plan, *, finished: bool = True) -> tuple[Pending, ...]:
    """The jobs that *plan* (feasible) leaves waiting, each with what holds it.

    With *finished* false the search was cut short, so that a job that would fit may just not have been reached.
    """
    state = State(scoring, plan)
    explainer = _Explainer(state, finished)
    waiting = (j for j, placement in enumerate(state.placements) if placement is None)
    return tuple(explainer.explain(j) for j in waiting)


@dataclass(frozen=True, slots=True)
class _Obstacle:
    """What holds a job on one GPU type; obstacles met later (higher ``stage``) are nearer to admission."""

    stage: int
    rule: str
    resource: str | None
    reason: str


class _Explainer:
    def __init__(self, state: State, finished: bool) -> None:
        self.state = state
        self.finished = finished
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
            yield self._on_type(j, job, cluster_type)

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
        none = _Obstacle(0, "speed", None, f"no speed is known for its counts on {self.type_names[t]}")
        return max(obstacles, key=lambda obstacle: obstacle.stage, default=none)

    def _of_shape(self, j: int, job: Job, shape: Shape) -> _Obstacle:
        gpu_type = self.type_names[shape.gpu_type]
        hosts = self.packer.hosts(j, shape.gpu_type)
        nodes = f"{gpu_type} node" if gpu_type != "none" else "node without GPUs"
        if not hosts.size:
            if job.node_selector:
                wanted = ", ".join(f"{key}={value}" for key, value in job.node_selector.items())
                return _Obstacle(1, "selector", None, f"no open {nodes} carries {wanted}")
            return _Obstacle(1, "cordon", None, f"every {nodes} is cordoned or lost")
        worker, server = self.state.demands(j, shape)
        checks = (
            self._too_large(nodes, hosts, worker),
            self._quota(j, job, shape),
            self._short(j, shape, gpu_type, hosts, worker),
            self._fragmented(job, shape, nodes, hosts, worker),
            self._under_pressure(j, shape, nodes, hosts, worker),
            self._no_room_for_servers(j, shape, server),
        )
        for stage, obstacle in enumerate(checks):
            if obstacle is not None:
                return _Obstacle(stage + 2, *obstacle)
        return self._fits(j, job, shape, nodes)

    def _too_large(self, nodes: str, hosts: NDArray[np.intp], worker: Vector) -> tuple[str, str, str] | None:
        """One worker against the largest empty node."""
        empty = self.state.nodes.free[hosts]
        for r, resource in enumerate(RESOURCES):
            if worker[r] > empty[:, r].max():
                needs, largest = format_amount(resource, worker[r]), format_amount(resource, int(empty[:, r].max()))
                return "capacity", resource, f"a worker needs {needs}, the largest {nodes} offers {largest}"
        return None

    def _quota(self, j: int, job: Job, shape: Shape) -> tuple[str, str, str] | None:
        """The tenant's quota."""
        if self.state.within_quota(j, shape):
            return None
        need, use = self.state.total_demand(j, shape), self.state.tenant_use[job.tenant]
        limit = self.state.tenant_limit[job.tenant]
        r = int(np.flatnonzero(use + need > limit)[0])
        used, allowed, more = (format_amount(RESOURCES[r], int(x[r])) for x in (use, limit, need))
        return "quota", RESOURCES[r], f"tenant {job.tenant} uses {used} of its quota of {allowed}, and it needs {more}"

    def _short(
        self, j: int, shape: Shape, gpu_type: str, hosts: NDArray[np.intp], worker: Vector
    ) -> tuple[str, str, str] | None:
        """What is free on all nodes of the type together."""
        free = self.state.free[hosts].sum(axis=0)
        for r, resource in enumerate(RESOURCES):
            need = shape.workers * worker[r]
            if need > free[r]:
                needs, left = format_amount(resource, need), format_amount(resource, int(free[r]))
                where = f"on {gpu_type} nodes" if gpu_type != "none" else "on nodes without GPUs"
                return "capacity", resource, f"its workers need {needs} {where}, {left} free"
        return None

    def _fragmented(
        self, job: Job, shape: Shape, nodes: str, hosts: NDArray[np.intp], worker: Vector
    ) -> tuple[str, str | None, str] | None:
        """Room node by node: each resource alone, then together."""
        free = self.state.free[hosts]
        rooms = {r: free[:, i] // worker[i] for i, r in enumerate(RESOURCES) if worker[i]}
        for resource, room in rooms.items():
            if int(np.minimum(room, shape.workers).sum()) < shape.workers:
                i = RESOURCES.index(resource)
                total, each = format_amount(resource, int(free[:, i].sum())), format_amount(resource, worker[i])
                fit = int(room.sum())
                message = (
                    f"{total} free, but in pieces: a worker needs {each} on one {nodes}, {fit} of {shape.workers} fit"
                )
                return "fragmentation", resource, message
        most = self.state.instance.rules.max_tasks_per_node
        together = np.minimum.reduce([*rooms.values(), np.full(len(hosts), shape.workers)])
        if int(together.sum()) < shape.workers:
            needs = ", ".join(format_amount(r, a) for r, a in zip(RESOURCES, worker, strict=True) if a)
            message = f"no {nodes} has {needs} free together for each of its {shape.workers} workers"
            return "fragmentation", self._scarce(rooms), message
        if most is not None and int(np.minimum(together, most).sum()) < shape.workers:
            message = f"at most {most} tasks of a job may share a node, and too few {nodes}s have room"
            return "tasks-per-node", None, message
        return None

    @staticmethod
    def _scarce(rooms: dict[str, NDArray[np.int64]]) -> str:
        """The resource that leaves room for the fewest tasks."""
        return min(rooms, key=lambda resource: int(rooms[resource].sum()))

    def _under_pressure(
        self, j: int, shape: Shape, nodes: str, hosts: NDArray[np.intp], worker: Vector
    ) -> tuple[str, None, str] | None:
        """Room below the highest pressure level."""
        intensity = self.state.intensities(j)[0]
        if not intensity:
            return None
        room = self.packer.room(hosts, self.top, worker, intensity, self.state.free[hosts], self.state.load[hosts])
        if int(np.minimum(room, shape.workers).sum()) >= shape.workers:
            return None
        left = int((self.state.nodes.capacities[hosts, self.top] - self.state.load[hosts]).max())
        message = f"its workers add intensity {intensity} each, the calmest {nodes} bears {left} more"
        return "pressure", None, message

    def _no_room_for_servers(self, j: int, shape: Shape, server: Vector) -> tuple[str, str | None, str] | None:
        """Room for the parameter servers on any node."""
        if not shape.servers:
            return None
        hosts = self.packer.hosts(j, -1)
        free = self.state.free[hosts]
        rooms = {r: free[:, i] // server[i] for i, r in enumerate(RESOURCES) if server[i]}
        together = np.minimum.reduce([*rooms.values(), np.full(len(hosts), shape.servers)])
        if int(together.sum()) >= shape.servers:
            return None
        needs = ", ".join(format_amount(r, a) for r, a in zip(RESOURCES, server, strict=True) if a)
        scarce = self._scarce(rooms)
        message = f"its {shape.servers} parameter servers need {needs} each, {int(together.sum())} fit on what is free"
        return "capacity", scarce, message

    def _fits(self, j: int, job: Job, shape: Shape, nodes: str) -> _Obstacle:
        """Every single check passes; so it is the combination, the value, or the search."""
        placement = self.packer.place(j, shape, self.top)
        if placement is None:
            message = (
                f"its {shape.workers} workers and {shape.servers} servers find no room together on {nodes}s and others"
            )
            return _Obstacle(20, "fragmentation", None, message)
        before = self.state.objective
        self.state.put(j, placement)
        own = self.state.values[j]
        gain = self.state.objective - before
        self.state.take(j)
        if gain > 0:
            what = (
                "the method left it out, though it would fit"
                if self.finished
                else "not reached when the search stopped"
            )
            return _Obstacle(22, "search", None, what)
        message = f"it would fit, but the pressure it adds costs others {own - gain:.4g}, more than its own {own:.4g}"
        return _Obstacle(21, "value", None, message)
