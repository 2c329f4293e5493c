"""Neighbourhoods: what the sub-problem promises holds in the whole instance, and no round makes a plan worse."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Generator
from functools import cache
from typing import Any

import pytest

from coplace.formulations.columns import column_set
from coplace.formulations.cpsat import CpsatModel
from coplace.formulations.evaluate import evaluate
from coplace.formulations.keep import keep_current
from coplace.formulations.mip import MipModel
from coplace.formulations.relaxation import Relaxation
from coplace.formulations.scoring import Scoring
from coplace.instances import Instance, Plan, SiteRules
from coplace.instances.generation import generate
from coplace.solver import check, solve
from coplace.solver.exact.task import Ended, Event, Found
from coplace.solver.exact.worker import Worker
from coplace.solver.neighbourhoods import Neighbourhood, Options, improve
from coplace.solver.neighbourhoods.accept import better, record_to_record
from coplace.solver.neighbourhoods.choice import LEAST_WEIGHT, Choice
from coplace.solver.neighbourhoods.choosers import CHOOSERS
from coplace.solver.neighbourhoods.incumbent import Incumbent
from coplace.solver.neighbourhoods.neighbourhood import enclose, whole
from coplace.solver.neighbourhoods.pick import LEAST_PER_JOB, Picker, by_density
from coplace.solver.neighbourhoods.rounds import WITH_TIME
from coplace.solver.neighbourhoods.stop import Progress, either, gap_reached, stalled
from coplace.solver.neighbourhoods.subproblem import SubProblem, sub_problem
from coplace.solver.search import Search
from tests.oracle.enumerate import feasible_plans
from tests.oracle.tiny import best_of_tiny, tiny_instance, wide_instance

TOLERANCE = 1e-6


def incumbent(instance: Instance, plan: Plan | None = None) -> Incumbent:
    scoring = Scoring(instance)
    plan = keep_current(instance, scoring) if plan is None else plan
    return Incumbent(scoring, column_set(instance, scoring), plan)


def search_from(instance: Instance, plan: Plan, seconds: float = 30.0, seed: int = 0, **more: object) -> Search:
    scoring = Scoring(instance)
    until = time.monotonic() + seconds
    search = Search(scoring, deadline=until, gap=0.0, seed=seed, interrupted=lambda: False, **more)  # type: ignore[arg-type]
    search.rung = "neighbourhoods"
    search.offer(plan)
    return search


@cache
def wide_incumbent(seed: int) -> Incumbent:
    """Of the greedy plan of a wide instance; not to be changed."""
    instance = wide_instance(seed)
    return incumbent(instance, solve(instance, method="greedy", time_limit=60).plan)


@cache
def plans(seed: int) -> list[tuple[float, Plan]]:
    return list(feasible_plans(tiny_instance(seed)))


def some_plan(seed: int, draw: random.Random) -> Plan:
    """Any feasible plan of a tiny instance, good ones more often."""
    few = sorted((draw.choice(plans(seed)) for _ in range(3)), key=lambda found: found[0])
    return few[-1][1]


def some_neighbourhood(found: Incumbent, draw: random.Random) -> Neighbourhood:
    nodes = [n for n in range(len(found.instance.nodes)) if draw.random() < 0.6]
    waiting = [j for j in found.waiting() if draw.random() < 0.7]
    return enclose(found, nodes, waiting)


def promised(found: Incumbent, problem: SubProblem, objective: float) -> float:
    """The objective of the sub-problem and what all jobs that are not in it are worth."""
    inside = {choices.job.name for choices in problem.columns.jobs}
    outcomes = evaluate(found.instance, found.plan, found.scoring).jobs
    return objective + sum(outcome.value for name, outcome in outcomes.items() if name not in inside)


def best_within(found: Incumbent, neighbourhood: Neighbourhood, seed: int) -> float:
    """The best of all feasible plans that change no more than the neighbourhood allows, by brute force."""
    instance = found.instance
    free = {instance.jobs[j].name for j in neighbourhood.jobs}
    nodes = {instance.nodes[n].name for n in neighbourhood.nodes}

    def allowed(plan: Plan) -> bool:
        for job in instance.jobs:
            new, old = plan.get(job.name), found.plan.get(job.name)
            if job.name in free:
                if new is not None and not nodes.issuperset(new.nodes):
                    return False
            elif (new is None) != (old is None) or (new is not None and not new.same_as(old)):
                return False
        return True

    return max(objective for objective, plan in plans(seed) if allowed(plan))


# --- the sub-problem ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", range(4))
def test_the_best_of_a_neighbourhood_is_what_brute_force_finds(chunk: int) -> None:
    """Feasible in the whole instance, worth what was promised, and the best there is, with every rule of the model."""
    for seed in range(chunk * 30, (chunk + 1) * 30):
        draw = random.Random(seed)
        found = incumbent(tiny_instance(seed), some_plan(seed, draw))
        neighbourhood = some_neighbourhood(found, draw)
        problem = sub_problem(found, neighbourhood)
        solution = CpsatModel(problem.columns).solve(time_limit=60, gap=0, workers=1, hint=problem.hint)
        assert solution.status == "optimal", seed
        assert solution.plan is not None
        assert solution.objective is not None
        plan = problem.spliced(found.plan, solution.plan)
        report = check(found.instance, plan, found.scoring)
        assert report.violations == (), seed
        best = best_within(found, neighbourhood, seed)
        assert report.objective == pytest.approx(best, rel=TOLERANCE, abs=TOLERANCE), seed
        assert report.objective >= promised(found, problem, solution.objective) - TOLERANCE, seed


def test_both_formulations_take_it() -> None:
    for seed in range(40):
        draw = random.Random(seed)
        found = incumbent(tiny_instance(seed), some_plan(seed, draw))
        neighbourhood = some_neighbourhood(found, draw)
        problem = sub_problem(found, neighbourhood)
        solution = MipModel(problem.columns).solve(time_limit=60, gap=0, hint=problem.hint)
        assert solution.plan is not None, seed
        report = check(found.instance, problem.spliced(found.plan, solution.plan), found.scoring)
        assert report.feasible, seed
        assert report.objective == pytest.approx(best_within(found, neighbourhood, seed), rel=1e-5, abs=1e-5), seed


def test_promises_hold_where_jobs_have_many_tasks() -> None:
    """And the plan it came from is one of its own, worth exactly its objective."""
    for seed in range(40):
        found, draw = wide_incumbent(seed), random.Random(seed)
        instance = found.instance
        before = evaluate(instance, found.plan, found.scoring).objective
        for _ in range(3):
            problem = sub_problem(found, some_neighbourhood(found, draw))
            solution = CpsatModel(problem.columns).solve(
                time_limit=60, workers=1, hint=problem.hint, deterministic_limit=0.5
            )
            if solution.plan is None or solution.objective is None:
                continue
            report = check(instance, problem.spliced(found.plan, solution.plan), found.scoring)
            assert report.violations == (), seed
            assert report.objective >= promised(found, problem, solution.objective) - TOLERANCE, seed
            if solution.status == "optimal":
                assert report.objective >= before * (1 - 2e-4), seed


def test_a_job_that_straddles_the_border_stays_and_still_feels_pressure() -> None:
    found = incumbent(generated(), solve(generated(), method="greedy", time_limit=60).plan)
    wide = next(j for j, own in enumerate(found.state.placements) if own is not None and own.span > 1)
    own = found.state.placements[wide]
    assert own is not None
    neighbourhood = enclose(found, own.nodes[:1])
    assert wide not in neighbourhood.jobs
    problem = sub_problem(found, neighbourhood)
    held = next(choices for choices in problem.columns.jobs if choices.job.name == found.instance.jobs[wide].name)
    assert held.must_keep
    assert held.columns == ()
    assert held.job.name not in problem.free
    assert list(held.kept) == sorted(held.kept, reverse=True)
    assert held.kept[found.state.level[own.nodes[0]]] == pytest.approx(found.state.values[wide])


@cache
def generated(nodes: int = 12, jobs: int = 24, seed: int = 1) -> Instance:
    return generate("ps-mix", nodes=nodes, jobs=jobs, seed=seed)


def test_an_incumbent_that_is_replaced_is_like_a_new_one() -> None:
    first = keep_current(generated())
    second = solve(generated(), method="greedy", time_limit=60).plan
    found = incumbent(generated(), first)
    found.replace(second)
    fresh = incumbent(generated(), second)
    assert found.plan == second
    assert found.state.objective == pytest.approx(fresh.state.objective)
    assert (found.state.free == fresh.state.free).all()
    assert found.state.level == fresh.state.level
    assert found.state.jobs_on == fresh.state.jobs_on


# --- columns --------------------------------------------------------------------------------------------------------


def test_few_columns_are_those_worth_most_and_those_of_the_plan() -> None:
    found = incumbent(generated(), solve(generated(), method="greedy", time_limit=60).plan)
    neighbourhood = whole(found)
    relaxation = Relaxation(found.columns)
    prices = relaxation.bound(relaxation.best_prices())
    for worth in (by_density(found), lambda j: prices.surplus[j] - prices.shortfall[j]):
        picked = Picker(worth, 50).pick(found, neighbourhood)
        for j in neighbourhood.jobs:
            columns, placement = found.columns.jobs[j].columns, found.state.placements[j]
            assert len(picked[j]) >= min(len(columns), LEAST_PER_JOB)
            assert int(worth(j).argmax()) in picked[j]
            if placement is not None:
                of_plan = [k for k, column in enumerate(columns) if column[:5] == placement.shape]
                assert set(of_plan) <= set(picked[j])
    everything = Picker(by_density(found), 10**9).pick(found, neighbourhood)
    assert all(len(everything[j]) == len(found.columns.jobs[j].columns) for j in neighbourhood.jobs)


# --- choosers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHOOSERS)
def test_a_chooser_chooses_the_same_with_the_same_seed(name: str) -> None:
    found = incumbent(generated(), solve(generated(), method="greedy", time_limit=60).plan)

    def chosen(seed: int) -> list[Neighbourhood | None]:
        draw = random.Random(seed)
        return [CHOOSERS[name](found, size, draw) for size in (2, 4, 6, 12)]

    assert chosen(3) == chosen(3)
    assert any(chosen(seed) != chosen(3) for seed in range(4, 8))


@pytest.mark.parametrize("name", CHOOSERS)
def test_what_is_chosen_is_free_to_change(name: str) -> None:
    for seed in range(40):
        found, draw = wide_incumbent(seed), random.Random(seed)
        for size in (1, 2, 5):
            neighbourhood = CHOOSERS[name](found, size, draw)
            if neighbourhood is None:
                continue
            assert list(neighbourhood.jobs) == sorted(set(neighbourhood.jobs))
            assert list(neighbourhood.nodes) == sorted(set(neighbourhood.nodes))
            for j in neighbourhood.jobs:
                placement = found.state.placements[j]
                assert not found.columns.jobs[j].must_keep
                assert placement is None or set(placement.nodes) <= set(neighbourhood.nodes)


def test_without_places_there_is_no_rack() -> None:
    nodes = tuple(node.model_copy(update={"rack": None, "labels": {}}) for node in generated().nodes)
    found = incumbent(generated().model_copy(update={"nodes": nodes}))
    assert CHOOSERS["rack"](found, 4, random.Random(0)) is None


# --- accepting, stopping, choosing ----------------------------------------------------------------------------------


def test_what_is_accepted() -> None:
    assert better(2.0, 1.0, 3.0)
    assert not better(1.0, 1.0, 1.0)
    near = record_to_record(0.1)
    assert near(9.0, 9.5, 10.0)
    assert not near(8.9, 8.0, 10.0)


def test_when_to_stop() -> None:
    search = search_from(generated(), keep_current(generated()))
    rule = either(gap_reached, stalled(3))
    assert not rule(Progress(search, rounds=10, idle=2))
    assert rule(Progress(search, rounds=10, idle=3))
    search.bounded(search.objective)
    assert rule(Progress(search))


def test_choosers_that_find_something_are_drawn_more_often() -> None:
    choice = Choice(("good", "bad"), 6, 10, random.Random(1))
    good, bad = choice.arms["good"], choice.arms["bad"]
    for _ in range(40):
        choice.learn(good, found=True, solved=True)
        choice.learn(bad, found=False, solved=False)
    assert bad.weight == LEAST_WEIGHT
    assert (good.size, bad.size) == (10, 2)
    drawn = [choice.next().name for _ in range(200)]
    assert drawn.count("good") > 150
    assert "bad" in drawn


# --- the rung -------------------------------------------------------------------------------------------------------


def test_with_everything_free_it_finds_the_best_plan() -> None:
    with Worker() as worker:
        for seed in range(40):
            instance = tiny_instance(seed)
            search = search_from(instance, keep_current(instance), worker=worker)
            options = Options(stop=either(gap_reached, stalled(1)), columns=10**6)
            improve(search, choosers={"all": lambda found, size, draw: whole(found)}, options=options)
            best, _ = best_of_tiny(seed)
            assert search.objective == pytest.approx(best, rel=1.1e-4, abs=TOLERANCE), seed


@pytest.mark.parametrize("backend", ["cpsat", "highs"])
@pytest.mark.parametrize("accept", [better, record_to_record(0.01)])
def test_no_round_makes_a_plan_worse(backend: str, accept: object) -> None:
    options = Options(backend=backend, seconds=0.3, accept=accept, stop=either(stalled(6), WITH_TIME))  # type: ignore[arg-type]
    with Worker() as worker:
        for seed in range(8):
            instance = wide_instance(seed)
            start = solve(instance, method="greedy", time_limit=60)
            search = search_from(instance, start.plan, seconds=4, seed=seed, worker=worker)
            improve(search, options=options)
            assert search.objective >= start.objective
            assert check(instance, search.plan).feasible


def test_with_prices_it_improves_a_plan() -> None:
    """As a rung: it is called with the search, after one that leaves a bound and a plan."""
    start = solve(generated(), method="greedy")
    search = search_from(generated(), start.plan, seconds=60)
    columns = column_set(search.instance, search.scoring)
    relaxation = Relaxation(columns)
    prices = relaxation.bound(relaxation.best_prices())
    search.bounded(prices.bound)
    improve(
        search,
        columns=columns,
        worth=lambda j: prices.surplus[j] - prices.shortfall[j],
        options=Options(stop=either(lambda progress: search.objective > start.objective, WITH_TIME)),
    )
    assert search.objective > start.objective
    assert search.found_by == "neighbourhoods"
    assert check(generated(), search.plan).objective == pytest.approx(search.objective)


def test_a_replay_gives_the_same_plan() -> None:
    def replayed() -> Plan:
        start = solve(generated(8, 14), method="greedy", time_limit=60).plan
        search = search_from(generated(8, 14), start, seconds=3600, seed=5, replay=True)
        improve(search, options=Options(seconds=0.05, columns=100, stop=stalled(3)))
        return search.plan

    assert replayed().model_dump_json() == replayed().model_dump_json()


def test_it_stops_when_asked_and_when_the_time_is_over() -> None:
    start = solve(generated(), method="greedy", time_limit=60).plan
    search = search_from(generated(), start, seconds=1.0)
    begin = time.monotonic()
    improve(search)
    assert search.reason == "time"
    assert time.monotonic() - begin < 30
    search = search_from(generated(), start)
    search.interrupted = lambda: True
    improve(search)
    assert search.reason == "interrupted"
    assert search.plan == start


class Liar(Worker):
    """Gives every job of the sub-problem a hundred times the tasks."""

    def solve(self, task: Any, interrupted: object) -> Generator[Event, None, None]:
        more = {
            name: own.model_copy(
                update={"tasks": {r: {n: 100 * count for n, count in on.items()} for r, on in own.tasks.items()}}
            )
            for name, own in task.hint.allocations.items()
        }
        yield Found(Plan.model_construct(allocations=more))
        yield Ended("done")


def test_a_solver_that_lies_is_not_believed() -> None:
    start = solve(generated(), method="greedy", time_limit=60).plan
    search = search_from(generated(), start, worker=Liar())
    improve(search)
    assert (search.reason, search.plan) == ("backend_failure", start)
    assert search.detail is not None
    assert "infeasible plan" in search.detail


def test_a_solver_that_fails_is_not_asked_for_ever() -> None:
    start = solve(generated(), method="greedy", time_limit=60).plan
    search = search_from(generated(), start)
    with Worker(command=[sys.executable, "-c", "raise SystemExit(7)"]) as worker:
        search.worker = worker
        improve(search)
    assert (search.reason, search.plan) == ("backend_failure", start)
    assert search.detail is not None
    assert "exit code 7" in search.detail


def test_a_move_budget_of_nothing_leaves_what_runs() -> None:
    rules = SiteRules(move_budget=0)
    instance = generated().model_copy(update={"rules": rules})
    search = search_from(instance, keep_current(instance), seconds=60)
    improve(search, options=Options(seconds=0.3, columns=100, stop=stalled(5)))
    assert check(instance, search.plan).moved == ()
