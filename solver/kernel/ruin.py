"""Ruin and recreate: take jobs that are near each other away, and insert them and some that wait anew.

Schrimpf et al., Record breaking optimization results using the ruin and recreate principle, 2000; jobs near each other
in place of strings of customers, with the blinks and mixed orders of Christiaens and Vanden Berghe, Slack induction by
string removals for vehicle routing problems, 2020.
"""

from __future__ import annotations

import numpy as np

from coplace.solver.kernel.board import CHANGED, GPU, KEPT, MOST_CHANGED, NONE, Board, Ints, Scratch
from coplace.solver.kernel.compiled import compiled
from coplace.solver.kernel.insertion import insert
from coplace.solver.kernel.moves import put, put_kept, take
from coplace.solver.kernel.worth import used_units, worth_of

BLINK = 0.1
"""Probability that an option is overlooked."""

BY_PRICE = 0.7
"""Share of the attempts in which options are charged no less than the prices say."""

WAITING = 4
"""Jobs that wait and are inserted with the others, at most."""

ORDERS = 4
"""Orders in which jobs are inserted: at random, by worth, by GPUs of a worker, by worth for a GPU."""


@compiled
def wasteful(b: Board, rng: np.random.Generator, nodes: Ints, draws: int) -> int:
    """Of a few random nodes the one whose free capacity is worth most."""
    most, at = -1.0, 0
    for _ in range(draws):
        n = nodes[rng.integers(0, len(nodes))]
        worth = worth_of(b, n, b.ceiling[n], b.free[n, GPU], used_units(b, n))
        if worth > most:
            most, at = worth, n
    return at


@compiled
def in_part(b: Board, j: int, part: int) -> bool:
    """Whether all nodes of job *j* are in that part."""
    e = b.head[j]
    while e >= 0:
        if b.part[b.entry_node[e]] != part:
            return False
        e = b.entry_next[e]
    return True


@compiled
def choose(b: Board, s: Scratch, rng: np.random.Generator, nodes: Ints, wanted: int, draws: int) -> int:
    """Up to *wanted* jobs on a few nodes, each wasteful or shared with a job before; how many, in ``jobs``."""
    chosen = 0
    node = wasteful(b, rng, nodes, draws)
    for _ in range(3 * wanted):
        if chosen >= wanted:
            break
        e = b.node_head[node]
        while e >= 0 and chosen < wanted:
            j = b.entry_job[e]
            if not b.fixed[j] and not s.taken[j] and rng.random() < 0.8 and in_part(b, j, b.part[node]):
                s.taken[j] = True
                s.jobs[chosen] = j
                chosen += 1
            e = b.entry_right[e]
        if chosen > 0 and rng.random() < 0.5:
            e = b.head[s.jobs[rng.integers(0, chosen)]]
            skip = rng.integers(0, 4)
            while skip > 0 and b.entry_next[e] >= 0:
                e = b.entry_next[e]
                skip -= 1
            node = b.entry_node[e]
        else:
            node = wasteful(b, rng, nodes, draws)
    return chosen


@compiled
def lift(b: Board, s: Scratch, count: int) -> tuple[int, float]:
    """Take the first *count* jobs away; nodes that they leave, in ``hosts`` and marked, and what they were worth."""
    left, stored, worth = 0, 0, 0.0
    for i in range(count):
        j = s.jobs[i]
        s.saved[0, i], s.saved[1, i], s.saved[2, i] = b.option[j], b.level[j], stored
        e = b.head[j]
        while e >= 0:
            n = b.entry_node[e]
            s.saved_entries[0, stored] = n
            s.saved_entries[1, stored] = b.entry_workers[e]
            s.saved_entries[2, stored] = b.entry_servers[e]
            stored += 1
            if s.mark[n] == 0:
                s.mark[n] = 1
                s.hosts[left] = n
                left += 1
            e = b.entry_next[e]
        s.saved[3, i] = stored
        worth += b.value[j]
        take(b, j)
    return left, worth


@compiled
def restore(b: Board, s: Scratch, count: int) -> None:
    """Put back the jobs that :func:`lift` took, of which none runs; their order is that of ``saved``."""
    for i in range(count):
        j, o, level = s.jobs[i], s.saved[0, i], s.saved[1, i]
        if o == KEPT:
            put_kept(b, j, level)
            continue
        s.counter[0] = 0
        for e in range(s.saved[2, i], s.saved[3, i]):
            n = s.saved_entries[0, e]
            s.found[s.counter[0]] = n
            s.counter[0] += 1
            s.workers[n], s.servers[n] = s.saved_entries[1, e], s.saved_entries[2, e]
        put(b, s, j, o)


@compiled
def order_of(b: Board, s: Scratch, rng: np.random.Generator, count: int) -> Ints:
    """The first *count* of ``jobs`` in an order of random kind."""
    kind = rng.integers(0, ORDERS)
    for i in range(count):
        j = s.jobs[i]
        s.taken[j] = False
        key = rng.random()
        o = b.option_start[j]
        if b.option_start[j + 1] > o:
            if kind == 1:
                key = b.option_worth[o] * (0.7 + 0.6 * key)
            elif kind == 2:
                key += b.worker[o, GPU]
            elif kind == 3:
                key = b.option_worth[o] * (0.7 + 0.6 * key) / (1.0 + b.option_workers[o] * b.worker[o, GPU])
        s.key[i] = -key
    return np.argsort(s.key[:count])


@compiled
def improve(
    b: Board,
    s: Scratch,
    rng: np.random.Generator,
    menu: Ints,
    nodes: Ints,
    around: int,
    rounds: int,
    most_jobs: int,
    tries: int,
    draws: int,
    temperature: float,
) -> float:
    """Change the plan where that raises the sum of the values, or leaves it as it is.

    Args:
        menu: jobs that may be inserted although they run nothing.
        nodes: of one part, from and to which jobs may be moved.
        around: random nodes to look at, beside those that the jobs leave.
        rounds: number of attempts.
        most_jobs: most jobs that are taken away at once.
        tries: options of a job to look at.
        draws: nodes of which the most wasteful is taken.
        temperature: mean loss that is accepted (simulated annealing).

    Returns:
        What was gained.
    """
    total = 0.0
    for _ in range(rounds):
        lifted = choose(b, s, rng, nodes, 1 + int(rng.integers(0, most_jobs)), draws)
        local, before = lift(b, s, lifted)
        count = lifted
        if len(menu) > 0:
            for _more in range(WAITING):
                j = menu[rng.integers(0, len(menu))]
                if b.option[j] == NONE and not s.taken[j]:
                    s.taken[j] = True
                    s.jobs[count] = j
                    count += 1
        hosts, near = nodes, len(nodes)
        if len(nodes) > 2 * around:
            for _more in range(around):
                n = nodes[rng.integers(0, len(nodes))]
                if s.mark[n] == 0:
                    s.mark[n] = 1
                    s.hosts[local] = n
                    local += 1
            hosts, near = s.hosts, local
        for i in range(local):
            s.mark[s.hosts[i]] = 0
        after, by_price = 0.0, rng.random() < BY_PRICE
        for i in order_of(b, s, rng, count):
            j = s.jobs[i]
            if insert(b, s, rng, j, hosts, near, tries, BLINK, by_price):
                after += b.value[j]
        if after >= before + temperature * np.log(rng.random()) and b.counters[CHANGED] <= b.counters[MOST_CHANGED]:
            total += after - before
            continue
        for i in range(count):
            if b.option[s.jobs[i]] != NONE:
                take(b, s.jobs[i])
        restore(b, s, lifted)
    return total
