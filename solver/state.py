"""The state of a search: what runs where, what is free, and what it is all worth, updated task by task."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.keep import keep_current
from coplace.formulations.scoring import Scoring
from coplace.formulations.speed import Configurations
from coplace.instances.cluster import Vector
from coplace.instances.demand import demand
from coplace.instances.plan import PS, WORKER, Allocation, Plan
from coplace.solver.placement import Placement, Shape

LEAST_GAIN = 1e-9
"""Gain, relative to the largest value that changes, below which a change counts as none."""

_UNCHANGED: Mapping[int, float] = {}


class Effect(NamedTuple):
    """What a change does.

    Attributes:
        gain: in the objective.
        level: pressure level that the job feels.
        values: λ · U afterwards of the job and of all others whose nodes change their level.
    """

    gain: float
    level: int
    values: dict[int, float]


class State:
    """Jobs and nodes by their position in the instance.

    Attributes:
        free: free amounts by [node, resource] (GPUs, milli-cores, MiB).
        free_gpus: its first column, contiguous, since most nodes are ruled out by it.
        load, load_of: intensity on each node, by [node], as array and as list.
        level: pressure level at which each node runs, by [node].
        placements: placement of each job, None if it runs nothing.
        values: λ · U of each job.
        open_free: what is free on all open nodes together, by [resource].
        version: rises with every change, so that what was found out about a state can be remembered.
        kept_placements: what keep-current keeps of each job.
        moves_left: running jobs that may still be moved; None without a budget.
    """

    def __init__(self, scoring: Scoring, plan: Plan | None = None) -> None:
        """The state that runs *plan*, by default keep-current."""
        self.scoring = scoring
        self.instance = scoring.instance
        self.nodes = scoring.nodes
        self.free: NDArray[np.int64] = self.nodes.free.copy()
        self.free_gpus: NDArray[np.int64] = self.free[:, 0].copy()
        self.load: NDArray[np.int64] = np.zeros(len(self.nodes.names), dtype=np.int64)
        self.load_of = [0] * len(self.nodes.names)
        self.level = [0] * len(self.nodes.names)
        self.jobs_on: list[set[int]] = [set() for _ in self.nodes.names]
        self.placements: list[Placement | None] = [None] * len(self.instance.jobs)
        self.values = [0.0] * len(self.instance.jobs)
        self.version = 0
        self.open_free: list[int] = self.nodes.free[self.nodes.open].sum(axis=0).tolist()
        self.tenant_use: dict[str, NDArray[np.int64]] = {
            tenant: np.zeros(3, dtype=np.int64) for tenant in self.instance.rules.quotas
        }
        quotas = self.instance.rules.quotas
        unlimited = np.iinfo(np.int64).max
        self.tenant_limit = {
            tenant: np.array([unlimited if limit is None else limit for limit in quota.vector], dtype=np.int64)
            for tenant, quota in quotas.items()
        }
        self._capacities = [tuple(int(c) for c in row) for row in self.nodes.capacities]
        cluster_type = {gpu_type: t for t, gpu_type in enumerate(self.instance.gpu_types)}
        own_types = {
            types: {cluster_type[name]: i for i, name in enumerate(types) if name in cluster_type}
            for types in {job.types for job in self.instance.jobs}
        }
        self._own_type = [own_types[job.types] for job in self.instance.jobs]
        self._values: dict[tuple[int, Shape, int, int, bool], float] = {}
        self._demands: dict[tuple[int, Shape], tuple[Vector, Vector]] = {}
        # Open nodes by [GPU type][free GPUs], so that a gang for which GPUs are short is refused in no time.
        most = int(self.nodes.free[:, 0].max(initial=0))
        self._workers_by_gpus: dict[int, NDArray[np.int64]] = {}
        self._gpu_histogram = np.zeros((len(self.instance.gpu_types), most + 1), dtype=np.int64)
        self._open_type = [int(t) if o else -1 for t, o in zip(self.nodes.gpu_type, self.nodes.open, strict=True)]
        for t, gpus in zip(self._open_type, self.nodes.free[:, 0], strict=True):
            if t >= 0:
                self._gpu_histogram[t, int(gpus)] += 1
        kept = keep_current(self.instance, scoring)
        self.kept_placements: list[Placement | None] = [None] * len(self.instance.jobs)
        self.moves_left = self.instance.rules.move_budget
        for j, job in enumerate(self.instance.jobs):
            if job.name in kept:
                self.kept_placements[j] = self.placement_of(kept[job.name])
        for j, job in enumerate(self.instance.jobs):
            placement = self.kept_placements[j]
            if plan is not None and job.name in plan:
                same = placement is not None and plan[job.name].same_as(job.current)
                self.put(j, placement if placement is not None and same else self.placement_of(plan[job.name]))
            elif plan is None and placement is not None:
                self.put(j, placement)

    @property
    def objective(self) -> float:
        """The sum of the values, exact whatever their scales."""
        return math.fsum(self.values)

    # --- reading ----------------------------------------------------------------------------------------------------

    def types_of(self, j: int) -> dict[int, int]:
        """GPU types that job *j* may use and the cluster has: position in the cluster → position in the job."""
        return self._own_type[j]

    def demands(self, j: int, shape: Shape) -> tuple[Vector, Vector]:
        """Demand of one worker and of one server of job *j*."""
        known = self._demands.get((j, shape))
        if known is None:
            job = self.instance.jobs[j]
            worker = demand(job, WORKER, shape.workers, shape.servers, shape.worker_profile)
            server = (0, 0, 0)
            if job.ps is not None:
                server = demand(job, PS, shape.workers, shape.servers, shape.ps_profile)
            known = self._demands[j, shape] = worker, server
        return known

    def gpu_room(self, j: int) -> NDArray[np.int64]:
        """For how many workers of job *j* there are free GPUs, in pieces as they are, by [GPU type]; its own count."""
        each = self.instance.jobs[j].worker.gpu
        if each == 0:
            return np.full(len(self._gpu_histogram), np.iinfo(np.int64).max)
        workers = self._workers_by_gpus.get(each)
        if workers is None:
            workers = self._workers_by_gpus[each] = np.arange(self._gpu_histogram.shape[1]) // each
        room = self._gpu_histogram @ workers
        placement = self.placements[j]
        if placement is not None:
            room[placement.shape.gpu_type] += placement.shape.workers
        return np.asarray(room)

    def intensities(self, j: int) -> tuple[int, int]:
        """Intensity of one worker and of one server of job *j*."""
        job = self.instance.jobs[j]
        return job.worker.intensity, job.ps.intensity if job.ps else 0

    def total_demand(self, j: int, shape: Shape) -> NDArray[np.int64]:
        """Demand of all tasks of job *j*, by [resource]."""
        return np.array(self.total(j, shape), dtype=np.int64)

    def total(self, j: int, shape: Shape) -> Vector:
        """The same as a tuple."""
        worker, server = self.demands(j, shape)
        w, p = shape.workers, shape.servers
        return (w * worker[0] + p * server[0], w * worker[1] + p * server[1], w * worker[2] + p * server[2])

    def room(self, j: int) -> list[int]:
        """What all tasks of job *j* together may take at most, by [resource]: of open nodes and of its quota.

        What it takes now is counted as free, and so is all that is free anywhere: an upper bound.
        """
        room = self.open_free
        tenant = self.instance.jobs[j].tenant
        use = self.tenant_use.get(tenant)
        if use is not None:
            left = (self.tenant_limit[tenant] - use).tolist()
            room = [min(free, allowed) for free, allowed in zip(room, left, strict=True)]
        placement = self.placements[j]
        if placement is None:
            return room
        return [free + own for free, own in zip(room, self.total(j, placement.shape), strict=True)]

    def within_quota(self, j: int, shape: Shape) -> bool:
        """Whether the tenant of job *j* (which runs nothing at the moment) may use that much more."""
        tenant = self.instance.jobs[j].tenant
        use = self.tenant_use.get(tenant)
        return use is None or bool((use + self.total_demand(j, shape) <= self.tenant_limit[tenant]).all())

    def speed(self, j: int, shape: Shape, span: int, level: int) -> float:
        """v of job *j* in samples/s."""
        k = Configurations(
            self._own_type[j][shape.gpu_type], shape.workers, shape.servers, span, self.scoring.levels[level],
            shape.worker_profile, shape.ps_profile,
        )  # fmt: skip
        return float(self.scoring.model.predict(self.instance.jobs[j], k).mean)

    def plan(self) -> Plan:
        """What runs, as a plan; jobs that are kept carry their own allocation."""
        allocations: dict[str, Allocation] = {}
        for job, placement, kept in zip(self.instance.jobs, self.placements, self.kept_placements, strict=True):
            if placement is not None:
                same = placement is kept and job.current is not None
                allocations[job.name] = job.current if same and job.current else placement.allocation(self.nodes.names)
        return Plan.model_construct(allocations=allocations)

    def placement_of(self, allocation: Allocation) -> Placement:
        """A sound allocation by node positions."""
        position = self.nodes.position
        workers = {position[name]: count for name, count in allocation.tasks[WORKER].items()}
        servers = {position[name]: count for name, count in allocation.tasks.get(PS, {}).items()}
        gpu_type = int(self.nodes.gpu_type[next(iter(workers))])
        shape = Shape(
            gpu_type, allocation.workers, allocation.servers, allocation.profile(WORKER), allocation.profile(PS)
        )
        return Placement(shape, workers, servers)

    # --- changing ---------------------------------------------------------------------------------------------------

    def effect(self, j: int, placement: Placement) -> Effect:
        """What putting job *j*, which runs nothing, at *placement* would do to the objective.

        The same as :meth:`put` and a look at the values, without changing anything.
        """
        added = dict.fromkeys(placement.nodes, 0)
        for role, placed in zip(self.intensities(j), (placement.workers, placement.servers), strict=True):
            for n, count in placed.items():
                added[n] += role * count
        levels = {n: bisect_left(self._capacities[n], self.load_of[n] + more) for n, more in added.items()}
        felt = max(levels.values())
        gain = self._value(j, placement, felt)
        values = {j: gain}
        neighbours = {i for n, level in levels.items() if level != self.level[n] for i in self.jobs_on[n]}
        for i in sorted(neighbours):
            theirs = self.placements[i]
            assert theirs is not None
            level = max(levels[n] if n in levels else self.level[n] for n in theirs.nodes)
            values[i] = self._value(i, theirs, level)
            gain += values[i] - self.values[i]
        return Effect(gain, felt, values)

    def worth(self, effect: Effect, before: Mapping[int, float] = _UNCHANGED) -> bool:
        """Whether the objective gains by *effect* more than rounding could feign.

        The gain counts from the values *before*, where given, and is held against the values that change: those of
        other jobs may be larger by any factor and say nothing about it.
        """
        changes, largest = [], 0.0
        for i in effect.values.keys() | before.keys():
            old = before[i] if i in before else self.values[i]
            new = effect.values[i] if i in effect.values else self.values[i]
            if new != old:
                changes.append(new - old)
                largest = max(largest, old, new)
        return math.fsum(changes) > LEAST_GAIN * largest

    def put(self, j: int, placement: Placement) -> None:
        """Run job *j*, which runs nothing, at *placement*, which fits."""
        self._shift(j, placement, 1)
        self.placements[j] = placement
        for n in placement.nodes:
            self.jobs_on[n].add(j)
        self._revalue({j} | self._settle(placement))

    def take(self, j: int) -> tuple[Placement, dict[int, float]]:
        """Stop job *j*, which runs; returns where it ran, and what it and the jobs that this changes were worth."""
        placement = self.placements[j]
        assert placement is not None
        self._shift(j, placement, -1)
        self.placements[j] = None
        for n in placement.nodes:
            self.jobs_on[n].discard(j)
        before = {j: self.values[j]}
        self.values[j] = 0.0
        felt = self._settle(placement)
        before.update((i, self.values[i]) for i in felt)
        self._revalue(felt)
        return placement, before

    def spend_moves(self) -> None:
        """Take off the budget what is moved so far, for a method that was not counting."""
        if self.moves_left is not None:
            moved = sum(
                kept is not None and self.placements[j] is not kept for j, kept in enumerate(self.kept_placements)
            )
            self.moves_left = max(0, self.moves_left - moved)

    def _shift(self, j: int, placement: Placement, sign: int) -> None:
        self.version += 1
        demands, intensities = self.demands(j, placement.shape), self.intensities(j)
        for role, placed in enumerate((placement.workers, placement.servers)):
            gpu, cpu, memory = demands[role]
            for n, count in placed.items():
                row, tasks = self.free[n], sign * count
                if gpu:
                    self._count_gpus(n, int(row[0]), tasks * gpu)
                    row[0] -= tasks * gpu
                    self.free_gpus[n] = row[0]
                row[1] -= tasks * cpu
                row[2] -= tasks * memory
                if self._open_type[n] >= 0:
                    for r, amount in enumerate(demands[role]):
                        self.open_free[r] -= tasks * amount
                if intensities[role]:
                    self.load_of[n] += tasks * intensities[role]
                    self.load[n] = self.load_of[n]
        use = self.tenant_use.get(self.instance.jobs[j].tenant)
        if use is not None:
            use += sign * self.total_demand(j, placement.shape)

    def _count_gpus(self, n: int, free: int, taken: int) -> None:
        t = self._open_type[n]
        if t >= 0:
            self._gpu_histogram[t, free] -= 1
            self._gpu_histogram[t, free - taken] += 1

    def _settle(self, placement: Placement) -> set[int]:
        """Bring the levels of the nodes up to date; returns the jobs on nodes whose level changed."""
        felt: set[int] = set()
        for n in placement.nodes:
            level = bisect_left(self._capacities[n], self.load_of[n])
            if level != self.level[n]:
                self.level[n] = level
                felt |= self.jobs_on[n]
        return felt

    def _revalue(self, jobs: set[int]) -> None:
        for j in jobs:
            placement = self.placements[j]
            assert placement is not None
            self.values[j] = self._value(j, placement, max(self.level[n] for n in placement.nodes))

    def _value(self, j: int, placement: Placement, level: int) -> float:
        """λ · U of job *j* at *placement*, feeling pressure *level*."""
        key = (j, placement.shape, placement.span, level, placement is self.kept_placements[j])
        value = self._values.get(key)
        if value is None:
            speed = self.speed(j, placement.shape, placement.span, level)
            value = self._values[key] = float(self.scoring.value(j, speed, kept=key[-1]))
        return value
