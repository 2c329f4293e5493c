"""The compiled search makes no plan that breaks a rule, claims no value that it has not, and loses count of nothing."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coplace.formulations import columns as columns_module
from coplace.formulations.keep import displaced, keep_current
from coplace.formulations.scoring import Scoring
from coplace.instances import Instance, Quota, Resources, SiteRules
from coplace.instances.generation import FAMILIES
from coplace.solver import check, solve
from coplace.solver.exact.worker import Worker
from coplace.solver.kernel import search as search_module
from coplace.solver.kernel.board import CHANGED, KEPT, MOST_CHANGED, NONE, scratch
from coplace.solver.kernel.insertion import construct
from coplace.solver.kernel.menu import most_worth
from coplace.solver.kernel.moves import forget, put, put_kept, take
from coplace.solver.kernel.parts import divide, entries_of, unite
from coplace.solver.kernel.placing import place
from coplace.solver.kernel.potential import by_ceiling, fill
from coplace.solver.kernel.ruin import improve
from tests.boards import assert_clean, assert_sound, board_game, can_be_placed, generated, looks, player, rooms_of
from tests.building import instance, node, ps_job, ring_job
from tests.oracle.tiny import best_of_tiny, tiny_instance, wide_instance

FEW_NODES = 4
"""Nodes of a part where the search is to divide small clusters."""


def played(problem: Instance, seed: int = 0, threads: int = 1, rounds: int = 30, heat: bool = True) -> Any:
    """The search after it has started and improved; sound after both."""
    search = player(problem, seed, threads)
    search.start()
    assert_sound(search)
    search.improve(looks(rounds, heat), np.inf)
    assert_sound(search)
    return search


def with_rules(problem: Instance, **rules: Any) -> Instance:
    return problem.model_copy(update={"rules": SiteRules(**problem.rules.model_dump() | rules)})


def damaged(problem: Instance) -> Instance:
    """Some nodes cordoned, lost or half lost."""
    changes: list[dict[str, Any]] = [{"cordoned": True}, {"lost": "all"}, {"lost": Resources(gpu=1)}, {}, {}]
    nodes = tuple(each.model_copy(update=changes[n % 5]) for n, each in enumerate(problem.nodes))
    return problem.model_copy(update={"nodes": nodes})


def pinned(problem: Instance) -> Instance:
    """Every second running job pinned."""
    jobs = tuple(job.model_copy(update={"pinned": job.running and j % 2 == 0}) for j, job in enumerate(problem.jobs))
    return problem.model_copy(update={"jobs": jobs})


# --- sound on instances with every rule -----------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", range(4))
def test_it_is_sound_on_tiny_instances_and_no_better_than_brute_force(chunk: int) -> None:
    for seed in range(chunk * 25, (chunk + 1) * 25):
        problem = tiny_instance(seed)
        search = played(problem, rounds=3)
        best = best_of_tiny(seed)[0]
        assert check(problem, search.game.plan()).objective <= best * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("chunk", range(4))
def test_it_is_sound_on_instances_with_more_tasks(chunk: int) -> None:
    for seed in range(chunk * 25, (chunk + 1) * 25):
        played(wide_instance(seed), rounds=3)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_sound_in_parts_and_with_threads(family: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (FEW_NODES, 1):
        monkeypatch.setattr(search_module, "NODES_PER_PART", size)
        monkeypatch.setattr(search_module, "BATCH", 20)
        for pressure, moves in ((True, True), (False, True), (True, False)):
            played(generated(family, 12, 30, 5, pressure, moves), threads=threads)


@pytest.mark.parametrize("size", [FEW_NODES, 1000])
def test_it_is_sound_where_it_looks_only_around_what_it_takes_away(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "NODES_PER_PART", size)
    monkeypatch.setattr(search_module, "AROUND", 1)
    for family in FAMILIES:
        played(damaged(generated(family, 12, 30, 6)))
    for seed in range(20):
        played(wide_instance(seed), rounds=3)


@pytest.mark.parametrize("chunk", range(2))
def test_it_is_sound_where_jobs_have_lines_in_place_of_columns(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "MOST_CELLS", 0)
    monkeypatch.setattr(columns_module, "MANY_COUNTS", 2)
    lines = 0
    for seed in range(chunk * 30, (chunk + 1) * 30):
        search = played(wide_instance(seed), rounds=3)
        lines += int(np.count_nonzero(search.game.choices.line >= 0))
    assert lines > 100


RULES: list[dict[str, Any]] = [
    {"move_budget": 3},
    {"max_tasks_per_node": 2, "move_budget": 6},
    {"quotas": {"default": Quota(gpu=11, cpu=60_000), "a": Quota(gpu=6, memory=200_000), "b": Quota(gpu=0)}},
]


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("size", [FEW_NODES, 1000])
def test_rules_hold_on_damaged_clusters(rules: dict[str, Any], size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "NODES_PER_PART", size)
    for seed in range(3):
        problem = generated("ps-mix", 16, 40, seed)
        if "quotas" in rules:
            tenants = {job.tenant for job in problem.jobs}
            rules = {"quotas": dict(zip(sorted(tenants), rules["quotas"].values(), strict=False))}
        for change in (with_rules(problem, **rules), damaged(with_rules(problem, **rules))):
            played(pinned(change), threads=2)


def test_jobs_share_a_node_although_each_may_have_few_tasks_there() -> None:
    """The rule counts the tasks of one job; all tasks together were counted, so that nodes stayed half empty."""
    jobs = [ring_job(f"j{i}", worker={"gpu": 1, "cpu": 2, "memory": "8Gi", "max": 1}) for i in range(4)]
    search = played(instance([node()], jobs, rules={"max_tasks_per_node": 1}))
    assert len(search.game.plan()) == 4


def test_jobs_for_types_whose_nodes_are_all_closed_wait() -> None:
    nodes = [node("a"), node("b", gpu_type="v100", cordoned=True)]
    speed = ps_job()["speed"]
    both = speed | {"types": speed["types"] | {"v100": speed["types"]["a100"]}}
    jobs = [ps_job("j"), ps_job("k", speed=both), ps_job("l", speed=both, gpu_types=["v100"])]
    search = played(instance(nodes, jobs))
    assert set(search.game.plan().allocations) == {"j", "k"}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_part_touches_nothing_of_another(family: str) -> None:
    """What two threads wrote at once would be wrong now and then."""
    search = player(generated(family, 12, 40, 4))
    board, room, rng = search.game.board, scratch(search.game.board), np.random.default_rng(0)
    by_node = (board.free, board.load, board.tolerated, board.ceiling, board.node_head)
    by_job = (board.option, board.level, board.value, board.head)
    for count, shift in ((2, 0.0), (3, 0.5), (5, 0.25)):
        parts = divide(board, count, shift)
        for number, part in enumerate(parts):
            elsewhere, others = board.part != number, np.ones(len(board.option), dtype=bool)
            others[part.jobs] = False
            before = [each[elsewhere].copy() for each in by_node] + [each[others].copy() for each in by_job]
            jobs = part.jobs[np.argsort(-np.diff(board.kept_start)[part.jobs])]  # those on many nodes come first
            for tries in (0, 40):  # what runs or nothing, then anything
                construct(part.board, room, rng, jobs, part.nodes, len(part.nodes), tries, False)
            improve(part.board, room, rng, part.jobs, part.nodes, 1, 200, 8, 8, 2, 0.1)
            after = [each[elsewhere] for each in by_node] + [each[others] for each in by_job]
            assert all((now == then).all() for now, then in zip(after, before, strict=True))
            for j in part.jobs.tolist():
                assert all(board.part[board.entry_node[e]] == number for e in entries_of(board, j))
        unite(board, parts)
        assert_sound(search)


# --- the same again, never worse, within the rules at every look ----------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_without_heat_no_look_finds_the_plan_worse(family: str) -> None:
    search = player(generated(family, 12, 30, 3))
    search.start()
    values = [search.objective]
    for _ in range(8):
        search.improve(looks(12), np.inf)
        values.append(search.objective)
    assert all(later >= earlier - 1e-9 * earlier for earlier, later in itertools.pairwise(values))
    assert values[-1] > values[0] * (1 - 1e-12)
    assert_sound(search)


def test_it_stops_at_what_is_enough() -> None:
    search = player(generated("ps-mix", 12, 30, 3))
    search.start()
    before = search.game.plan()
    search.improve(looks(100), search.objective)
    assert search.game.plan() == before


def test_the_same_seed_gives_the_same_plan() -> None:
    for family in FAMILIES:
        problem = generated(family, 12, 30, 2)
        plans = [played(problem, seed).game.plan() for seed in (7, 7)]
        assert plans[0] == plans[1]


def test_other_seeds_give_other_plans() -> None:
    problem = generated("ps-mix", 12, 30, 2)
    plans = [played(problem, seed).game.plan() for seed in range(4)]
    assert any(plan != plans[0] for plan in plans)


@pytest.mark.parametrize("budget", [0, 1, 4])
@pytest.mark.parametrize("size", [FEW_NODES, 1000])
def test_the_move_budget_holds_at_every_look(budget: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "NODES_PER_PART", size)
    monkeypatch.setattr(search_module, "BATCH", 7)
    for seed in range(3):
        problem = with_rules(generated("ps-mix", 16, 40, seed), move_budget=budget)
        search = player(problem, threads=1)
        board = search.game.board
        search.start()
        assert board.counters[CHANGED] <= budget
        running = np.flatnonzero(board.counts)
        left = looks(20, heat=True)

        def look(board: Any = board, running: Any = running, left: Any = left) -> float:
            assert np.count_nonzero(board.option[running] != KEPT) <= budget
            share: float = left()
            return share

        search.improve(look, np.inf)
        plan = assert_sound(search)
        if budget == 0:
            kept = keep_current(problem, Scoring(problem))
            assert all(plan[name] == allocation for name, allocation in kept.allocations.items())


def test_pinned_jobs_stay_exactly() -> None:
    for seed in range(3):
        problem = damaged(pinned(generated("ps-mix", 16, 40, seed)))
        plan = played(problem).game.plan()
        gone = displaced(problem, Scoring(problem))
        for job in problem.jobs:
            if job.pinned and job.name not in gone:
                assert job.current is not None
                assert job.current.same_as(plan.get(job.name))


def test_keeping_all_keeps_what_keep_current_keeps() -> None:
    for seed in range(40):
        problem = wide_instance(seed)
        search = player(problem)
        search.start(stopped=lambda: True, keep_all=True)
        assert_sound(search)
        assert search.game.plan() == keep_current(problem, Scoring(problem))


def test_it_can_be_stopped_before_it_has_begun() -> None:
    for family in FAMILIES:
        search = player(generated(family, 12, 30, 3))
        search.start(stopped=lambda: True)
        search.improve(lambda: 0.0, np.inf)
        assert_sound(search)


# --- placing against brute force ------------------------------------------------------------------------------------


def assert_placed(board: Any, room: Any, j: int, o: int) -> None:
    """What was found is a placement of the option that keeps the rules."""
    found = room.found[: room.counter[0]].tolist()
    assert len(found) == len(set(found)) <= board.option_span[o]
    rooms = dict(rooms_of(board, j, o))
    for n in found:
        assert (int(room.workers[n]), int(room.servers[n])) in rooms[n]
        assert room.workers[n] + room.servers[n] > 0
    assert room.workers.sum() == board.option_workers[o]
    assert room.servers.sum() == board.option_servers[o]


@pytest.mark.parametrize("chunk", range(4))
def test_room_is_found_where_brute_force_finds_some(chunk: int) -> None:
    """On one node and, for workers alone, on however many; with fewer nodes than tasks, what is found is right."""
    found = missed = 0
    for seed in range(chunk * 20, (chunk + 1) * 20):
        playing = board_game(tiny_instance(seed) if seed % 2 else wide_instance(seed))
        board = playing.board
        room, hosts = scratch(board), np.arange(len(board.load))
        rng = np.random.default_rng(seed)
        for j in rng.permutation(len(board.option)).tolist():
            options = np.arange(board.option_start[j], board.option_start[j + 1])
            fitting = []
            for o in options.tolist():
                before = [each.copy() for each in board]
                cost = place(board, room, j, o, hosts, len(hosts))
                assert all((now == then).all() for now, then in zip(board, before, strict=True))
                assert not room.mark.any()
                exists = can_be_placed(board, j, o)
                if cost < np.inf:
                    assert exists
                    assert_placed(board, room, j, o)
                    fitting.append(o)
                    found += 1
                elif exists:
                    missed += 1
                    tasks = board.option_workers[o] + board.option_servers[o]
                    assert board.option_span[o] > 1, f"seed {seed}: job {j} fits on a node at option {o}"
                    assert board.option_servers[o] or board.option_span[o] < tasks, f"seed {seed}: job {j}, option {o}"
                forget(room)
                assert_clean(room)
            if fitting:
                o = int(rng.choice(fitting))
                place(board, room, j, o, hosts, len(hosts))
                put(board, room, j, o)
    assert found > 100
    assert missed < 0.1 * found


def test_taking_away_undoes_putting() -> None:
    for seed in range(40):
        board = board_game(wide_instance(seed)).board
        before = [each.copy() for each in board]
        running = [j for j in range(len(board.option)) if board.kept_start[j] < board.kept_start[j + 1]]
        top = board.capacity.shape[1] - 1
        for j in running:
            put_kept(board, j, top)
        for j in running:
            take(board, j)
        assert (board.option == NONE).all()
        same = ("free", "load", "tolerated", "ceiling", "head", "node_head", "value", "quota_used")
        for name in same:
            assert (getattr(board, name) == before[board._fields.index(name)]).all(), name
        assert board.counters[CHANGED] == before[board._fields.index("counters")][CHANGED]


# --- potentials and menus against plain Python ----------------------------------------------------------------------

ITEMS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 5), st.floats(0, 10)).filter(lambda item: item[0] + item[1] > 0),
    max_size=4,
)


def columns(items: list[tuple[int, int, float]]) -> tuple[Any, Any, Any]:
    return (
        np.array([g for g, _, _ in items], dtype=np.int64),
        np.array([u for _, u, _ in items], dtype=np.int64),
        np.array([value for _, _, value in items], dtype=float),
    )


def knapsack(gpus: int, units: int, items: list[tuple[int, int, float]]) -> float:
    """The best filling, by trying every first item."""
    if gpus < 0 or units < 0:
        return -np.inf
    return max([0.0, *(value + knapsack(gpus - g, units - u, items) for g, u, value in items)])


@given(st.integers(0, 4), st.integers(0, 5), ITEMS)
def test_filling_is_a_knapsack(gpus: int, units: int, items: list[tuple[int, int, float]]) -> None:
    table = fill(gpus, units, *columns(items))
    for g in range(gpus + 1):
        for u in range(units + 1):
            assert table[g, u] == pytest.approx(knapsack(g, u, items))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=3), st.lists(ITEMS, min_size=3, max_size=3))
def test_the_potential_is_the_best_level_up_to_the_ceiling(
    steps: list[int], items: list[list[tuple[int, int, float]]]
) -> None:
    capacity = np.cumsum(steps)
    units = int(capacity[-1])
    filled = np.stack([fill(3, units, *columns(items[level])) for level in range(len(steps))])
    table = by_ceiling(filled, capacity, units)
    for ceiling in range(len(steps)):
        for g in range(4):
            for used in range(units + 1):
                left = [(level, capacity[level] - used) for level in range(ceiling + 1)]
                assert table[ceiling, g, used] == max([0.0, *(filled[lv, g, u] for lv, u in left if u >= 0)])


@given(
    st.lists(st.lists(st.tuples(st.integers(-3, 6), st.booleans()), max_size=12), max_size=5),
    st.integers(1, 6),
)
def test_the_menu_is_the_head_of_a_sorted_list(jobs: list[list[tuple[int, bool]]], per_job: int) -> None:
    """The earlier of equals first."""
    starts = np.cumsum([0, *(len(choices) for choices in jobs)])
    worth = np.array([float(value) for choices in jobs for value, _ in choices])
    skip = np.array([left_out for choices in jobs for _, left_out in choices], dtype=bool)
    chosen, cut = most_worth(starts, worth, skip, per_job)
    for j in range(len(jobs)):
        offered = [k for k in range(starts[j], starts[j + 1]) if not skip[k]]
        assert chosen[cut[j] : cut[j + 1]].tolist() == sorted(offered, key=lambda k: -worth[k])[:per_job]
    assert cut[-1] == len(chosen)


# --- edges ----------------------------------------------------------------------------------------------------------

HUGE = 10**12

EDGES: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]] = {
    "no jobs": ([node()], [], {}),
    "one node, one job": ([node()], [ps_job()], {}),
    "no room": ([node(gpu=1, cpu=1)], [ps_job()], {}),
    "nothing free": ([node(used={"gpu": 4, "cpu": 32, "memory": "128Gi"}), node("m")], [ps_job(), ring_job("k")], {}),
    "all cordoned": ([node(cordoned=True)], [ps_job(), ring_job("k")], {}),
    "all lost": ([node(lost="all")], [ps_job()], {}),
    "all pinned": (
        [node()],
        [ring_job(f"j{i}", pinned=True, current={"tasks": {"worker": {"n": 2}}}) for i in range(2)],
        {"pressure_levels": [0.5, 1.0]},
    ),
    "all pinned on cordoned nodes": (
        [node(cordoned=True)],
        [ring_job(pinned=True, current={"tasks": {"worker": {"n": 2}}}), ring_job("k")],
        {},
    ),
    "without GPUs": (
        [node(gpu=0, gpu_type="none"), node("m", gpu=0, gpu_type="none")],
        [
            ps_job(
                f"j{i}",
                worker={"gpu": 0, "cpu": 4, "memory": "1Gi", "max": 6},
                speed=ps_job()["speed"] | {"types": {"none": ps_job()["speed"]["types"]["a100"]}},
            )
            for i in range(5)
        ],
        {},
    ),
    "tasks that ask for nothing": (
        [node(), node("m")],
        [ring_job(worker={"gpu": 0, "cpu": 0, "memory": 0, "max": 5}), ring_job("k")],
        {"rules": {"max_tasks_per_node": 2}},
    ),
    "quotas of nothing": ([node()], [ps_job(), ring_job("k")], {"rules": {"quotas": {"default": {"gpu": 0}}}}),
    "no moves": (
        [node(), node("m")],
        [ring_job(current={"tasks": {"worker": {"n": 1}}}), ring_job("k")],
        {"rules": {"move_budget": 0}},
    ),
    "many GPUs on a node": ([node(gpu=1000, cpu=9000, memory="90Ti")], [ps_job(), ring_job("k")], {}),
    "one level": ([node()], [ps_job(), ring_job("k")], {"pressure_levels": [0.4]}),
}


@pytest.mark.parametrize("name", EDGES)
def test_it_is_sound_on_the_edge(name: str) -> None:
    nodes, jobs, changes = EDGES[name]
    problem = instance(nodes, jobs, **changes)
    for threads in (1, 2):
        played(problem, threads=threads)
    result = solve(problem, method="prices", time_limit=1)
    assert check(problem, result.plan).feasible
    assert result.bound is None or result.bound >= result.objective


def test_it_is_sound_where_everything_is_huge() -> None:
    problem = generated("ps-mix", 8, 20, 1)
    nodes = tuple(
        each.model_copy(update={"cpu": HUGE, "memory": HUGE, "pressure_capacity": HUGE}) for each in problem.nodes
    )
    jobs = []
    for job in problem.jobs:
        profiles = tuple(p.model_copy(update={"cpu": HUGE // 7, "memory": HUGE // 5}) for p in job.worker.profiles)
        worker = job.worker.model_copy(update={"profiles": profiles, "intensity": HUGE // 11})
        jobs.append(job.model_copy(update={"worker": worker, "current": None}))
    quotas = {job.tenant: Quota(cpu=3 * HUGE) for job in jobs}
    huge = problem.model_copy(update={"nodes": nodes, "jobs": tuple(jobs), "rules": SiteRules(quotas=quotas)})
    assert len(played(huge).game.plan()) > 0


def test_a_board_keeps_nothing_of_another() -> None:
    """Arrays of the instance are copied, so that a second search starts from an empty board."""
    playing = board_game(generated("ps-mix", 12, 30, 2))
    free = playing.scoring.nodes.free.copy()
    search = search_module.KernelSearch(dataclasses.replace(playing), 0)
    search.start()
    assert (playing.scoring.nodes.free == free).all()
    assert playing.board.counters[MOST_CHANGED] > 0


# --- the methods that use it ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """One process for all solves."""
    with Worker() as one:
        yield one


@pytest.mark.parametrize("method", ["prices", "auto"])
@pytest.mark.parametrize("chunk", range(4))
def test_methods_are_between_keep_current_and_the_bound(method: str, chunk: int, worker: Worker) -> None:
    for seed in range(chunk * 10, (chunk + 1) * 10):
        problem = tiny_instance(seed)
        result = solve(problem, method=method, time_limit=0.3, worker=worker)
        report = check(problem, result.plan)
        assert report.feasible
        assert report.objective == result.objective
        kept = check(problem, keep_current(problem, Scoring(problem)))
        assert result.objective >= kept.objective
        best = best_of_tiny(seed)[0]
        for bound in (result.bound, result.certified_bound):
            assert bound is None or bound >= best * (1 - 1e-7) - 1e-12
        assert result.reason != "backend_failure", result.detail
