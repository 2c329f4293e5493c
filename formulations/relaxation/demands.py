"""What choices take of each row, one by one: for linear programs over some thousands of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.relaxation.choices import Choices, Jobs
from coplace.formulations.relaxation.rows import CPU, GPU, INTENSITY, MEMORY, Groups, Row
from coplace.instances.cluster import RESOURCES
from coplace.instances.instance import Instance

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def worker_demand(jobs: Jobs, resource: int) -> Ints:
    """What one worker asks for, by [job, profile] or [job, 1]."""
    return {
        GPU: jobs.worker_gpu[:, None],
        CPU: jobs.worker_cpu,
        MEMORY: jobs.worker_memory,
        INTENSITY: jobs.worker_intensity[:, None],
    }[resource]


def server_demand(jobs: Jobs, resource: int) -> Ints:
    """What one server asks for, memory aside, by [job, profile] or [job, 1]."""
    none = np.zeros((len(jobs.worker_gpu), 1), dtype=np.int64)
    return {GPU: none, CPU: jobs.server_cpu, MEMORY: none, INTENSITY: jobs.server_intensity[:, None]}[resource]


def task_demands(choices: Choices, resource: int, chosen: slice | Ints = slice(None)) -> tuple[Ints, Ints]:
    """What one worker and one server ask for, by [choice]."""
    job = choices.job[chosen]
    worker, server = worker_demand(choices.jobs, resource), server_demand(choices.jobs, resource)
    of_worker = worker[job, np.minimum(choices.worker_profile[chosen], worker.shape[1] - 1)]
    if resource == MEMORY:
        return of_worker, choices.server_memory[chosen]
    return of_worker, server[job, np.minimum(choices.ps_profile[chosen], server.shape[1] - 1)]


def demands(instance: Instance, groups: Groups, rows: list[Row], choices: Choices) -> Floats:
    """What choices take, by [row, choice]."""
    table = np.zeros((len(rows), len(choices)))
    w, p = choices.workers.astype(np.int64), choices.servers.astype(np.int64)
    near = choices.span == 1
    calm = [choices.level <= level for level in range(groups.levels)]
    on = [choices.gpu_type == t for t in range(groups.types)]
    of_rows: dict[int, list[int]] = {}
    for i, group in enumerate(groups.of_row.tolist()):
        of_rows.setdefault(group, []).append(i)
    for group, members in of_rows.items():
        if group < 0:
            continue
        worker, server = task_demands(choices, groups.resource[group])
        size = groups.size[group]
        in_total = (w * worker + p * server) // size
        of_workers = w * (worker // size)
        all_over = np.where(near, in_total, of_workers + p * (server // size))
        of_type = np.where(near, in_total, of_workers)
        for i in members:
            place, level = divmod(int(groups.place[i]), groups.levels)
            table[i] = all_over * calm[level] if place == groups.types else of_type * (calm[level] & on[place])
    tenants = np.array([instance.jobs[j].tenant for j in choices.positions.tolist()])
    for i in of_rows.get(-1, ()):
        if rows[i].kind == "quota":
            worker, server = task_demands(choices, RESOURCES.index(str(rows[i].resource)))
            table[i] = (w * worker + p * server) * (tenants == rows[i].tenant)[choices.job]
        else:
            table[i] = -1.0 * (choices.kept & choices.jobs.counts_as_move[choices.job])
    return table
