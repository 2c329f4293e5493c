"""Dividing a board: parts with nodes and jobs of their own can be searched at the same time.

A large cluster loses little by it (Narayanan et al., Solving large-scale granular resource allocation problems
efficiently with POP, SOSP 2021), and looking for room takes time that grows with the nodes that are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coplace.solver.kernel.board import CHANGED, FREE_ENTRY, INTENSITY, KEPT, MOST_CHANGED, NONE, Board, Ints


@dataclass(frozen=True)
class Part:
    """Some nodes and jobs.

    Attributes:
        board: the board, with counters and quotas of its own; the other arrays are shared.
        nodes: open nodes of the part, ascending.
        jobs: its jobs, ascending.
    """

    board: Board
    nodes: Ints
    jobs: Ints


def divide(board: Board, count: int, shift: float = 0.0) -> list[Part]:
    """*count* parts with like nodes and jobs; what is left of quotas and of the move budget is shared out.

    *shift* moves the borders by such a share of a part: jobs that run across them can be in a part another time.

    Nodes of a type that follow each other stay together, since jobs tend to run on neighbours. Jobs that run on nodes
    of several parts are in none, and stay where they are until the parts are united.
    """
    board.part[:] = _parts_of_nodes(board, count, shift)
    of_job = _parts_of_jobs(board, count)
    parts = []
    used = [_quota_used(board, np.flatnonzero(of_job == p)) for p in range(count)]
    left = np.maximum(board.quota - board.quota_used, 0)
    moves = board.counters[MOST_CHANGED] - board.counters[CHANGED]
    chains = _cut(board, np.array([_most_entries(board, np.flatnonzero(of_job == p)) for p in range(count)]))
    for p in range(count):
        jobs = np.flatnonzero(of_job == p)
        counters = board.counters.copy()
        counters[FREE_ENTRY] = chains[p]
        counters[CHANGED] = np.count_nonzero(board.counts[jobs] & (board.option[jobs] != KEPT))
        counters[MOST_CHANGED] = counters[CHANGED] + moves // count
        own = board._replace(counters=counters, quota=used[p] + left // count, quota_used=used[p])
        parts.append(Part(own, np.flatnonzero((board.part == p) & (board.type >= 0)), jobs))
    return parts


def unite(board: Board, parts: list[Part]) -> None:
    """Bring the counters of *board* up to date and make it one part again."""
    unused = np.ones(len(board.entry_node), dtype=bool)
    for j in range(len(board.option)):
        unused[entries_of(board, j)] = False
    chain = np.flatnonzero(unused)
    board.entry_next[chain[:-1]] = chain[1:]
    if len(chain):
        board.entry_next[chain[-1]] = -1
    board.counters[FREE_ENTRY] = chain[0] if len(chain) else -1
    board.counters[CHANGED] = np.count_nonzero(board.counts & (board.option != KEPT))
    board.quota_used[:] = _quota_used(board, np.arange(len(board.option)))
    board.part[:] = 0


def _parts_of_nodes(board: Board, count: int, shift: float) -> Ints:
    part = np.zeros(len(board.load), dtype=np.int64)
    for t in np.unique(board.type).tolist():
        alike = np.flatnonzero(board.type == t)
        place = (np.arange(len(alike)) + int(shift * len(alike) / count)) % len(alike)
        part[alike] = place * count // len(alike)
    return part


def _parts_of_jobs(board: Board, count: int) -> Ints:
    """By job; −1 for those that run across parts."""
    part = np.full(len(board.option), -1, dtype=np.int64)
    running = np.flatnonzero(board.option != NONE)
    for j in running.tolist():
        found = {int(board.part[board.entry_node[e]]) for e in entries_of(board, j)}
        if len(found) == 1:
            part[j] = found.pop()
    waiting = np.flatnonzero(board.option == NONE)
    size = np.diff(board.kept_start)
    lone: dict[int, int] = {}
    for j in waiting[size[waiting] > 0].tolist():
        found = set(board.part[board.kept_node[board.kept_start[j] : board.kept_start[j + 1]]].tolist())
        if len(found) == 1:
            lone[j] = found.pop()
    others = np.array([j for j in waiting.tolist() if j not in lone], dtype=np.int64)
    worth, gpus = np.zeros(len(others)), np.zeros(len(others))
    some = np.flatnonzero(np.diff(board.option_start)[others])
    o = board.option_start[others[some]]
    worth[some], gpus[some] = board.option_worth[o], board.worker[o, 0]
    dealt = others[np.lexsort((-worth, gpus))]
    part[dealt] = np.arange(len(dealt)) % count
    for j, p in lone.items():
        part[j] = p
    return part


def _most_entries(board: Board, jobs: Ints) -> int:
    """Entries that *jobs* may need beyond those that they have."""
    most = np.diff(board.kept_start)[jobs].astype(np.int64)
    some = np.flatnonzero(np.diff(board.option_start)[jobs])
    tasks = np.minimum(board.option_workers + board.option_servers, len(board.load))
    starts, ends = board.option_start[jobs[some]], board.option_start[jobs[some] + 1]
    for i, start, end in zip(some.tolist(), starts.tolist(), ends.tolist(), strict=True):
        most[i] = max(most[i], int(tasks[start:end].max()))
    return int(most.sum()) - sum(len(entries_of(board, j)) for j in jobs.tolist())


def entries_of(board: Board, j: int) -> list[int]:
    """The entries of a job."""
    found = []
    e = int(board.head[j])
    while e >= 0:
        found.append(e)
        e = int(board.entry_next[e])
    return found


def _cut(board: Board, lengths: Ints) -> list[int]:
    """Cut the chain of free entries into pieces of those lengths, the last one longer; their first entries."""
    heads = []
    e = int(board.counters[FREE_ENTRY])
    for i, length in enumerate(lengths.tolist()):
        heads.append(e if length else -1)
        if i == len(lengths) - 1:
            break
        last = -1
        for _ in range(length):
            if e < 0:
                break
            last, e = e, int(board.entry_next[e])
        if last >= 0:
            board.entry_next[last] = -1
    return heads


def _quota_used(board: Board, jobs: Ints) -> Ints:
    """What *jobs* use, by [tenant, resource]."""
    used = np.zeros_like(board.quota_used)
    for j in jobs[(board.option[jobs] != NONE) & (board.tenant[jobs] >= 0)].tolist():
        option = int(board.option[j])
        worker = board.kept_worker[j] if option == KEPT else board.worker[option]
        server = board.kept_server[j] if option == KEPT else board.server[option]
        for e in entries_of(board, j):
            used[board.tenant[j]] += board.entry_workers[e] * worker[:INTENSITY]
            used[board.tenant[j]] += board.entry_servers[e] * server[:INTENSITY]
    return used
