"""The package and an independent reading of docs/model.md say the same about instances, plans and solutions."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from coplace.formulations.evaluate import evaluate
from coplace.formulations.keep import displaced, keep_current
from coplace.formulations.scoring import Scoring
from coplace.instances import Allocation, Instance, Plan, Profile, PsMemory
from coplace.instances.demand import task_demand
from coplace.solver import check, solve
from tests.oracle.sampling import sample_plans
from tests.oracle.scoring import Oracle, demand, form
from tests.oracle.tiny import best_of_tiny, tiny_instance, wide_instance

CHUNK = 25
CHUNKS = range(16)
PLANS = 10


def seeds(chunk: int) -> range:
    return range(chunk * CHUNK, (chunk + 1) * CHUNK)


@cache
def tiny(seed: int) -> Oracle:
    return Oracle(tiny_instance(seed))


@cache
def wide(seed: int) -> Oracle:
    return Oracle(wide_instance(seed))


def oracles(chunk: int) -> list[Oracle]:
    """Of tiny instances, and of some with many tasks per job."""
    return [*map(tiny, seeds(chunk)), *map(wide, seeds(chunk)[::5])]


@pytest.mark.parametrize("chunk", CHUNKS)
def test_weights_and_reference_speeds(chunk: int) -> None:
    for oracle in oracles(chunk):
        instance, scoring = oracle.instance, Scoring(oracle.instance)
        names = [job.name for job in instance.jobs]
        assert dict(zip(names, scoring.reference, strict=True)) == pytest.approx(oracle.reference, rel=1e-9), (
            instance.name
        )
        assert dict(zip(names, scoring.weights, strict=True)) == pytest.approx(oracle.weight, rel=1e-9), instance.name


@pytest.mark.parametrize("chunk", CHUNKS)
def test_keep_current(chunk: int) -> None:
    for oracle in oracles(chunk):
        instance = oracle.instance
        kept = keep_current(instance)
        assert {job: form(kept.get(job)) for job in kept.allocations} == {
            job: form(a) for job, a in oracle.kept.items()
        }
        assert set(displaced(instance)) == oracle.displaced, instance.name


def test_demand() -> None:
    draw = random.Random(0)
    base = next(
        job for seed in range(99) for job in tiny(seed).instance.jobs if job.ps is not None and job.ps.memory_model
    )
    assert base.ps is not None
    for _ in range(2000):
        memory = PsMemory(
            model=draw.choice((0, 100, 110, 1000, 2300, draw.randrange(10**6), draw.randrange(10**9))),
            copies=draw.choice((1.0, 1.1, 2.3, 3.0, round(draw.uniform(1, 8), 3))),
            base=draw.choice((0, 77)),
            receive_buffer=draw.choice((0, 55)),
            imbalance=draw.choice((1.0, 1.1, 1.15, 1.7, round(draw.uniform(1, 3), 2))),
        )
        profiles = (Profile(cpu=1, memory=draw.choice((0, 500, 10**6))), Profile(cpu=7, memory=1))
        servers = base.ps.model_copy(update={"profiles": profiles, "memory_model": memory})
        job = base.model_copy(update={"ps": servers})
        for role, profile in (("worker", 0), ("ps", 0), ("ps", 1)):
            w, p = draw.randint(1, 64), draw.randint(1, 16)
            allocation = Allocation(tasks={"worker": {"n": w}, "ps": {"n": p}}, profiles={role: profile})
            assert task_demand(job, role, allocation) == demand(job, role, profile, w, p), (memory, w, p)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_plans_are_checked_and_scored_alike(chunk: int) -> None:
    for oracle in oracles(chunk):
        instance, scoring = oracle.instance, Scoring(oracle.instance)
        for number, plan in enumerate(sample_plans(oracle, random.Random(chunk), PLANS)):
            where = f"{instance.name}, plan {number}"
            verdict = oracle.judge(plan)
            report = check(instance, plan, scoring)
            found = {violation.rule for violation in report.violations}
            assert found - verdict.unclear == verdict.broken, where
            assert report.feasible == (not found), where
            assert set(report.moved) == verdict.moved, where
            evaluation = evaluate(instance, plan, scoring)
            assert evaluation.objective == report.objective, where
            assert evaluation.objective == pytest.approx(verdict.objective, rel=1e-9), where
            speeds = {name: outcome.speed for name, outcome in evaluation.jobs.items()}
            assert speeds == pytest.approx(verdict.speeds, rel=1e-9), where
            for name, outcome in evaluation.jobs.items():
                assert outcome.weight == pytest.approx(oracle.weight[name], rel=1e-9), where
                assert outcome.kept == (form(plan.get(name)) == form(instance.job[name].current)), where


@pytest.mark.parametrize("chunk", CHUNKS)
def test_methods_give_feasible_plans_between_keep_current_and_the_best(chunk: int) -> None:
    for seed in seeds(chunk):
        oracle = tiny(seed)
        instance = oracle.instance
        best = best_of_tiny(seed)[0]
        with within(10, instance):
            keeping = objective_of(oracle, solve(instance, method="keep-current"))
            greedy = objective_of(oracle, solve(instance, method="greedy"))
        assert keeping == pytest.approx(oracle.judge(oracle.keep_current()).objective, rel=1e-9), instance.name
        assert keeping - 1e-9 <= greedy <= best * (1 + 1e-9) + 1e-9, instance.name


@contextmanager
def within(seconds: int, instance: Instance) -> Iterator[None]:
    """Fails instead of hanging: greedy once chased a level that a job without intensity could not lower."""

    def fail(*_: object) -> None:
        raise TimeoutError(f"{instance.name} took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def objective_of(oracle: Oracle, result: object) -> float:
    """The result's objective, once the oracle has agreed to it and to the plan."""
    plan = result.plan  # type: ignore[attr-defined]
    assert isinstance(plan, Plan)
    verdict = oracle.judge(plan)
    assert not verdict.broken, oracle.instance.name
    assert result.objective == pytest.approx(verdict.objective, rel=1e-9), oracle.instance.name  # type: ignore[attr-defined]
    return verdict.objective
