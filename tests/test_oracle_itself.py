"""The oracle against itself and against numbers worked out by hand, and what its instances cover."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from coplace.instances import (
    Instance,
    Job,
    Node,
    Profile,
    PsCoefficients,
    PsMemory,
    PsSpec,
    PsSyncSpeed,
    SpeedPoint,
    TableSpeed,
    WorkerSpec,
)
from tests.oracle.enumerate import Search, best_plan, feasible_plans
from tests.oracle.sampling import sample_plans
from tests.oracle.scoring import RULES, Oracle, caps, demand, measured, sizes, weights
from tests.oracle.tiny import best_features, best_of_tiny, count_features, tiny_instance, wide_instance

SEEDS = range(300)

FEATURES = """
    1 ps profiles|1 worker profiles|2 jobs|2 nodes|2 ps profiles|2 worker profiles|3 jobs|3 nodes|CPU workers
    GPU type K80|GPU type V100|GPU workers|cordon|deadline ahead|deadline none|deadline past|displaced by capacity
    displaced by gang|displaced by gpu-type|displaced by pressure|displaced by quota|displaced by selector
    displaced by speed|displaced by tasks-per-node|displaced by the jobs kept before it|equal sizes|goal deadline
    goal fairness|goal jct|goal makespan|goal throughput|gpu_types free|gpu_types given|horizon from experience
    horizon given|interference|job that cannot run|kept|ladder of 0|ladder of 1|ladder of 2|ladder of 3|ladder of 4
    lost all|lost in part|memory model|move budget 0|move budget 1|move budget 2|move budget None|no restart cost
    node without GPUs|own weight|pinned|pinned, displaced|ps intensity|ps slowdown|ps slowdown per type|quota cpu
    quota gpu|quota memory|remaining known|remaining unknown|restart cost|running|running on a cordoned node
    running, equal own weights|selector|speed allreduce of allreduce|speed ps-async of ps|speed ps-sync of ps
    speed table of allreduce|speed table of ps|spread|staleness|table interpolated|table with a hole
    task that asks for nothing|tasks per node|used
    worker intensity|worker slowdown|worker slowdown per type
