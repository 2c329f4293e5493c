"""The moves: run a job where it was placed, let it go on as it is, take it away."""

from __future__ import annotations

from coplace.solver.kernel.board import (
    CHANGED,
    CPU,
    FREE_ENTRY,
    GPU,
    INTENSITY,
    KEPT,
    MEMORY,
    NONE,
    Board,
    Ints,
    Scratch,
)
from coplace.solver.kernel.compiled import compiled


@compiled
def occupy(b: Board, n: int, demand: Ints, count: int) -> None:
    """Occupy node *n* with *count* tasks; negative gives back."""
    b.free[n, GPU] -= count * demand[GPU]
    b.free[n, CPU] -= count * demand[CPU]
    b.free[n, MEMORY] -= count * demand[MEMORY]
    b.load[n] += count * demand[INTENSITY]


@compiled
def enter(b: Board, j: int, n: int, w: int, p: int, worker: Ints, server: Ints, level: int) -> None:
    """Note *w* workers and *p* servers of job *j* on node *n*."""
    e = b.counters[FREE_ENTRY]
    b.counters[FREE_ENTRY] = b.entry_next[e]
    b.entry_node[e], b.entry_job[e], b.entry_workers[e], b.entry_servers[e] = n, j, w, p
    b.entry_next[e] = b.head[j]
    b.head[j] = e
    first = b.node_head[n]
    b.entry_right[e], b.entry_left[e] = first, -1
    if first >= 0:
        b.entry_left[first] = e
    b.node_head[n] = e
    occupy(b, n, worker, w)
    occupy(b, n, server, p)
    b.tolerated[n, level] += 1
    b.ceiling[n] = min(b.ceiling[n], level)
    tenant = b.tenant[j]
    if tenant >= 0:
        for r in range(3):
            b.quota_used[tenant, r] += w * worker[r] + p * server[r]


@compiled
def put(b: Board, s: Scratch, j: int, o: int) -> None:
    """Run job *j* at option *o* on the nodes that :func:`place` found; clears them."""
    level = b.option_level[o]
    for i in range(s.counter[0]):
        n = s.found[i]
        enter(b, j, n, s.workers[n], s.servers[n], b.worker[o], b.server[o], level)
    forget(s)
    b.option[j], b.level[j], b.value[j] = o, level, b.option_value[o]


@compiled
def forget(s: Scratch) -> None:
    """Clear the placement in the making."""
    for i in range(s.counter[0]):
        s.workers[s.found[i]] = 0
        s.servers[s.found[i]] = 0
    s.counter[0] = 0


@compiled
def put_kept(b: Board, j: int, level: int) -> None:
    """Let job *j* go on as it is."""
    for e in range(b.kept_start[j], b.kept_start[j + 1]):
        n, w, p = b.kept_node[e], b.kept_workers[e], b.kept_servers[e]
        enter(b, j, n, w, p, b.kept_worker[j], b.kept_server[j], level)
    b.option[j], b.level[j], b.value[j] = KEPT, level, b.kept_value[j, level]
    if b.counts[j]:
        b.counters[CHANGED] -= 1


@compiled
def take(b: Board, j: int) -> None:
    """Stop job *j*, which runs."""
    o, level = b.option[j], b.level[j]
    worker = b.kept_worker[j] if o == KEPT else b.worker[o]
    server = b.kept_server[j] if o == KEPT else b.server[o]
    tenant = b.tenant[j]
    e = b.head[j]
    while e >= 0:
        n, w, p = b.entry_node[e], b.entry_workers[e], b.entry_servers[e]
        occupy(b, n, worker, -w)
        occupy(b, n, server, -p)
        b.tolerated[n, level] -= 1
        top = b.tolerated.shape[1] - 1
        ceiling = 0
        while ceiling < top and b.tolerated[n, ceiling] == 0:
            ceiling += 1
        b.ceiling[n] = ceiling
        if tenant >= 0:
            for r in range(3):
                b.quota_used[tenant, r] -= w * worker[r] + p * server[r]
        left, right = b.entry_left[e], b.entry_right[e]
        if left >= 0:
            b.entry_right[left] = right
        else:
            b.node_head[n] = right
        if right >= 0:
            b.entry_left[right] = left
        following = b.entry_next[e]
        b.entry_next[e] = b.counters[FREE_ENTRY]
        b.counters[FREE_ENTRY] = e
        e = following
    if o == KEPT and b.counts[j]:
        b.counters[CHANGED] += 1
    b.head[j] = -1
    b.option[j], b.level[j], b.value[j] = NONE, 0, 0.0
