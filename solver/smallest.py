"""The smallest shapes of a job: where none of them fits, none of its shapes does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

import numpy as np

from coplace.formulations.mesh import open_mesh
from coplace.formulations.speed import Configurations, StatedSpeeds
from coplace.instances.demand import ps_memory
from coplace.instances.job import Job, PsSpec, RoleSpec
from coplace.instances.speed import TableSpeed
from coplace.solver.counts import FEWEST_COUNTS, count_ranges, thinned
from coplace.solver.placement import Shape
from coplace.solver.state import State


class SmallestShapes:
    """Finds them for the jobs of a :class:`State`; jobs that ask for the same share the answer."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._known: dict[tuple[object, ...], tuple[Shape, ...]] = {}
        self._stated = isinstance(state.scoring.model, StatedSpeeds)

    def of(self, j: int) -> tuple[Shape, ...]:
        """On each GPU type of the cluster, with the fewest workers that have a speed there; often there is one."""
        job = self.state.instance.jobs[j]
        if self.state.scoring.reference[j] <= 0:
            return ()
        if not self._stated or isinstance(job.speed, TableSpeed):
            return tuple(self._where_measured(j, job))
        # A stated form has a speed everywhere.
        key = (job.types, job.worker.min, _profiles(job.worker), job.ps and _server_key(job.ps))
        found = self._known.get(key)
        if found is None:
            of_one_type = _smallest(job, job.worker.min, _combinations(job))
            found = self._known[key] = tuple(
                Shape(t, job.worker.min, *rest) for t in self.state.types_of(j) for rest in of_one_type
            )
        return found

    def _where_measured(self, j: int, job: Job) -> Iterable[Shape]:
        scoring, types = self.state.scoring, self.state.types_of(j)
        least = scoring.reference_workers[j]
        ranges = range(least, job.worker.max + 1), range(job.min_servers, job.max_servers + 1)
        workers, servers = count_ranges(job, *ranges, len(types) * _profile_pairs(job))
        axes = open_mesh(
            list(types.values()), workers, servers, range(len(job.worker.profiles)),
            range(len(job.ps.profiles) if job.ps else 1),
        )  # fmt: skip
        t, w, p, worker_profile, ps_profile = axes
        k = Configurations(t, w, p, 1, scoring.levels[0], worker_profile, ps_profile)
        shape = np.broadcast_shapes(*(axis.shape for axis in axes))
        possible = np.broadcast_to(scoring.model.predict(job, k).mean, shape) > 0
        for i, cluster_type in enumerate(types):
            with_speed = np.flatnonzero(possible[i].any(axis=(1, 2, 3)))
            if with_speed.size:
                first = int(with_speed[0])
                found = ((int(servers[a]), int(b), int(c)) for a, b, c in np.argwhere(possible[i, first]))
                count = int(workers[first])
                yield from (Shape(cluster_type, count, *rest) for rest in _smallest(job, count, found))


_Rest = tuple[int, int, int]
"""Servers, worker profile, ps profile."""


def _smallest(job: Job, workers: int, among: Iterable[_Rest]) -> list[_Rest]:
    """Those of which no other has no more servers, and no task that is larger in any resource."""
    sized = []
    for p, worker_profile, ps_profile in among:
        worker = job.worker.profiles[worker_profile]
        server = (0, 0)
        if job.ps is not None:
            server = (job.ps.profiles[ps_profile].cpu, ps_memory(job, workers, p, ps_profile))
        sized.append(((worker.cpu, worker.memory, p, *server), (p, worker_profile, ps_profile)))
    sized.sort()  # so that whatever is no larger comes first
    front: list[tuple[tuple[int, ...], _Rest]] = []
    for size, rest in sized:
        if not any(all(a <= b for a, b in zip(smaller, size, strict=True)) for smaller, _ in front):
            front.append((size, rest))
    return [rest for _, rest in front]


def _combinations(job: Job) -> Iterator[_Rest]:
    """Server counts, as far as more of them may be smaller, with all profiles."""
    servers = [job.min_servers]
    if job.ps is not None and job.ps.memory_model is not None:
        servers = thinned(range(job.ps.min, job.ps.max + 1), FEWEST_COUNTS).tolist()
    return product(servers, range(len(job.worker.profiles)), range(len(job.ps.profiles) if job.ps else 1))


def _profile_pairs(job: Job) -> int:
    return len(job.worker.profiles) * (len(job.ps.profiles) if job.ps else 1)


def _profiles(role: RoleSpec) -> tuple[tuple[int, int], ...]:
    return tuple((profile.cpu, profile.memory) for profile in role.profiles)


def _server_key(ps: PsSpec) -> tuple[object, ...]:
    """All that the size of a server depends on."""
    model = ps.memory_model
    coefficients = model and (model.model, model.copies, model.base, model.receive_buffer, model.imbalance)
    return ps.min, ps.max, _profiles(ps), coefficients