"""


def words(text: str) -> list[str]:
    return [word.strip() for line in text.strip().splitlines() for word in line.split("|")]


def test_tiny_instances_cover_the_model() -> None:
    found = count_features(tiny_instance(seed) for seed in SEEDS)
    assert sorted(found) == sorted(words(FEATURES))
    assert not {feature: count for feature, count in found.items() if count < 5}


def test_best_plans_do_everything_that_a_plan_can_do() -> None:
    found: Counter[str] = Counter()
    for seed in SEEDS[:120]:
        instance = tiny_instance(seed)
        found.update(best_features(instance, best_of_tiny(seed)[1].allocations))
    expected = "starts a job|leaves a job waiting|stops a job|keeps a job|resizes a job"
    assert not {what for what in words(expected) if found[what] < 3}
    assert found["moves a job or changes its profile"] >= 3


def test_sampled_plans_break_every_rule_alone_and_keep_all_of_them() -> None:
    alone: Counter[str] = Counter()
    feasible = 0
    for seed in SEEDS[:150]:
        oracle = Oracle(tiny_instance(seed))
        for plan in sample_plans(oracle, random.Random(seed), 15):
            verdict = oracle.judge(plan)
            feasible += verdict.feasible
            if len(verdict.broken) == 1:
                alone.update(verdict.broken)
    assert feasible > 300
    assert not {rule for rule in RULES if alone[rule] < 3}


@pytest.mark.parametrize("seed", range(25))
def test_enumerated_plans_are_feasible_and_scored_as_the_rules_say(seed: int) -> None:
    instance = tiny_instance(seed)
    oracle = Oracle(instance)
    best, plan = best_plan(instance)
    verdict = oracle.judge(plan)
    assert verdict.feasible
    assert verdict.objective == pytest.approx(best, rel=1e-12)
    highest = 0.0
    for number, (objective, plan) in enumerate(feasible_plans(instance)):
        highest = max(highest, objective)
        if number < 60:
            verdict = oracle.judge(plan)
            assert verdict.feasible
            assert verdict.objective == pytest.approx(objective, rel=1e-12)
    assert best == pytest.approx(highest, rel=1e-12)


@pytest.mark.parametrize("seed", range(25))
def test_no_sampled_feasible_plan_is_missing(seed: int) -> None:
    instance = tiny_instance(seed)
    oracle = Oracle(instance)
    best = best_of_tiny(seed)[0]
    for plan in sample_plans(oracle, random.Random(seed), 60):
        verdict = oracle.judge(plan)
        if verdict.feasible:
            assert verdict.objective is not None
            assert verdict.objective <= best * (1 + 1e-12)


def test_keep_current_is_feasible() -> None:
    for seed in range(100):
        for instance in (tiny_instance(seed), wide_instance(seed)):
            oracle = Oracle(instance)
            assert oracle.judge(oracle.keep_current()).feasible
            assert oracle.moved(oracle.kept) == set()


# --- worked out by hand ---------------------------------------------------------------------------------------------


def job(name: str = "j", **changes: object) -> Job:
    plain = {
        "name": name,
        "architecture": "ps",
        "worker": WorkerSpec(profiles=(Profile(cpu=1000, memory=1000),), max=4),
        "ps": PsSpec(profiles=(Profile(cpu=500, memory=100),)),
        "speed": PsSyncSpeed(form="ps-sync", batch=100.0, types={"V100": PsCoefficients(a=0.01)}),
        "remaining": 1000.0,
    }
    return Job.model_validate(plain | changes)


def cluster(**changes: object) -> tuple[Node, ...]:
    return (Node.model_validate({"name": "n", "gpu_type": "V100", "gpu": 4, "cpu": 9000, "memory": 9000} | changes),)


def test_a_server_asks_for_its_shard_rounded_up_once() -> None:
    memory = PsMemory(model=1000, copies=2.3, base=10, receive_buffer=7, imbalance=1.1)
    server = job(ps=PsSpec(profiles=(Profile(cpu=500, memory=100),), max=3, memory_model=memory))
    assert demand(server, "ps", 0, 4, 1) == (0, 500, 2530 + 10 + 28)  # 1.1 · 1000 · 2.3 is 2530, no more
    assert demand(server, "ps", 0, 4, 3) == (0, 500, 844 + 10 + 28)  # ⌈843.33⌉


def test_caps_round_the_written_number_down() -> None:
    instance = Instance(nodes=cluster(pressure_capacity=100), pressure_levels=(0.29, 0.57, 0.7))
    assert caps(instance, instance.nodes[0]) == [29, 57, 70]


def test_a_table_is_interpolated_over_workers_then_servers() -> None:
    points = [(1, 1, 10.0), (3, 1, 30.0), (2, 3, 40.0)]
    table = TableSpeed(
        form="table", points=tuple(SpeedPoint(gpu_type="V", workers=w, servers=p, speed=v) for w, p, v in points)
    )
    assert measured(table, "V", 2, 1) == 20.0
    assert measured(table, "V", 2, 2) == 30.0
    assert measured(table, "V", 3, 2) is None
    assert measured(table, "V", 4, 1) is None
    assert measured(table, "W", 1, 1) is None


def test_heuristic_weights_of_equal_jobs_follow_their_order() -> None:
    instance = Instance(nodes=cluster(), jobs=(job("a"), job("b", remaining=9000.0), job("c")), goal="jct")
    # perfect scaling: q is clipped to 0.95, a = 20
    second = 2 * (1 - 0.5**20) ** (1 / 20)
    third = 3 * (1 - (2 / 3) ** 20) ** (1 / 20)
    assert weights(instance) == pytest.approx({"b": 1.0, "a": second, "c": third})


def test_elasticity_of_a_square_root() -> None:
    points = tuple(SpeedPoint(gpu_type="V100", workers=w, servers=1, speed=10 * math.sqrt(w)) for w in range(1, 5))
    instance = Instance(nodes=cluster(), jobs=(job("a", speed=TableSpeed(form="table", points=points)), job("b")))
    # 'a' has slope 1/2 and 'b' slope 1 at the same counts 2 and 4: pooled 3/4, a = 4
    assert weights(instance)["b"] == pytest.approx(2 * (1 - 0.5**4) ** 0.25)


def test_unknown_work_counts_as_service_attained_or_as_typical() -> None:
    unknown = job("a", remaining=None, attained_gpu_seconds=500.0)
    jobs = (unknown, job("b", remaining=30000.0), job("c", remaining=10000.0))
    instance = Instance(nodes=cluster(), jobs=jobs, goal="jct")
    assert sizes(instance) == pytest.approx({"a": 500, "b": 300, "c": 100})
    longest = instance.model_copy(update={"goal": "makespan"})
    assert weights(longest) == pytest.approx({"a": 1, "b": 1.5, "c": 0.5})
    nothing_known = longest.model_copy(update={"jobs": jobs[:1]})
    assert weights(nothing_known) == {"a": 1}


def test_a_search_leaves_no_trace() -> None:
    instance = tiny_instance(3)
    search = Search(Oracle(instance))
    before = [list(free) for free in search.free], list(search.load), search.moves
    list(search.all())
    search.best()
    assert before == (search.free, search.load, search.moves)
