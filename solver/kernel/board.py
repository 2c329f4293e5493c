"""What the compiled search works on: nodes, jobs, their options and their placements, as arrays only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

GPU, CPU, MEMORY, INTENSITY = range(4)
"""Positions in a demand."""

KEPT = -2
"""Option of a job that goes on exactly as it is."""

NONE = -1
"""Option of a job that runs nothing."""

UNLIMITED = 2**60
"""More of anything than there is."""

FREE_ENTRY, CHANGED, MOST_CHANGED, MOST_TASKS = range(4)
"""Positions in ``Board.counters``."""


class Board(NamedTuple):
    """A plan under way: N nodes, L levels, J jobs, O options, E places for entries.

    An entry says how many tasks of a job are on a node; the entries of a job, and those of a node, form linked lists.
    A node with a job whose option tolerates level ℓ carries no more than its capacity at ℓ: the lowest such level is
    its ceiling. So no change of one job ever lowers the value of another, and the sum of the options' values is never
    more than the objective.

    Attributes:
        free: by [node, GPU | CPU | memory]; GPUs, milli-cores, MiB.
        load: intensity on each node.
        capacity: intensity that each level allows, by [node, level].
        tolerated: entries on a node by the level that their options tolerate, by [node, level].
        ceiling: the lowest such level, L − 1 on an empty node.
        type: GPU type of each node; −1 where no new tasks may come.
        admitted: whether a selector admits a node, by [selector, node].
        option_start: first option of each job, and their number, by [job + 1]; the options of a job fall by worth.
        option_type, option_workers, option_servers, option_span, option_level: the configuration.
        option_value: λ · U.
        option_worth: value less what prices charge for it.
        worker, server: demand of one task, by [option, GPU | CPU | memory | intensity].
        selector: selector of each job.
        tenant: tenant of each job; −1 without a quota.
        kept_start: first node of what each job runs now, by [job + 1].
        kept_node, kept_workers, kept_servers: what runs there.
        kept_worker, kept_server: demand of one of these tasks, by [job, GPU | CPU | memory | intensity].
        kept_value, kept_worth: by [job, level]; −∞ where the job cannot go on.
        fixed: jobs that go on as they are, whatever it costs.
        counts: jobs that count as moved unless they are kept.
        option: what each job runs: an option, KEPT or NONE.
        level: the level that it tolerates.
        value: λ · U of it.
        head: first entry of each job; −1 if it has none.
        entry_node, entry_job, entry_workers, entry_servers: the entries.
        entry_next: next entry of the job, or next free place.
        entry_right, entry_left: neighbours among the entries of the node.
        node_head: first entry of each node.
        counters: first free place; jobs that count as moved and are not kept; most of them; most tasks of a job on a
            node.
        quota, quota_used: by [tenant, GPU | CPU | memory].
        kind: row of ``potential`` of each node.
        potential: what is free on a node is worth, by [kind, ceiling, free GPUs, used scarce resource], the latter in
            the units of ``scarce``.
        base: the scarce resource of a node, used or free, where that is not intensity.
        scarce: which resource, how much of it is a unit, and how many GPUs are.
        part: part of each node; parts are searched apart from each other, and perhaps at the same time.
    """

    free: Ints
    load: Ints
    capacity: Ints
    tolerated: Ints
    ceiling: Ints
    type: Ints
    admitted: Bools
    option_start: Ints
    option_type: Ints
    option_workers: Ints
    option_servers: Ints
    option_span: Ints
    option_level: Ints
    option_value: Floats
    option_worth: Floats
    worker: Ints
    server: Ints
    selector: Ints
    tenant: Ints
    kept_start: Ints
    kept_node: Ints
    kept_workers: Ints
    kept_servers: Ints
    kept_worker: Ints
    kept_server: Ints
    kept_value: Floats
    kept_worth: Floats
    fixed: Bools
    counts: Bools
    option: Ints
    level: Ints
    value: Floats
    head: Ints
    entry_node: Ints
    entry_job: Ints
    entry_workers: Ints
    entry_servers: Ints
    entry_next: Ints
    entry_right: Ints
    entry_left: Ints
    node_head: Ints
    counters: Ints
    quota: Ints
    quota_used: Ints
    kind: Ints
    potential: Floats
    base: Ints
    scarce: Ints
    part: Ints


class Scratch(NamedTuple):
    """Room for the moves of one thread; ``mark`` and the like are left as they were found.

    Attributes:
        cost, room: by position among the nodes that are looked at: what one more task costs, tasks that still fit.
        workers, servers: of the placement in the making, by [node].
        found: its nodes, ``counter[0]`` of them.
        best: nodes, workers and servers of the best placement, ``counter[1]`` nodes, by [3, node].
        mark: 1 for nodes in use, by [node].
        hosts: nodes to look at.
        gpus: free GPUs of these by [type].
        jobs, key, taken: jobs that are inserted, what they are sorted by, and whether a job is among them, by [job].
        saved: option, level, first and last saved entry of the jobs that were taken away, by [4, job].
        saved_entries: node, workers and servers, by [3, entry].
    """

    cost: Floats
    room: Ints
    workers: Ints
    servers: Ints
    found: Ints
    best: Ints
    mark: Ints
    hosts: Ints
    gpus: Ints
    jobs: Ints
    key: Floats
    taken: Bools
    saved: Ints
    saved_entries: Ints
    counter: Ints


def scratch(board: Board) -> Scratch:
    """Room for moves on *board*."""
    nodes, jobs, entries = len(board.load), len(board.option), len(board.entry_node)
    whole = np.int64
    return Scratch(
        cost=np.zeros(nodes),
        room=np.zeros(nodes, whole),
        workers=np.zeros(nodes, whole),
        servers=np.zeros(nodes, whole),
        found=np.zeros(nodes + 1, whole),
        best=np.zeros((3, nodes + 1), whole),
        mark=np.zeros(nodes, whole),
        hosts=np.zeros(nodes, whole),
        gpus=np.zeros(int(max(board.type.max(initial=0), board.option_type.max(initial=0))) + 1, whole),
        jobs=np.zeros(jobs + 1, whole),
        key=np.zeros(jobs + 1),
        taken=np.zeros(jobs, np.bool_),
        saved=np.zeros((4, jobs + 1), whole),
        saved_entries=np.zeros((3, entries + 1), whole),
        counter=np.zeros(2, whole),
    )
