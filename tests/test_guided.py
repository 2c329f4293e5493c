"""Construction by prices: feasible whatever the rules are, and on the whole better than greedy alone."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from coplace.formulations.columns import ColumnSet, column_set
from coplace.formulations.evaluate import evaluate
from coplace.formulations.keep import displaced
from coplace.formulations.relaxation import Prices, Relaxation
from coplace.formulations.scoring import Scoring
from coplace.instances import Instance, Plan, Quota, Resources, SiteRules
from coplace.instances.generation import FAMILIES, generate
from coplace.solver import check, price_guided, solve
from coplace.solver.guided import guided
from coplace.solver.result import Result
from tests.oracle.tiny import best_of_tiny, tiny_instance, wide_instance

SIZES = [(16, 40), (24, 60)]
FLAGS = [(True, True), (True, False), (False, True), (False, False)]


@cache
def generated(family: str, nodes: int, jobs: int, seed: int, pressure: bool, moves: bool) -> Instance:
    return generate(family, nodes=nodes, jobs=jobs, seed=seed, pressure=pressure, moves=moves)


def priced(instance: Instance) -> tuple[Scoring, ColumnSet, Prices]:
    scoring = Scoring(instance)
    columns = column_set(instance, scoring)
    relaxation = Relaxation(columns)
    return scoring, columns, relaxation.bound(relaxation.best_prices())


def by_prices(instance: Instance, asked: int | None = None) -> Plan:
    """The guided plan, stopped when it has asked so many times; checked."""
    count = 0

    def stopped() -> bool:
        nonlocal count
        count += 1
        return asked is not None and count > asked

    scoring, columns, prices = priced(instance)
    plan = guided(scoring, columns, prices, stopped)
    report = check(instance, plan, scoring)
    assert report.violations == (), instance.name
    assert report.objective <= prices.bound + columns.error
    return plan


def greedy(instance: Instance) -> Result:
    return solve(instance, method="greedy", time_limit=60)


def value(instance: Instance, plan: Plan) -> float:
    return evaluate(instance, plan).objective


# --- feasible -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "jobs"), SIZES)
@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_feasible_on_every_family(family: str, nodes: int, jobs: int) -> None:
    for pressure, moves in FLAGS:
        instance = generated(family, nodes, jobs, 1, pressure, moves)
        assert len(by_prices(instance)) > 0


@pytest.mark.parametrize("chunk", range(4))
def test_it_is_feasible_on_small_clusters_with_every_rule(chunk: int) -> None:
    """And at most the best plan of brute force."""
    for seed in range(chunk * 50, (chunk + 1) * 50):
        by_prices(wide_instance(seed))
        tiny = tiny_instance(seed)
        assert value(tiny, by_prices(tiny)) <= best_of_tiny(seed)[0] * (1 + 1e-9) + 1e-12


def with_rules(instance: Instance, **rules: Any) -> Instance:
    return instance.model_copy(update={"rules": SiteRules(**instance.rules.model_dump() | rules)})


def running(seed: int = 1) -> Instance:
    return generated("ps-mix", 16, 40, seed, True, True)


@pytest.mark.parametrize("budget", [0, 1, 2, 5])
def test_the_move_budget_lasts(budget: int) -> None:
    for seed in range(3):
        instance = with_rules(running(seed), move_budget=budget)
        plan = by_prices(instance)
        assert len(check(instance, plan).moved) <= budget


def test_more_moves_are_used_for_something() -> None:
    values = []
    for budget in (0, None):
        instances = [with_rules(running(seed), move_budget=budget) for seed in range(4)]
        values.append(sum(value(instance, by_prices(instance)) for instance in instances))
    assert values[0] < values[-1]


def test_pinned_jobs_stay() -> None:
    for seed in range(3):
        instance = running(seed)
        names = [job.name for job in instance.jobs if job.running][::2]
        jobs = tuple(job.model_copy(update={"pinned": job.name in names}) for job in instance.jobs)
        pinned = instance.model_copy(update={"jobs": jobs})
        plan = by_prices(pinned)
        gone = displaced(pinned, Scoring(pinned))
        assert len(names) > len(gone)
        for name in names:
            if name not in gone:
                assert pinned.job[name].current is not None
                assert pinned.job[name].current.same_as(plan.get(name))  # type: ignore[union-attr]


def test_quotas_hold() -> None:
    for seed in range(3):
        instance = running(seed)
        tenants = sorted({job.tenant for job in instance.jobs})
        quotas = {tenant: Quota(gpu=5 + 3 * i, cpu=60_000) for i, tenant in enumerate(tenants)}
        limited = with_rules(instance, quotas=quotas)
        plan = by_prices(limited)
        used = sum(limited.job[name].worker.gpu * a.workers for name, a in plan.allocations.items())
        assert 0 < used <= sum(quota.gpu or 0 for quota in quotas.values())


def test_cordoned_and_lost_nodes_get_nothing_new() -> None:
    for seed in range(3):
        instance = running(seed)
        changes: list[dict[str, Any]] = [{"cordoned": True}, {"lost": "all"}, {"lost": Resources(gpu=1)}, {}]
        nodes = tuple(node.model_copy(update=changes[n % 4]) for n, node in enumerate(instance.nodes))
        damaged = instance.model_copy(update={"nodes": nodes})
        plan = by_prices(damaged)
        used = {name for allocation in plan.allocations.values() for name in allocation.nodes}
        assert not used & {node.name for node in damaged.nodes if not node.available}


def test_few_tasks_on_a_node() -> None:
    for seed in range(3):
        by_prices(with_rules(running(seed), max_tasks_per_node=2))


# --- good -----------------------------------------------------------------------------------------------------------


def test_it_beats_greedy_on_most_families() -> None:
    """Summed over seeds; one instance may go the other way."""
    better = []
    for family in FAMILIES:
        ours = theirs = 0.0
        for seed in (1, 2):
            for pressure in (True, False):
                instance = generated(family, 16, 40, seed, pressure, True)
                ours += value(instance, by_prices(instance))
                theirs += greedy(instance).objective
        better.append(ours > theirs)
    assert sum(better) > len(FAMILIES) / 2


def test_good_prices_are_better_than_none() -> None:
    ours = without = 0.0
    for seed in range(1, 5):
        instance = generated("ps-mix", 16, 40, seed, True, True)
        ours += value(instance, by_prices(instance))
        scoring = Scoring(instance)
        columns = column_set(instance, scoring)
        relaxation = Relaxation(columns)
        none = relaxation.bound(np.zeros(len(relaxation.fixed)))
        plan = guided(scoring, columns, none, lambda: False)
        assert check(instance, plan).feasible
        without += value(instance, plan)
    assert ours > without


# --- ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [0, 1, 5, 30, 100])
def test_it_can_be_stopped_anywhere(asked: int) -> None:
    by_prices(running(), asked)


def test_it_gives_the_same_plan_again() -> None:
    for family in FAMILIES:
        instance = generated(family, 16, 40, 2, True, True)
        assert by_prices(instance) == by_prices(instance)


def test_the_method_that_uses_it_is_no_worse_than_greedy_and_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_guided, "REPLAY_LOOKS", 20)  # little of the search that goes on from its plan
    for family in FAMILIES:
        instance = generated(family, 16, 40, 3, True, True)
        result = solve(instance, method="prices", replay=True)
        assert check(instance, result.plan).feasible
        assert result.objective >= greedy(instance).objective
        assert result.bound is not None
        assert result.reason in ("finished", "gap")
