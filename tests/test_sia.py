"""The Sia baseline: its program finds the best counts, its plans keep every rule, and it places as Sia does."""

import itertools
import random
from typing import Any

import numpy as np
import pytest

from coplace.formulations.keep import displaced
from coplace.formulations.scoring import Scoring
from coplace.instances import Instance, Plan, Resources
from coplace.instances.generation import FAMILIES, generate
from coplace.instances.rules import Quota
from coplace.solver import METHODS, check
from coplace.solver.baselines import BASELINES
from coplace.solver.baselines.counts_ilp import CountsProgram, choose
from coplace.solver.baselines.sia import sia, sia_options
from coplace.solver.state import State
from tests.building import instance, node, ps_job, ring_job


def program(seed: int) -> CountsProgram:
    """Four jobs of up to three configurations on two GPU types; every other one runs, and one move is allowed."""
    rng = random.Random(seed)
    job = np.array([j for j in range(4) for _ in range(rng.randint(1, 3))])
    first = np.append(True, job[1:] != job[:-1])
    return CountsProgram(
        job=job,
        gpu_type=np.array([rng.randrange(2) for _ in job]),
        gpus=np.array([rng.choice([1, 2, 4]) for _ in job]),
        worth=np.array([rng.uniform(0.1, 3.0) for _ in job]),
        stays=first & (job % 2 == 0),
        must=np.zeros(4, dtype=bool),
        supply=np.array([4, 3]),
        most_moves=rng.choice([None, None, 2, 1]),
    )


def keeps_its_rules(given: CountsProgram, chosen: list[int]) -> bool:
    jobs = [int(given.job[i]) for i in chosen]
    used = [sum(int(given.gpus[i]) for i in chosen if given.gpu_type[i] == t) for t in range(2)]
    moves = int(given.stays.sum()) - sum(bool(given.stays[i]) for i in chosen)
    within = given.most_moves is None or moves <= given.most_moves
    return len(set(jobs)) == len(jobs) and all(u <= s for u, s in zip(used, given.supply, strict=True)) and within


def test_the_program_finds_what_going_through_all_choices_finds() -> None:
    for seed in range(20):
        given = program(seed)
        everything = (list(some) for size in range(5) for some in itertools.combinations(range(len(given.job)), size))
        values = [sum(given.worth[some]) for some in everything if keeps_its_rules(given, some)]
        chosen = choose(given, 10.0).tolist()
        if values:
            assert keeps_its_rules(given, chosen)
            assert sum(given.worth[chosen]) == pytest.approx(max(values), rel=1e-3)


def test_counts_are_parts_of_one_node_or_whole_nodes() -> None:
    jobs = [
        ring_job("one", worker={"gpu": 1, "cpu": 1, "max": 20}),
        ring_job("two", worker={"gpu": 2, "cpu": 1, "min": 3, "max": 12}),
        ring_job("large", worker={"gpu": 9, "cpu": 1, "max": 4}),
    ]
    given = instance([node(f"n{i}", gpu=8, cpu=100) for i in range(4)], jobs)
    counts: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for option in sia_options(State(Scoring(given), Plan())):
        counts[option.job].append(option.shape.workers)
    assert counts == {0: [1, 2, 4, 8, 16], 1: [3, 4, 8, 12], 2: []}


def test_whole_nodes_go_first_and_what_does_not_fit_shrinks() -> None:
    """Others use half of two nodes: the program sees eight free GPUs, and only one node holds a worker of four."""
    used = Resources(gpu=2)
    jobs = [
        ring_job("small", worker={"gpu": 1, "cpu": 1, "max": 2}),
        ring_job("big", worker={"gpu": 4, "cpu": 1, "max": 2}),
    ]
    plain = instance([node("a"), node("b"), node("c")], jobs)
    nodes = tuple(each if each.name == "a" else each.model_copy(update={"used": used}) for each in plain.nodes)
    plan = sia(plain.model_copy(update={"nodes": nodes}))
    assert plan["big"].nodes == ("a",)
    assert plan["big"].workers == 1
    assert plan["small"].nodes in (("b",), ("c",))


def test_a_job_without_room_for_its_servers_gets_fewer() -> None:
    job = ps_job("j", worker={"gpu": 1, "cpu": 1, "min": 4, "max": 4}, ps={"cpu": 8, "max": 8})
    plan = sia(instance([node("a", cpu=32)], [job]))
    assert plan["j"].workers == 4
    assert 1 <= plan["j"].servers <= 3


def test_a_restart_that_does_not_pay_is_not_made() -> None:
    current = {"tasks": {"worker": {"a": 1}}}
    for seconds, stays in ((1e6, True), (0, False)):
        job = ring_job("j", current=current, restart_seconds=seconds, remaining=1e6)
        plan = sia(instance([node("a")], [job]), power=1)
        assert (plan["j"].workers == 1) is stays


# --- every plan keeps the rules -------------------------------------------------------------------------------------


def damaged(given: Instance, seed: int) -> Instance:
    """Some nodes cordoned, some lost, some jobs pinned, quotas, a budget of moves."""
    rng = random.Random(seed)
    changes: list[dict[str, Any]] = [{}, {}, {"cordoned": True}, {"lost": "all"}, {"lost": Resources(gpu=1)}]
    nodes = tuple(each.model_copy(update=rng.choice(changes)) for each in given.nodes)
    jobs = tuple(job.model_copy(update={"pinned": job.running and rng.random() < 0.3}) for job in given.jobs)
    quotas = {job.tenant: Quota(gpu=30) for job in given.jobs}
    rules = given.rules.model_copy(update={"quotas": quotas, "move_budget": 2})
    return given.model_copy(update={"nodes": nodes, "jobs": jobs, "rules": rules})


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("own_objective", [False, True])
def test_plans_are_feasible(family: str, own_objective: bool) -> None:
    for seed in (1, 2):
        given = generate(family, nodes=16, jobs=40, seed=seed)
        for each in (given, damaged(given, seed)):
            plan = sia(each, own_objective=own_objective)
            report = check(each, plan)
            assert report.feasible, report.violations
            assert len(plan)
            kept = [job for job in each.jobs if job.pinned and job.running and job.name not in displaced(each)]
            assert all(job.current is not None and job.current.same_as(plan.get(job.name)) for job in kept)


def test_it_gives_the_same_plan_again() -> None:
    given = generate("ps-mix", nodes=16, jobs=40, seed=3)
    assert sia(given) == sia(given)


def test_it_is_a_baseline_and_no_method() -> None:
    assert BASELINES["sia"] is sia
    assert "sia" not in METHODS


def test_an_instance_without_jobs_gets_an_empty_plan() -> None:
    assert not len(sia(instance([node("a")], [])))
