"""Where the tasks of a job at an option go: the nodes whose worth falls least."""

from __future__ import annotations

import numpy as np

from coplace.solver.kernel.board import CPU, GPU, INTENSITY, MEMORY, MOST_TASKS, Board, Ints, Scratch
from coplace.solver.kernel.compiled import compiled
from coplace.solver.kernel.moves import occupy
from coplace.solver.kernel.worth import cost_on

INFINITY = np.inf

TIGHT = 1e-7
"""What each free GPU of a node costs, so that of equal nodes the fullest is taken."""


@compiled
def room_on(b: Board, s: Scratch, n: int, demand: Ints, level: int) -> int:
    """Tasks of that demand that node *n* can take at *level*, beside those of the job that it has been given."""
    room = b.counters[MOST_TASKS] - s.workers[n] - s.servers[n]
    for r in range(3):
        if demand[r] > 0:
            room = min(room, b.free[n, r] // demand[r])
    left = b.capacity[n, level] - b.load[n]
    if demand[INTENSITY] > 0:
        room = min(room, left // demand[INTENSITY])
    elif left < 0:
        room = 0
    return max(room, 0)


@compiled
def place(b: Board, s: Scratch, j: int, o: int, hosts: Ints, count: int) -> float:
    """Find nodes for job *j*, which runs nothing, at option *o*, among the first *count* of *hosts*.

    Returns:
        What it takes from the worth of the nodes; infinity if there is no room. The nodes are the first
        ``counter[0]`` of ``found``, their tasks in ``workers`` and ``servers``.
    """
    s.counter[0] = 0
    w, p = b.option_workers[o], b.option_servers[o]
    worker, server = b.worker[o], b.server[o]
    tenant = b.tenant[j]
    if tenant >= 0:
        for r in range(3):
            if b.quota_used[tenant, r] + w * worker[r] + p * server[r] > b.quota[tenant, r]:
                return INFINITY
    if b.option_span[o] == 1:
        return whole(b, s, j, o, hosts, count)
    cost = spread(b, s, j, o, hosts, count) if b.option_span[o] >= w + p else fewest(b, s, j, o, hosts, count)
    # what was occupied while looking is given back
    for i in range(s.counter[0]):
        n = s.found[i]
        occupy(b, n, worker, -s.workers[n])
        occupy(b, n, server, -s.servers[n])
        s.mark[n] = 0
        if cost == INFINITY:
            s.workers[n] = 0
            s.servers[n] = 0
    if cost == INFINITY:
        s.counter[0] = 0
    return cost


@compiled
def whole(b: Board, s: Scratch, j: int, o: int, hosts: Ints, count: int) -> float:
    """All tasks on one node."""
    w, p, level, gpu_type = b.option_workers[o], b.option_servers[o], b.option_level[o], b.option_type[o]
    worker, server = b.worker[o], b.server[o]
    need = w * worker + p * server
    chosen = b.admitted[b.selector[j]]
    least, at = INFINITY, -1
    for i in range(count):
        n = hosts[i]
        if b.type[n] != gpu_type or not chosen[n]:
            continue
        if b.free[n, GPU] < need[GPU] or b.free[n, CPU] < need[CPU] or b.free[n, MEMORY] < need[MEMORY]:
            continue
        ceiling = b.ceiling[n]
        tolerated = min(ceiling, level)
        if b.load[n] + need[INTENSITY] > b.capacity[n, tolerated] or w + p > b.counters[MOST_TASKS]:
            continue
        cost = cost_on(b, n, ceiling, tolerated, need, 1) + TIGHT * b.free[n, GPU]
        if cost < least:
            least, at = cost, n
    if at < 0:
        return INFINITY
    s.counter[0] = 1
    s.found[0] = at
    s.workers[at] = w
    s.servers[at] = p
    return least


@compiled
def spread(b: Board, s: Scratch, j: int, o: int, hosts: Ints, count: int) -> float:
    """Each task where it takes least, on however many nodes."""
    level = b.option_level[o]
    total = 0.0
    for role in range(2):
        tasks = b.option_workers[o] if role == 0 else b.option_servers[o]
        if tasks == 0:
            continue
        demand = b.worker[o] if role == 0 else b.server[o]
        gpu_type = b.option_type[o] if role == 0 else -1
        chosen = b.admitted[b.selector[j]]
        rooms = 0
        for i in range(count):
            n = hosts[i]
            s.cost[i] = INFINITY
            if b.type[n] < 0 or (gpu_type >= 0 and b.type[n] != gpu_type) or not chosen[n]:
                continue
            if b.free[n, GPU] < demand[GPU]:
                continue
            ceiling = b.ceiling[n]
            tolerated = min(ceiling, level)
            room = room_on(b, s, n, demand, tolerated)
            if room == 0:
                continue
            s.room[i] = room
            rooms += min(room, tasks)
            before = tolerated if s.mark[n] == 1 else ceiling
            s.cost[i] = cost_on(b, n, before, tolerated, demand, 1) + TIGHT * b.free[n, GPU]
            if s.mark[n] == 1:
                s.cost[i] -= TIGHT
        if rooms < tasks:
            return INFINITY
        for _ in range(tasks):
            least, at = INFINITY, -1
            for i in range(count):
                if s.cost[i] < least:
                    least, at = s.cost[i], i
            if at < 0:
                return INFINITY
            n = hosts[at]
            total += least
            if s.mark[n] == 0:
                s.mark[n] = 1
                s.found[s.counter[0]] = n
                s.counter[0] += 1
            if role == 0:
                s.workers[n] += 1
            else:
                s.servers[n] += 1
            occupy(b, n, demand, 1)
            s.room[at] -= 1
            tolerated = min(b.ceiling[n], level)
            if s.room[at] > 0:
                s.cost[at] = cost_on(b, n, tolerated, tolerated, demand, 1) + TIGHT * (b.free[n, GPU] - 1)
            else:
                s.cost[at] = INFINITY
    return total


@compiled
def fewest(b: Board, s: Scratch, j: int, o: int, hosts: Ints, count: int) -> float:
    """No more nodes than the option's span: workers on the roomiest, servers beside them, the others elsewhere."""
    level, span = b.option_level[o], b.option_span[o]
    total = 0.0
    for role in range(2):
        left = b.option_workers[o] if role == 0 else b.option_servers[o]
        demand = b.worker[o] if role == 0 else b.server[o]
        gpu_type = b.option_type[o] if role == 0 else -1
        chosen = b.admitted[b.selector[j]]
        if role == 1:
            for i in range(s.counter[0]):
                n = s.found[i]
                tolerated = min(b.ceiling[n], level)
                here = min(left, room_on(b, s, n, demand, tolerated))
                if here > 0:
                    total += cost_on(b, n, tolerated, tolerated, demand, here)
                    occupy(b, n, demand, here)
                    s.servers[n] += here
                    left -= here
        while left > 0:
            if s.counter[0] == span:
                return INFINITY
            # a node that takes all that is left, at the least cost; else the roomiest
            least, most, at, whole = INFINITY, 0, -1, False
            for i in range(count):
                n = hosts[i]
                if b.type[n] < 0 or (gpu_type >= 0 and b.type[n] != gpu_type) or not chosen[n] or s.mark[n] == 1:
                    continue
                if b.free[n, GPU] < demand[GPU]:
                    continue
                ceiling = b.ceiling[n]
                tolerated = min(ceiling, level)
                room = room_on(b, s, n, demand, tolerated)
                if room >= left:
                    cost = cost_on(b, n, ceiling, tolerated, demand, left) + TIGHT * b.free[n, GPU]
                    if not whole or cost < least:
                        least, at, whole = cost, n, True
                elif not whole and room > 0:
                    cost = cost_on(b, n, ceiling, tolerated, demand, room) / room + TIGHT * b.free[n, GPU]
                    if room > most or (room == most and cost < least):
                        least, most, at = cost, room, n
            if at < 0:
                return INFINITY
            tolerated = min(b.ceiling[at], level)
            here = left if whole else most
            total += cost_on(b, at, b.ceiling[at], tolerated, demand, here)
            occupy(b, at, demand, here)
            s.mark[at] = 1
            s.found[s.counter[0]] = at
            s.counter[0] += 1
            if role == 0:
                s.workers[at] += here
            else:
                s.servers[at] += here
            left -= here
    return total


@compiled
def room_for_kept(b: Board, j: int, level: int) -> bool:
    """Whether what job *j* runs now fits, with its nodes at *level* or lower."""
    worker, server = b.kept_worker[j], b.kept_server[j]
    tenant = b.tenant[j]
    total = np.zeros(3, dtype=np.int64)
    for e in range(b.kept_start[j], b.kept_start[j + 1]):
        n, w, p = b.kept_node[e], b.kept_workers[e], b.kept_servers[e]
        for r in range(3):
            need = w * worker[r] + p * server[r]
            total[r] += need
            if need > b.free[n, r]:
                return False
        more = w * worker[INTENSITY] + p * server[INTENSITY]
        if b.load[n] + more > b.capacity[n, min(b.ceiling[n], level)] or w + p > b.counters[MOST_TASKS]:
            return False
    if tenant >= 0:
        for r in range(3):
            if b.quota_used[tenant, r] + total[r] > b.quota[tenant, r]:
                return False
    return True


@compiled
def cost_of_kept(b: Board, j: int, level: int) -> float:
    """What job *j*, going on as it is, takes from the worth of its nodes."""
    worker, server = b.kept_worker[j], b.kept_server[j]
    total = 0.0
    for e in range(b.kept_start[j], b.kept_start[j + 1]):
        n = b.kept_node[e]
        need = b.kept_workers[e] * worker + b.kept_servers[e] * server
        total += cost_on(b, n, b.ceiling[n], min(b.ceiling[n], level), need, 1)
    return total
