"""The shapes that a job could take, with what each would be worth at best and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.memory import ps_memory_grid
from coplace.formulations.speed import Configurations
from coplace.solver.packing import Shortage
from coplace.solver.placement import Shape
from coplace.solver.state import State

Lacking = Shortage | Literal["gain"]
"""Why a shape was not taken: no room, or no gain in the objective."""


@dataclass(frozen=True, slots=True)
class Options:
    """Shapes of one job; arrays by [option].

    Attributes:
        gpu_type, workers, servers, worker_profile, ps_profile: the fields of the :class:`Shape`.
        request: CPU and memory of a worker, then of a server, by [4, option] (milli-cores, MiB).
        value: λ · U of the job if placed on the fewest nodes at the lowest pressure level: an upper estimate.
        cost: dominant share, the largest part that it takes of any resource of the cluster.
    """

    gpu_type: NDArray[np.int64]
    workers: NDArray[np.int64]
    servers: NDArray[np.int64]
    worker_profile: NDArray[np.int64]
    ps_profile: NDArray[np.int64]
    request: NDArray[np.int64]
    value: NDArray[np.float64]
    cost: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.value)

    def shape(self, option: int) -> Shape:
        """The shape of one option."""
        fields = (self.gpu_type, self.workers, self.servers, self.worker_profile, self.ps_profile)
        return Shape(*(int(field[option]) for field in fields))

    def steepest(
        self, among: NDArray[np.bool_], value: float, cost: float, least_gain: float
    ) -> tuple[float, int] | None:
        """The largest gain per unit of cost from a point (*value*, *cost*), and its option; None if none gains."""
        gain = self.value - value
        density = gain / np.maximum(self.cost - cost, 1e-9)
        density[~(among & (gain > least_gain))] = -np.inf
        best = int(density.argmax())
        return (float(density[best]), best) if density[best] > -np.inf else None

    def as_hopeless(self, tried: int, lacking: Lacking) -> NDArray[np.bool_]:
        """Options that will lack what the tried one lacked: those with no fewer tasks, none of them smaller."""
        no_less = (self.gpu_type == self.gpu_type[tried]) & (self.workers >= self.workers[tried])
        no_less &= (self.request[0] >= self.request[0, tried]) & (self.request[1] >= self.request[1, tried])
        if lacking is not Shortage.WORKERS:
            no_less &= self.servers >= self.servers[tried]
            no_less &= (self.request[2] >= self.request[2, tried]) & (self.request[3] >= self.request[3, tried])
        return np.asarray(no_less)


class OptionTables:
    """Builds the options of jobs; grids of counts are shared between jobs with the same ranges."""

    def __init__(self, state: State) -> None:
        self.state = state
        free = state.nodes.free
        of_type = [int(free[state.nodes.gpu_type == t, 0].sum()) for t in range(len(state.instance.gpu_types))]
        # What a share is measured against: GPUs of the type, CPU and memory of the cluster.
        self._gpus = np.maximum(of_type, 1).astype(float)
        self._cpu, self._memory = (float(max(1, free[:, r].sum())) for r in (1, 2))
        self._grids: dict[tuple[int, ...], NDArray[np.int64]] = {}

    def options(self, j: int) -> Options | None:
        """All shapes of job *j* that have a speed; None if there are none."""
        state, scoring = self.state, self.state.scoring
        job, types = state.instance.jobs[j], state.types_of(j)
        if not types or scoring.weights[j] <= 0:
            return None
        worker_counts = range(job.worker.min, job.worker.max + 1)
        server_counts = range(job.min_servers, job.max_servers + 1)
        memory = ps_memory_grid(job, worker_counts, server_counts)
        grid = self._grid(len(types), worker_counts, server_counts, len(job.worker.profiles), memory.shape[0])
        position, w, p, worker_profile, ps_profile = grid
        cluster_type, own_type = np.array(list(types.items())).T
        limits = state.nodes.limits(job)
        most = [int(limits[t].free[0]) // job.worker.gpu if job.worker.gpu else 1_000_000 for t in types]
        span = -(-w // np.maximum(most, 1)[position])
        k = Configurations(own_type[position], w, p, span, scoring.levels[0], worker_profile, ps_profile)
        value = scoring.value(j, scoring.model.predict(job, k).mean, kept=False)
        workers = np.array([(profile.cpu, profile.memory) for profile in job.worker.profiles])[worker_profile]
        ps_cpu = np.array([profile.cpu for profile in job.ps.profiles] if job.ps else [0])[ps_profile]
        ps_memory = memory[ps_profile, w - worker_counts.start, p - server_counts.start]
        gpu_type = cluster_type[position]
        cost = np.maximum(w * job.worker.gpu / self._gpus[gpu_type], (w * workers[:, 0] + p * ps_cpu) / self._cpu)
        cost = np.maximum(cost, (w * workers[:, 1] + p * ps_memory) / self._memory)
        request = np.stack([*workers.T, ps_cpu, ps_memory])
        some = value > 0
        if not some.any():
            return None
        return Options(
            gpu_type[some], w[some], p[some], worker_profile[some], ps_profile[some], request[:, some], value[some],
            cost[some],
        )  # fmt: skip

    def cost(self, j: int) -> float:
        """Dominant share of what job *j* uses now."""
        placement = self.state.placements[j]
        if placement is None:
            return 0.0
        gpu, cpu, memory = self.state.total_demand(j, placement.shape).tolist()
        return float(max(gpu / self._gpus[placement.shape.gpu_type], cpu / self._cpu, memory / self._memory))

    def _grid(
        self, types: int, workers: range, servers: range, worker_profiles: int, ps_profiles: int
    ) -> NDArray[np.int64]:
        """Every combination, by [field, option]: position among the job's types, w, p, worker and ps profile."""
        key = (types, workers.start, workers.stop, servers.start, servers.stop, worker_profiles, ps_profiles)
        grid = self._grids.get(key)
        if grid is None:
            axes = (range(types), workers, servers, range(worker_profiles), range(ps_profiles))
            mesh = np.meshgrid(*(np.array(axis) for axis in axes), indexing="ij")
            grid = self._grids[key] = np.stack([axis.ravel() for axis in mesh])
        return grid
