"""Greedy by marginal gain: the job that gains most per unit of its dominant resource grows next.

Optimus (Peng et al., EuroSys 2018, section 4.1) adds one worker or one server at a time. Here a step goes to any
configuration of the job, the one with the steepest rise in value, so that a job is not stuck where the next single
task gains nothing (the usual greedy for multiple-choice knapsacks: Kellerer, Pferschy, Pisinger, Knapsack Problems,
2004, section 11.2). Every step is placed on nodes at once and undone if the objective, losses of the neighbours and
restarts included, does not gain.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.memory import ps_memory_grid
from coplace.formulations.speed import Configurations
from coplace.solver.packing import Packer, Shortage
from coplace.solver.placement import Placement, Shape
from coplace.solver.state import State

GAIN_EPSILON = 1e-12
"""Relative gain below which a step counts as none."""

Stop = Callable[[], bool]


def greedy(state: State, stop: Stop = lambda: False) -> bool:
    """Improve *state*, in place, from what it runs; returns whether it came to its end before *stop*.

    Pinned jobs stay; other running jobs move only where the objective gains and the move budget lasts.
    """
    return _Greedy(state, stop).run()


@dataclass(slots=True)
class _Options:
    """Shapes that one job could still take; arrays by [option].

    ``value`` is the job's own value if placed on the fewest nodes at the lowest level, ``cost`` its dominant share.
    """

    shape: NDArray[np.int32]  # [option, field of Shape]
    value: NDArray[np.float64]
    cost: NDArray[np.float64]


class _Greedy:
    def __init__(self, state: State, stop: Stop) -> None:
        self.state = state
        self.stop = stop
        self.packer = Packer(state)
        self.scoring = state.scoring
        self.options: list[_Options | None] = [None] * len(state.instance.jobs)
        self.heap: list[tuple[float, int, int]] = []  # (−density, job, option)
        free = state.nodes.free
        types = range(len(state.instance.gpu_types))
        of_type = [free[state.nodes.gpu_type == t].sum(axis=0) for t in types]
        everything = np.maximum(free.sum(axis=0), 1)
        # Units of dominant share: GPUs count within their type, CPU and memory within the cluster.
        self.unit = np.array([[max(int(of_type[t][0]), 1), everything[1], everything[2]] for t in types], dtype=float)

    def run(self) -> bool:
        waiting = range(len(self.state.instance.jobs))
        for sweep in range(2):  # the second sweep tries again what did not fit while others were still to move
            for j in waiting:
                if self.stop():
                    return False
                if sweep == 0 or self.state.placements[j] is None:
                    self.options[j] = self._options_of(j)
                    self._push(j)
            while self.heap:
                if self.stop():
                    return False
                _, j, option = heapq.heappop(self.heap)
                self._step(j, option)
        return True

    # --- the next step of a job -------------------------------------------------------------------------------------

    def _options_of(self, j: int) -> _Options | None:
        """All shapes of job *j* with an optimistic value; None if it has none or must stay as it is."""
        state, scoring = self.state, self.scoring
        job = state.instance.jobs[j]
        if scoring.weights[j] <= 0 or (job.pinned and state.placements[j] is not None):
            return None
        types = state.types_of(j)
        if not types:
            return None
        worker_counts = range(job.worker.min, job.worker.max + 1)
        server_counts = range(job.min_servers, job.max_servers + 1)
        memory = ps_memory_grid(job, worker_counts, server_counts)
        cluster_types = np.array(list(types), dtype=np.int32)
        axes = np.ix_(
            cluster_types, np.array(worker_counts), np.array(server_counts), np.arange(len(job.worker.profiles)),
            np.arange(memory.shape[0]),
        )  # fmt: skip
        _, w, p, worker_profile, ps_profile = axes
        own = np.array(list(types.values()))[:, None, None, None, None]
        span = self._fewest_nodes(j, cluster_types, w)
        k = Configurations(own, w, p, span, scoring.levels[0], worker_profile, ps_profile)
        speed = np.broadcast_to(scoring.model.predict(job, k).mean, np.broadcast_shapes(*(axis.shape for axis in axes)))
        value = scoring.value(j, speed, kept=False)
        profiles = job.worker.profiles
        worker_cpu = np.array([profile.cpu for profile in profiles])[:, None]
        worker_memory = np.array([profile.memory for profile in profiles])[:, None]
        ps_cpu = np.array([profile.cpu for profile in job.ps.profiles] if job.ps else [0])
        ps_memory = memory.transpose(1, 2, 0)[None, :, :, None, :]
        unit = self.unit[cluster_types][:, None, None, None, None, :]
        cost = np.maximum(
            np.maximum(w * job.worker.gpu / unit[..., 0], (w * worker_cpu + p * ps_cpu) / unit[..., 1]),
            (w * worker_memory + p * ps_memory) / unit[..., 2],
        )
        fields = (np.broadcast_to(axis, value.shape).ravel() for axis in axes)
        shape = np.stack(list(fields), axis=1).astype(np.int32)
        options = _Options(shape, value.ravel(), np.broadcast_to(cost, value.shape).ravel())
        return _kept(options, options.value > 0)

    def _fewest_nodes(self, j: int, cluster_types: NDArray[np.int32], w: NDArray[np.int64]) -> NDArray[np.int64]:
        """Nodes that w workers need at least, as far as GPUs tell; by [type, w, 1, 1, 1]."""
        job = self.state.instance.jobs[j]
        limits = self.state.nodes.limits(job)
        most = np.array([int(limits[t].free[0]) // job.worker.gpu if job.worker.gpu else 10**6 for t in cluster_types])
        return np.asarray(-(-w // np.maximum(most, 1)[:, None, None, None, None]))

    def _push(self, j: int) -> None:
        """Put the steepest rise of job *j* from where it stands on the heap."""
        options = self.options[j]
        if options is None:
            return
        gpus = self.state.gpu_room(j)
        options = self.options[j] = _kept(options, options.shape[:, 1] <= gpus[options.shape[:, 0]])
        if options is None:
            return
        value, cost = self.state.values[j], self._cost(j)
        gain = options.value - value
        worth = gain > GAIN_EPSILON * max(1.0, value)
        if not worth.any():
            self.options[j] = None
            return
        density = np.where(worth, gain / np.maximum(options.cost - cost, 1e-9), -np.inf)
        best = int(np.argmax(density))
        heapq.heappush(self.heap, (-float(density[best]), j, best))

    def _cost(self, j: int) -> float:
        """Dominant share of what job *j* uses now."""
        placement = self.state.placements[j]
        if placement is None:
            return 0.0
        return float((self.state.total_demand(j, placement.shape) / self.unit[placement.shape.gpu_type]).max())

    # --- taking it --------------------------------------------------------------------------------------------------

    def _step(self, j: int, option: int) -> None:
        options = self.options[j]
        assert options is not None
        shape = Shape(*(int(field) for field in options.shape[option]))
        if not self._may_change(j):
            self.options[j] = None
            return
        shortage = self._try(j, shape)
        if shortage is not None:
            self.options[j] = _kept(options, ~_as_hopeless(options, option, shortage))
        self._push(j)

    def _may_change(self, j: int) -> bool:
        """Whether changing job *j* is no move or the budget allows one more."""
        kept = self.state.kept_placements[j]
        return kept is None or self.state.placements[j] is not kept or self.state.moves_left != 0

    def _try(self, j: int, shape: Shape) -> Shortage | Literal["gain"] | None:
        """Put job *j* at *shape* where the objective gains most; otherwise change nothing and say what is lacking.

        Placements are tried from the highest pressure level downwards, so that the job can be packed tightly or out
        of the way of others.
        """
        state = self.state
        before = state.objective
        old = state.take(j) if state.placements[j] is not None else None
        best: tuple[float, Placement] | None = None
        lacking: Shortage | Literal["gain"] = "gain"
        level = len(self.scoring.levels) - 1
        while level >= 0:
            placement = self.packer.place(j, shape, level)
            if isinstance(placement, Shortage):
                lacking = lacking if best else placement
                break  # nor is there room at any lower level
            if best is not None:
                state.take(j)
            state.put(j, placement)
            gain = state.objective - before
            if best is None or gain > best[0]:
                best = (gain, placement)
            level = max(state.level[n] for n in placement.nodes) - 1
        gains = best is not None and best[0] > GAIN_EPSILON * max(1.0, abs(before))
        final = best[1] if best is not None and gains else old
        if state.placements[j] is not final:
            if state.placements[j] is not None:
                state.take(j)
            if final is not None:
                state.put(j, final)
        if gains and old is not None and old is state.kept_placements[j] and state.moves_left is not None:
            state.moves_left -= 1
        return None if gains else lacking


def _as_hopeless(options: _Options, tried: int, lacking: Shortage | Literal["gain"]) -> NDArray[np.bool_]:
    """Options that lack what the tried one lacked, by [option]: what does not fit will not fit with more tasks."""
    gpu_type, workers, servers, worker_profile, ps_profile = options.shape.T
    shape = options.shape[tried]
    hopeless = (gpu_type == shape[0]) & (worker_profile == shape[3]) & (workers >= shape[1])
    if lacking is not Shortage.WORKERS:
        hopeless &= (ps_profile == shape[4]) & (servers >= shape[2])
    return np.asarray(hopeless)


def _kept(options: _Options, mask: NDArray[np.bool_]) -> _Options | None:
    if not mask.any():
        return None
    return _Options(options.shape[mask], options.value[mask], options.cost[mask])
