"""Boards of the compiled search for tests, and a recount of everything on them in plain Python."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from functools import cache

import numpy as np

from coplace.formulations.relaxation import Relaxation, all_choices
from coplace.formulations.scoring import Scoring
from coplace.instances import Instance, Plan
from coplace.instances.demand import task_demand
from coplace.instances.generation import generate
from coplace.instances.plan import ROLES
from coplace.solver import check
from coplace.solver.kernel.board import (
    CHANGED,
    FREE_ENTRY,
    INTENSITY,
    KEPT,
    MOST_CHANGED,
    NONE,
    UNLIMITED,
    Board,
    Scratch,
)
from coplace.solver.kernel.build import Game, game
from coplace.solver.kernel.parts import entries_of
from coplace.solver.kernel.search import KernelSearch

TIGHTEN = 0.85


def board_game(instance: Instance) -> Game:
    """The board of *instance* at the prices that make plans."""
    scoring = Scoring(instance)
    relaxation = Relaxation(all_choices(instance, scoring))
    prices = relaxation.best_prices(tighten=TIGHTEN)
    return game(scoring, relaxation, prices, relaxation.bound(prices))


def player(instance: Instance, seed: int = 0, threads: int = 1) -> KernelSearch:
    return KernelSearch(board_game(instance), seed, threads=threads)


def looks(number: int, heat: bool = False) -> Callable[[], float]:
    """The share of the time that is left, over after so many looks; without heat only better plans are taken."""
    count = itertools.count(1)

    def left() -> float:
        share = 1 - next(count) / number
        return share if heat else min(share, 0.5)

    return left


@cache
def generated(family: str, nodes: int, jobs: int, seed: int, pressure: bool = True, moves: bool = True) -> Instance:
    return generate(family, nodes=nodes, jobs=jobs, seed=seed, pressure=pressure, moves=moves)


def assert_sound(search: KernelSearch) -> Plan:
    """The plan keeps every rule, is worth no less than the board claims, and is what the arrays say."""
    playing = search.game
    instance, scoring, board = playing.scoring.instance, playing.scoring, playing.board
    plan = playing.plan()
    report = check(instance, plan, scoring)
    assert report.violations == (), instance.name
    claimed = float(board.value.sum())
    assert search.objective == claimed
    assert report.objective >= claimed - 1e-9 * max(1.0, abs(claimed)), instance.name
    for job, worth in zip(instance.jobs, board.value.tolist(), strict=True):
        outcome = report.evaluation.jobs.get(job.name)
        assert (outcome.value if outcome else 0.0) >= worth - 1e-9 * max(1.0, abs(worth)), job.name
    assert set(report.moved) <= set(changed(playing))
    assert len(changed(playing)) == board.counters[CHANGED]
    assert_counted(playing, plan)
    assert_linked(board)
    for room in search._scratches:
        assert_clean(room)
    return plan


def changed(playing: Game) -> list[str]:
    """Running, not displaced jobs that do not go on as they are."""
    jobs, board = playing.scoring.instance.jobs, playing.board
    return [jobs[j].name for j in np.flatnonzero(board.counts & (board.option != KEPT))]


def assert_counted(playing: Game, plan: Plan) -> None:
    """Free amounts, loads, quotas, levels, ceilings and moves follow from the plan."""
    instance, nodes, board = playing.scoring.instance, playing.scoring.nodes, playing.board
    free, load = nodes.free.copy(), np.zeros(len(nodes.names), dtype=np.int64)
    used = {tenant: np.zeros(3, dtype=np.int64) for tenant in instance.rules.quotas}
    for name, allocation in plan.allocations.items():
        job = instance.job[name]
        for role in ROLES:
            spec = job.role(role)
            for node, count in allocation.tasks.get(role, {}).items():
                assert spec is not None
                demand = np.array(task_demand(job, role, allocation)) * count
                free[nodes.position[node]] -= demand
                load[nodes.position[node]] += spec.intensity * count
                if job.tenant in used:
                    used[job.tenant] += demand
    assert (board.free == free).all()
    assert (board.free >= 0).all()
    assert (board.load == load).all()
    assert (board.load <= board.capacity[np.arange(len(load)), board.ceiling]).all()
    for t, tenant in enumerate(instance.rules.quotas):
        assert (board.quota_used[t] == used[tenant]).all()
        assert (board.quota_used[t] <= board.quota[t]).all()
    tolerated = np.zeros_like(board.tolerated)
    for j, option in enumerate(board.option.tolist()):
        level, value = int(board.level[j]), float(board.value[j])
        if option == NONE:
            assert (level, value, board.head[j]) == (0, 0.0, -1)
            assert not board.fixed[j]
            continue
        worth = board.kept_value[j, level] if option == KEPT else board.option_value[option]
        assert value == worth
        assert option == KEPT or (level == board.option_level[option] and not board.fixed[j])
        for e in entries_of(board, j):
            tolerated[board.entry_node[e], level] += 1
    assert (board.tolerated == tolerated).all()
    empty = ~tolerated.any(axis=1)
    assert (board.ceiling == np.where(empty, tolerated.shape[1] - 1, (tolerated > 0).argmax(axis=1))).all()
    assert board.counters[CHANGED] <= board.counters[MOST_CHANGED]
    budget = instance.rules.move_budget
    assert board.counters[MOST_CHANGED] == (UNLIMITED if budget is None else budget)


def assert_linked(board: Board) -> None:
    """Every entry is in the list of its job and in that of its node, or free; none twice, none lost."""
    of_jobs: Counter[int] = Counter()
    for j in range(len(board.option)):
        entries = entries_of(board, j)
        assert all(board.entry_job[e] == j for e in entries)
        on = [int(board.entry_node[e]) for e in entries]
        assert len(on) == len(set(on))
        of_jobs.update(entries)
    of_nodes: Counter[int] = Counter()
    for n in range(len(board.load)):
        left, e = -1, int(board.node_head[n])
        while e >= 0:
            assert of_nodes[e] == 0
            assert (board.entry_node[e], board.entry_left[e]) == (n, left)
            of_nodes[e] += 1
            left, e = e, int(board.entry_right[e])
    assert of_jobs == of_nodes
    assert not of_jobs or max(of_jobs.values()) == 1
    unused, e = set(), int(board.counters[FREE_ENTRY])
    while e >= 0:
        assert e not in unused
        unused.add(e)
        e = int(board.entry_next[e])
    assert not unused & set(of_jobs)
    assert len(unused) + len(of_jobs) == len(board.entry_node)


def assert_clean(room: Scratch) -> None:
    for each in (room.workers, room.servers, room.mark, room.taken):
        assert not each.any()


def rooms_of(board: Board, j: int, o: int) -> list[tuple[int, set[tuple[int, int]]]]:
    """By node that may take new tasks: how many workers and servers of job *j* at option *o* it can take together."""
    w, p, level = int(board.option_workers[o]), int(board.option_servers[o]), int(board.option_level[o])
    worker, server = board.worker[o], board.server[o]
    found = []
    for n in np.flatnonzero((board.type >= 0) & board.admitted[board.selector[j]]).tolist():
        most = int(board.capacity[n, min(int(board.ceiling[n]), level)] - board.load[n])
        here = {
            (a, c)
            for a in range(w + 1 if board.type[n] == board.option_type[o] else 1)
            for c in range(p + 1)
            if a + c <= board.counters[3]
            and (a * worker[:INTENSITY] + c * server[:INTENSITY] <= board.free[n]).all()
            and a * worker[INTENSITY] + c * server[INTENSITY] <= most
        }
        found.append((n, here | {(0, 0)} if most >= 0 else {(0, 0)}))
    return found


def within_quota(board: Board, j: int, o: int) -> bool:
    t = int(board.tenant[j])
    takes = board.option_workers[o] * board.worker[o] + board.option_servers[o] * board.server[o]
    return t < 0 or bool((board.quota_used[t] + takes[:INTENSITY] <= board.quota[t]).all())


def can_be_placed(board: Board, j: int, o: int) -> bool:
    """Whether any placement keeps the rules, by going through the counts on one node after the other."""
    if not within_quota(board, j, o):
        return False
    w, p, span = int(board.option_workers[o]), int(board.option_servers[o]), int(board.option_span[o])
    reached = {(0, 0, 0)}
    for _, here in rooms_of(board, j, o):
        reached = {
            (a + x, c + y, m + (x + y > 0))
            for a, c, m in reached
            for x, y in here
            if a + x <= w and c + y <= p and m + (x + y > 0) <= span
        }
    return any((a, c) == (w, p) for a, c, _ in reached)
