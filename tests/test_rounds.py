"""Random rounds with every rule, damage and fault: no solve says anything that is wrong."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from benchmarks import rounds
from benchmarks.round_chains import first_round, next_round
from benchmarks.rounds import play
from coplace.formulations.keep import keep_current
from coplace.formulations.scoring import Scoring
from coplace.instances import Instance, Plan
from coplace.solver import check, solve
from coplace.solver.result import Result
from coplace.solver.search import Search


def test_nothing_goes_wrong_in_random_rounds() -> None:
    seen = play(11, 40, longest=0.3)
    assert seen.rounds == 40
    assert [str(each) for each in seen.wrong] == []


def test_the_same_seed_draws_the_same_first_rounds() -> None:
    first, second = ([first_round(random.Random(seed)) for seed in range(20)] for _ in range(2))
    assert first == second
    assert len({instance.model_dump_json() for instance in first}) == 20


def test_rounds_follow_each_other() -> None:
    """Jobs that the plan runs do run in the next round, and nodes, jobs and rules change."""
    changed = 0
    for seed in range(20):
        draw = random.Random(seed)
        instance = first_round(draw)
        for _ in range(4):
            plan = keep_current(instance, Scoring(instance))
            later = next_round(draw, instance, plan)
            for job in later.jobs:
                if job.name in instance.job:
                    assert job.current == plan.get(job.name)
            changed += later.nodes != instance.nodes or later.rules != instance.rules
            instance = later
    assert changed > 40


def test_one_chain_can_be_played_alone() -> None:
    seen = play(3, 100, only=5, longest=0.06)
    assert 1 <= seen.rounds <= rounds.MOST_ROUNDS
    assert seen.wrong == []


def test_an_exception_is_said_with_what_reproduces_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Search, "relative_gap", lambda search: 1 / 0)
    seen = play(2, 4, longest=0.06)
    assert {each.kind for each in seen.wrong} == {"exception"}
    said = capsys.readouterr().err
    assert "again: python -m benchmarks rounds --seed 2 --only 0" in said
    assert "ZeroDivisionError" in said


def kinds(instance: Instance, result: Result) -> set[str]:
    """What is found to be wrong with a result."""
    seen: list[str] = []
    rounds._examine(random.Random(0), instance, result, None, lambda kind, words: seen.append(kind))
    return set(seen)


def test_a_low_bound_a_wrong_plan_and_a_failure_are_seen() -> None:
    instance = first_round(random.Random(3))
    result = solve(instance, method="greedy")
    assert result.objective > 0
    assert kinds(instance, result) == set()
    assert kinds(instance, replace(result, certified_bound=result.objective * 0.999)) == {"bound"}
    assert kinds(instance, replace(result, objective=result.objective * 1.001)) == {"infeasible"}
    assert kinds(instance, replace(result, reason="backend_failure")) == {"failure"}
    some = next(iter(result.plan.allocations.values()))
    crowded = Plan(allocations={job.name: some for job in instance.jobs})
    assert not check(instance, crowded).feasible
    assert "infeasible" in kinds(instance, replace(result, plan=crowded))
