"""The shapes that a job could take, with what each would be worth at best and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.memory import ps_memory_grid
from coplace.formulations.mesh import open_mesh
from coplace.formulations.speed import Configurations
from coplace.instances.cluster import Vector
from coplace.instances.job import Job, RoleSpec
from coplace.solver.counts import count_ranges
from coplace.solver.packing import Shortage
from coplace.solver.placement import Shape
from coplace.solver.state import LEAST_GAIN, State

Lacking = Shortage | Literal["gain"]
"""Why a shape was not taken: no room, or no gain in the objective."""


@dataclass(frozen=True, slots=True)
class Options:
    """Shapes of one job; arrays by [option].

    Attributes:
        gpu_type, workers, servers, worker_profile, ps_profile: the fields of the :class:`Shape`.
        worker_request, server_cpu: CPU and memory of a worker by [2, worker profile]; CPU of a server by [ps profile].
        server_memory: MiB of a server.
        gpus, cpu, memory: what all tasks together take (milli-cores, MiB).
        value: λ · U of the job if placed on the fewest nodes at the lowest pressure level: an upper estimate.
        cost: dominant share, the largest part that it takes of any resource of the cluster.
    """

    gpu_type: NDArray[np.int32]
    workers: NDArray[np.int32]
    servers: NDArray[np.int32]
    worker_profile: NDArray[np.int8]
    ps_profile: NDArray[np.int8]
    worker_request: NDArray[np.int64]
    server_cpu: NDArray[np.int64]
    server_memory: NDArray[np.int64]
    gpus: NDArray[np.int64]
    cpu: NDArray[np.int64]
    memory: NDArray[np.int64]
    value: NDArray[np.float64]
    cost: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.value)

    def shape(self, option: int) -> Shape:
        """The shape of one option."""
        fields = (self.gpu_type, self.workers, self.servers, self.worker_profile, self.ps_profile)
        return Shape(*(int(field[option]) for field in fields))

    def within(self, gpu_room: NDArray[np.int64], room: Sequence[int]) -> NDArray[np.bool_]:
        """Options for which there is room: workers by [GPU type], and GPUs, CPU and memory of all tasks."""
        return np.asarray(
            (self.workers <= gpu_room[self.gpu_type])
            & (self.gpus <= room[0])
            & (self.cpu <= room[1])
            & (self.memory <= room[2])
        )

    def steepest(self, among: NDArray[np.bool_], value: float, cost: float) -> tuple[float, int] | None:
        """The largest gain per unit of cost from a point (*value*, *cost*), and its option; None if none gains."""
        gain = self.value - value
        density = gain / np.maximum(self.cost - cost, 1e-9)
        density[~(among & (gain > LEAST_GAIN * self.value))] = -np.inf
        best = int(density.argmax())
        return (float(density[best]), best) if density[best] > -np.inf else None

    def as_hopeless(self, tried: int, lacking: Lacking) -> NDArray[np.bool_]:
        """Options not worth a try after *tried*, which lacked something.

        Of a quota, these are the options that take no less of every resource. Otherwise they have no fewer tasks on
        the same GPU type, none of them smaller; where room for workers was lacking, whatever their servers. They then
        lack that room too, as far as packing finds it where it is. A gain that was lacking says less: more tasks can
        be worth more, so that only those go which would not be worth more even on calm nodes.
        """
        if lacking is Shortage.QUOTA:
            totals = (self.gpus, self.cpu, self.memory)
            return np.asarray(np.logical_and.reduce([total >= total[tried] for total in totals]))
        no_less = (self.gpu_type == self.gpu_type[tried]) & (self.workers >= self.workers[tried])
        smallest = self.worker_request[:, self.worker_profile[tried]]
        no_less &= np.asarray((self.worker_request >= smallest[:, None]).all(axis=0))[self.worker_profile]
        if lacking is Shortage.WORKERS:
            return np.asarray(no_less)
        no_less &= (self.servers >= self.servers[tried]) & (self.server_memory >= self.server_memory[tried])
        no_less &= self.server_cpu[self.ps_profile] >= self.server_cpu[self.ps_profile[tried]]
        if lacking == "gain":
            no_less &= self.value <= self.value[tried]
        return np.asarray(no_less)


class OptionTables:
    """Builds the options of jobs; grids of counts are shared between jobs with the same ranges."""

    def __init__(self, state: State) -> None:
        self.state = state
        free = state.nodes.free
        of_type = [int(free[state.nodes.gpu_type == t, 0].sum()) for t in range(len(state.instance.gpu_types))]
        # What a share is measured against: GPUs of the type, CPU and memory of the cluster.
        self._gpus = np.maximum(of_type, 1).astype(float)
        self._gpus_of: list[float] = self._gpus.tolist()
        self._cpu, self._memory = (float(max(1, free[:, r].sum())) for r in (1, 2))
        self._most_tasks: dict[tuple[int, int | None, Vector], int] = {}
        self._grids: dict[tuple[object, ...], tuple[NDArray[Any], ...]] = {}

    def options(self, j: int) -> Options | None:
        """The shapes of job *j* that have a speed and that the empty cluster may hold; None if there are none.

        Of very many, some: see :func:`~coplace.solver.counts.count_ranges`.
        """
        state, scoring = self.state, self.state.scoring
        job, types = state.instance.jobs[j], state.types_of(j)
        if not types or scoring.weights[j] <= 0:
            return None
        most_workers, most_servers = self._most(job, types)
        low = max(job.worker.min, scoring.reference_workers[j])  # below there is no speed
        ranges = range(low, max(most_workers) + 1), range(job.min_servers, most_servers + 1)
        if not all(ranges):
            return None
        profiles = len(job.worker.profiles), len(job.ps.profiles) if job.ps else 1
        w, p = count_ranges(job, *ranges, len(types) * profiles[0] * profiles[1])
        # Axes: type, w, p, worker profile, ps profile.
        i_type, n_w, n_p, worker, server = open_mesh(range(len(types)), w, p, range(profiles[0]), range(profiles[1]))
        own_type = np.array(list(types.values()))[i_type]
        limits = state.nodes.limits(job)
        most = np.array([int(limits[t].free[0]) // job.worker.gpu if job.worker.gpu else 1_000_000 for t in types])
        span = -(-n_w // np.maximum(most, 1)[i_type])
        k = Configurations(own_type, n_w, n_p, span, scoring.levels[0], worker, server)
        shape = (len(types), len(w), len(p), *profiles)
        value = np.broadcast_to(scoring.value(j, scoring.model.predict(job, k).mean, kept=False), shape)
        worker_request = np.array([(profile.cpu, profile.memory) for profile in job.worker.profiles]).T
        server_cpu = np.array([profile.cpu for profile in job.ps.profiles] if job.ps else [0])
        server_memory = ps_memory_grid(job, w, p).transpose(1, 2, 0)[None, :, :, None, :]
        gpus = n_w * job.worker.gpu
        cpu = n_w * worker_request[0][worker] + n_p * server_cpu[server]
        memory = n_w * worker_request[1][worker] + n_p * server_memory
        cluster_types = np.array(list(types))
        cost = np.maximum(gpus / self._gpus[cluster_types][i_type], cpu / self._cpu)
        cost = np.maximum(cost, memory / self._memory)
        some = ((value > 0) & (n_w <= np.array(most_workers)[i_type])).ravel()
        if not some.any():
            return None
        keep = slice(None) if some.all() else some
        position, workers, servers, worker_profile, ps_profile = (axis[keep] for axis in self._grid(shape, w, p))
        server_memory, gpus, cpu, memory, value, cost = (
            np.broadcast_to(field, shape).ravel()[keep] for field in (server_memory, gpus, cpu, memory, value, cost)
        )
        return Options(
            cluster_types.astype(np.int32)[position], workers, servers, worker_profile, ps_profile, worker_request,
            server_cpu, server_memory, gpus, cpu, memory, value, cost,
        )  # fmt: skip

    def hope(self, j: int) -> float:
        """About how much job *j* can gain per unit of cost, from the speeds that its reference knows; at least 0.

        Nothing is built for it, so that the most promising of many jobs come first at once.
        """
        state, scoring = self.state, self.state.scoring
        job, types, reference = state.instance.jobs[j], state.types_of(j), scoring.references[j]
        if not types or scoring.weights[j] <= 0:
            return 0.0
        gpus = job.worker.gpu / max(self._gpus_of[t] for t in types)
        cpu, memory = _least_request(job.worker)
        ps_cpu, ps_memory = _least_request(job.ps)
        value, cost = state.values[j], self.cost(j)
        best = 0.0
        counts = (reference.workers, *reference.growth_workers)
        for w, speed in zip(counts, (reference.speed, *reference.growth_speeds), strict=True):
            by_cpu = (w * cpu + job.min_servers * ps_cpu) / self._cpu
            share = max(w * gpus, by_cpu, (w * memory + job.min_servers * ps_memory) / self._memory)
            if share <= 1:
                best = max(best, (float(scoring.value(j, speed, kept=False)) - value) / max(share - cost, 1e-9))
        return best

    def cost(self, j: int) -> float:
        """Dominant share of what job *j* uses now."""
        placement = self.state.placements[j]
        return 0.0 if placement is None else self.cost_of(j, placement.shape)

    def cost_of(self, j: int, shape: Shape) -> float:
        """Dominant share of a shape of job *j*."""
        gpu, cpu, memory = self.state.total(j, shape)
        return max(gpu / self._gpus_of[shape.gpu_type], cpu / self._cpu, memory / self._memory)

    def _most(self, job: Job, types: Iterable[int]) -> tuple[list[int], int]:
        """Most workers, by type in *types*, and most servers that the open nodes and the quota may hold."""
        quota = self.state.tenant_limit.get(job.tenant)
        worker, server = (job.worker.gpu, *_least_request(job.worker)), (0, *_least_request(job.ps))
        most_workers, most_servers = job.worker.max, job.max_servers
        if quota is not None:
            for a, b, limit in zip(worker, server, quota.tolist(), strict=True):
                most_workers = min(most_workers, limit // a) if a else most_workers
                most_servers = min(most_servers, limit // b) if b else most_servers
        if job.ps is not None:
            most_servers = min(most_servers, self._held(job, None, server))
        return [min(most_workers, self._held(job, t, worker)) for t in types], most_servers

    def _held(self, job: Job, gpu_type: int | None, demand: Vector) -> int:
        """How many tasks of that demand the open nodes hold if the job has them alone."""
        nodes = self.state.nodes
        key = (id(nodes.selected(job)), gpu_type, demand)
        held = self._most_tasks.get(key)
        if held is None:
            held = self._most_tasks[key] = nodes.most_tasks(job, gpu_type, demand)
        return held

    def _grid(
        self, shape: tuple[int, ...], workers: NDArray[np.int64], servers: NDArray[np.int64]
    ) -> tuple[NDArray[Any], ...]:
        """Every combination: position among the job's types, w, p, worker and ps profile, each by [option]."""
        key = (*shape, workers.tobytes(), servers.tobytes())
        grid = self._grids.get(key)
        if grid is None:
            axes = open_mesh(range(shape[0]), workers, servers, range(shape[3]), range(shape[4]))
            types = (np.int32, np.int32, np.int32, np.int8, np.int8)
            grid = self._grids[key] = tuple(
                np.broadcast_to(axis.astype(dtype), shape).ravel() for axis, dtype in zip(axes, types, strict=True)
            )
        return grid


def _least_request(role: RoleSpec | None) -> tuple[int, int]:
    """CPU and memory that a task of the role needs with any profile."""
    if role is None:
        return (0, 0)
    return min(profile.cpu for profile in role.profiles), min(profile.memory for profile in role.profiles)
