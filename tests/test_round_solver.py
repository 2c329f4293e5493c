"""Rounds after rounds: what is remembered makes them quick and changes nothing of what is right."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import coplace
from coplace.formulations.memo import Memo
from coplace.formulations.reference import references
from coplace.formulations.relaxation import Choices, all_choices
from coplace.formulations.scoring import Scoring
from coplace.formulations.speed import StatedSpeeds
from coplace.instances import Instance, Plan
from coplace.instances.generation import generate
from coplace.solver import Result, RoundSolver, check, solve


def changed(instance: Instance, **update: Any) -> Instance:
    """The same instance with other fields."""
    return Instance(**{name: getattr(instance, name) for name in Instance.model_fields} | update)


def enacted(instance: Instance, plan: Plan, gone: int = 0) -> Instance:
    """The next round: what was planned runs, and the first *gone* running jobs have finished."""
    names = [job.name for job in instance.jobs if job.name in plan][:gone]
    jobs = [job.model_copy(update={"current": plan.get(job.name)}) for job in instance.jobs if job.name not in names]
    return changed(instance, jobs=tuple(jobs))


def arrays(choices: Choices) -> dict[str, np.ndarray]:
    """The arrays of *choices* by name."""
    found = {field.name: getattr(choices, field.name) for field in fields(choices)}
    return {name: array for name, array in found.items() if isinstance(array, np.ndarray)}


def assert_same(first: Choices, second: Choices) -> None:
    """Nothing distinguishes them."""
    one, other = arrays(first), arrays(second)
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def assert_sound(instance: Instance, result: Result) -> None:
    """A feasible plan, no worse than keeping what runs, below the bounds."""
    report = check(instance, result.plan)
    assert report.feasible
    assert report.objective == pytest.approx(result.objective)
    assert result.objective >= solve(instance, method="keep-current").objective * (1 - 1e-9)
    assert result.bound is None or result.bound >= result.objective * (1 - 1e-7)
    assert result.certified_bound is None or result.certified_bound >= result.objective * (1 - 1e-7)


def variants(instance: Instance) -> dict[str, Instance]:
    """What may be otherwise in the next round, a thing at a time."""
    first = instance.jobs[0]
    node = instance.nodes[0]
    slower = first.worker.model_copy(update={"max": max(first.worker.min, first.worker.max - 1)})
    return {
        "nothing": instance,
        "another order": changed(instance, jobs=instance.jobs[::-1]),
        "a job less": changed(instance, jobs=instance.jobs[1:]),
        "weight": changed(instance, jobs=(first.model_copy(update={"weight": 3.0}), *instance.jobs[1:])),
        "less to do": changed(
            instance,
            jobs=tuple(job.model_copy(update={"remaining": (job.remaining or 1e6) / 2}) for job in instance.jobs),
        ),
        "fewer workers": changed(instance, jobs=(first.model_copy(update={"worker": slower}), *instance.jobs[1:])),
        "goal": changed(instance, goal="fairness"),
        "no pressure": changed(instance, pressure_levels=()),
        "a node less": changed(
            instance,
            nodes=instance.nodes[1:],
            jobs=tuple(
                job.model_copy(update={"current": None})
                if job.current is not None and node.name in job.current.nodes
                else job
                for job in instance.jobs
            ),
        ),
    }


@pytest.mark.parametrize("family", ["ps-mix", "cpu-bound", "big-gangs"])
def test_what_is_remembered_is_what_would_be_computed(family: str) -> None:
    instance = generate(family, nodes=6, jobs=12, seed=4)
    for name, following in variants(instance).items():
        memo = Memo()
        all_choices(instance, Scoring(instance, memo=memo))
        again, fresh = Scoring(following, memo=memo), Scoring(following)
        assert again.references == fresh.references, name
        assert_same(all_choices(following, again), all_choices(following, fresh))


def test_a_job_of_the_same_name_that_is_another_is_computed_anew() -> None:
    instance = generate("ps-mix", nodes=6, jobs=12, seed=4)
    memo = Memo()
    Scoring(instance, memo=memo)
    other = generate("ps-mix", nodes=6, jobs=12, seed=5)
    jobs = tuple(b.model_copy(update={"name": a.name}) for a, b in zip(instance.jobs, other.jobs, strict=True))
    following = changed(other, jobs=jobs)
    assert Scoring(following, memo=memo).references == references(following, StatedSpeeds())


def test_a_model_of_ones_own_is_always_asked() -> None:
    """It may look at anything of a job."""
    instance = generate("ps-mix", nodes=4, jobs=6, seed=1)
    assert Scoring(instance, StatedSpeeds(), Memo()).memo is None


def test_nothing_is_computed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = generate("ps-mix", nodes=6, jobs=12, seed=4)
    memo = Memo()
    all_choices(instance, Scoring(instance, memo=memo))

    def never(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr("coplace.formulations.relaxation.choices.job_candidates", never)
    monkeypatch.setattr("coplace.formulations.reference._reference", never)
    jobs = tuple(job.model_copy(update={"age_seconds": job.age_seconds + 60}) for job in instance.jobs)
    following = changed(instance, jobs=jobs)
    all_choices(following, Scoring(following, memo=memo))


@pytest.mark.parametrize("method", ["auto", "prices", "greedy"])
def test_rounds_follow_each_other(method: str) -> None:
    instance = generate("ps-mix", nodes=8, jobs=16, seed=2)
    with RoundSolver(method=method) as rounds:
        for gone in (0, 1, 2):
            result = rounds.solve(instance, time_limit=1.5, gap=0.02)
            assert_sound(instance, result)
            instance = enacted(instance, result.plan, gone)


def test_a_round_without_news_moves_nothing_of_a_proven_plan() -> None:
    instance = generate("ps-mix", nodes=6, jobs=10, seed=3)
    with coplace.RoundSolver(method="prices") as rounds:
        first = rounds.solve(instance, time_limit=3, gap=0.2)
        following = enacted(instance, first.plan)
        second = rounds.solve(following, time_limit=3, gap=0.5)
    assert second.reason == "gap"
    assert second.moved == ()


def test_prices_go_from_round_to_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """With those of the round before, and a gap that is good enough, no linear program is solved."""
    instance = generate("ps-mix", nodes=8, jobs=16, seed=2)
    with RoundSolver(method="prices") as rounds:
        first = rounds.solve(instance, time_limit=1.5, gap=0.01)
        monkeypatch.setattr("coplace.formulations.relaxation.linear_program.LinearProgram.solve", None)
        following = enacted(instance, first.plan)
        assert_sound(following, rounds.solve(following, time_limit=3, gap=0.5))


def test_nothing_of_another_cluster_does_harm() -> None:
    with RoundSolver(method="prices") as rounds:
        for family, seed in (("ps-mix", 1), ("allreduce-mix", 2), ("cpu-bound", 3)):
            instance = generate(family, nodes=6, jobs=10, seed=seed)
            assert_sound(instance, rounds.solve(instance, time_limit=1, gap=0.05))
