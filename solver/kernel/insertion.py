"""Inserting jobs one after the other, each at the option that is worth most."""

from __future__ import annotations

import numpy as np

from coplace.solver.kernel.board import GPU, KEPT, NONE, Board, Ints, Scratch
from coplace.solver.kernel.compiled import compiled
from coplace.solver.kernel.moves import forget, put, put_kept
from coplace.solver.kernel.placing import INFINITY, cost_of_kept, place, room_for_kept


@compiled
def kept_in_part(b: Board, j: int, part: int) -> bool:
    """Whether job *j* runs, and may go on, on nodes of that part alone."""
    for e in range(b.kept_start[j], b.kept_start[j + 1]):
        if b.part[b.kept_node[e]] != part:
            return False
    return b.kept_start[j + 1] > b.kept_start[j]


@compiled
def insert(
    b: Board,
    s: Scratch,
    rng: np.random.Generator,
    j: int,
    hosts: Ints,
    count: int,
    tries: int,
    blink: float,
    by_price: bool,
) -> bool:
    """Run job *j*, which runs nothing, where that is worth most; whether it does.

    Args:
        hosts, count: nodes to look at, all of the same part.
        tries: options to look at.
        blink: probability that an option is overlooked.
        by_price: charge the prices of the option, if the nodes charge less.
    """
    most, option, level = 1e-12, NONE, 0
    for t in range(len(s.gpus)):
        s.gpus[t] = 0
    for i in range(count):
        n = hosts[i]
        if b.type[n] >= 0:
            s.gpus[b.type[n]] += b.free[n, GPU]
    if count > 0 and kept_in_part(b, j, b.part[hosts[0]]):
        for at in range(b.kept_value.shape[1]):
            value = b.kept_value[j, at]
            if value > most and room_for_kept(b, j, at):
                worth = value - cost_of_kept(b, j, at)
                if by_price:
                    worth = min(worth, b.kept_worth[j, at])
                if worth > most or b.fixed[j]:
                    most, option, level = worth, KEPT, at
    looked = 0
    if not b.fixed[j]:
        for o in range(b.option_start[j], b.option_start[j + 1]):
            if by_price and b.option_worth[o] <= most:
                break
            if b.option_value[o] <= most or b.option_workers[o] * b.worker[o, GPU] > s.gpus[b.option_type[o]]:
                continue
            if blink > 0 and rng.random() < blink:
                continue
            looked += 1
            if looked > tries:
                break
            cost = place(b, s, j, o, hosts, count)
            if cost == INFINITY:
                continue
            worth = b.option_value[o] - cost
            if by_price:
                worth = min(worth, b.option_worth[o])
            if worth > most:
                most, option = worth, o
                s.counter[1] = s.counter[0]
                for i in range(s.counter[0]):
                    n = s.found[i]
                    s.best[0, i], s.best[1, i], s.best[2, i] = n, s.workers[n], s.servers[n]
            forget(s)
    if option == NONE:
        return False
    if option == KEPT:
        put_kept(b, j, level)
        return True
    s.counter[0] = s.counter[1]
    for i in range(s.counter[1]):
        n = s.best[0, i]
        s.found[i], s.workers[n], s.servers[n] = n, s.best[1, i], s.best[2, i]
    put(b, s, j, option)
    return True


@compiled
def construct(
    b: Board, s: Scratch, rng: np.random.Generator, jobs: Ints, hosts: Ints, count: int, tries: int, by_price: bool
) -> int:
    """Insert *jobs* in that order; how many of them run."""
    running = 0
    for i in range(len(jobs)):
        j = jobs[i]
        if b.option[j] == NONE and insert(b, s, rng, j, hosts, count, tries, 0.0, by_price):
            running += 1
    return running
