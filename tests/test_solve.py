"""The ladder: every method gives a checked plan, never worse than what runs, the same for the same input."""

from __future__ import annotations

import pytest

import coplace
from coplace.formulations.keep import keep_current
from coplace.formulations.scoring import Scoring
from coplace.instances import InputError, Plan
from coplace.instances.generation import FAMILIES, generate
from coplace.solver import METHODS, check, solve
from coplace.solver.greedy import greedy
from coplace.solver.search import InfeasiblePlanError, Search
from coplace.solver.state import State
from tests.building import instance, node, ring_job
from tests.test_replay import METHODS as REPLAYED


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(3))
def test_greedy_is_feasible_and_no_worse_than_keeping_everything(family: str, seed: int) -> None:
    problem = generate(family, nodes=16, jobs=40, seed=seed)
    kept, result = solve(problem, method="keep-current"), solve(problem, method="greedy")
    report = check(problem, result.plan)
    assert report.feasible
    assert report.objective == result.objective
    assert result.objective >= kept.objective
    assert result.reason == "finished"
    assert (result.bound, result.gap, result.certified_gap) == (None, None, None)


def test_greedy_gains_where_there_is_room() -> None:
    problem = generate("ps-mix", nodes=16, jobs=40, seed=1)
    assert solve(problem, method="greedy").objective > 1.2 * solve(problem, method="keep-current").objective


@pytest.mark.parametrize("method", [method for method in METHODS if method not in REPLAYED])
def test_the_same_instance_gives_the_same_plan(method: str) -> None:
    """Of the other methods test_replay.py says so, under load too."""
    problem = generate("ps-mix", nodes=4, jobs=8, seed=5, pressure=False)
    results = [solve(problem, method=method, replay=True) for _ in range(2)]
    assert results[0].plan == results[1].plan
    assert results[0].instance_sha256 == results[1].instance_sha256


def test_the_state_agrees_with_the_evaluator_after_hundreds_of_steps() -> None:
    problem = generate("ps-mix", nodes=16, jobs=40, seed=2)
    state = State(Scoring(problem))
    assert greedy(state)
    assert state.objective == pytest.approx(coplace.evaluate(problem, state.plan()).objective, rel=1e-12)
    again = State(Scoring(problem), state.plan())
    assert again.objective == pytest.approx(state.objective, rel=1e-12)
    assert (again.free == state.free).all()
    assert (again.load == state.load).all()


def test_a_solve_that_is_stopped_returns_a_feasible_plan_and_says_why() -> None:
    problem = generate("ps-mix", nodes=16, jobs=40, seed=2)
    for allowed in (0, 1, 30, 60):
        asked = 0

        def interrupted() -> bool:
            nonlocal asked
            asked += 1
            return asked > allowed  # noqa: B023

        result = solve(problem, interrupted=interrupted)
        assert check(problem, result.plan).feasible
        assert result.reason == "interrupted"
        assert result.objective >= solve(problem, method="keep-current").objective
    assert solve(problem, time_limit=1e-9).reason == "time"


def test_a_method_that_breaks_a_rule_is_refused() -> None:
    problem = instance([node()], [ring_job("a", worker={"cpu": 1, "min": 3, "max": 4}), ring_job("b")])
    search = Search(Scoring(problem), deadline=0.0, gap=0.0, seed=0, interrupted=lambda: False)
    plan = Plan.model_validate({"allocations": {job: {"tasks": {"worker": {"n": 3}}} for job in ("a", "b")}})
    with pytest.raises(InfeasiblePlanError, match=r"capacity: node n is over its gpu: 6 GPUs of 4 GPUs free"):
        search.offer(plan)


def test_the_search_never_replaces_a_plan_by_a_worse_one() -> None:
    problem = generate("ps-mix", nodes=8, jobs=20, seed=1)
    search = Search(Scoring(problem), deadline=0.0, gap=0.0, seed=0, interrupted=lambda: False)
    search.offer(solve(problem, method="greedy").plan)
    best = search.plan
    search.offer(keep_current(problem))
    assert search.plan is best


def test_pinned_jobs_stay_and_the_move_budget_lasts() -> None:
    problem = generate("ps-mix", nodes=16, jobs=40, seed=4)
    running = [job.name for job in problem.jobs if job.running]
    free = solve(problem, method="greedy")
    assert len(free.moved) > 2
    rules = problem.rules.model_copy(update={"move_budget": 2})
    limited = solve(problem.model_copy(update={"rules": rules}), time_limit=1)
    assert len(limited.moved) <= 2
    pinned = problem.model_copy(
        update={"jobs": tuple(job.model_copy(update={"pinned": job.running}) for job in problem.jobs)}
    )
    result = solve(pinned, time_limit=1)
    assert result.moved == ()
    assert all(result.plan[name].same_as(problem.job[name].current) for name in running)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "greedi"}, "method: must be one of the methods; found 'greedi'; did you mean greedy"),
        ({"backend": "hihgs"}, "backend: must be one of the MIP backends; found 'hihgs'; did you mean highs"),
        ({"time_limit": 0}, "time_limit: must be above 0 seconds"),
        ({"time_limit": float("nan")}, "time_limit: must be above 0 seconds"),
        ({"gap": -1}, "gap: must not be negative"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        solve(instance([node()], []), **options)  # type: ignore[arg-type]


def test_a_mapping_is_no_instance() -> None:
    with pytest.raises(TypeError, match="parse_instance makes one"):
        solve({"nodes": []})  # type: ignore[arg-type]


def test_empty_instances_have_empty_plans() -> None:
    assert solve(instance([node()], [])).objective == 0
    assert len(solve(instance([node()], [])).plan) == 0
