"""Prices bound every plan, whatever they are, and say truly which choices no best plan makes."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from coplace.formulations.columns import ColumnSet, column_set
from coplace.formulations.evaluate import evaluate
from coplace.formulations.relaxation import LP_GAP, Prices, Relaxation
from coplace.instances import Instance, Plan
from coplace.instances.generation import FAMILIES, generate
from coplace.solver import solve
from tests.oracle.enumerate import Option, Search
from tests.oracle.scoring import Oracle
from tests.oracle.tiny import best_of_tiny, tiny_instance

CHUNK = 50
CHUNKS = range(6)


@cache
def tiny(seed: int) -> tuple[Instance, ColumnSet, Relaxation, float, Plan]:
    instance = tiny_instance(seed)
    columns = column_set(instance)
    return instance, columns, Relaxation(columns), *best_of_tiny(seed)


@cache
def best_prices(seed: int) -> np.ndarray:
    """Those of the linear program."""
    prices = tiny(seed)[2].best_prices()
    prices.setflags(write=False)
    return prices


def seeds(chunk: int) -> range:
    return range(chunk * CHUNK, (chunk + 1) * CHUNK)


# --- bounds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", CHUNKS)
def test_any_prices_bound_every_plan(chunk: int) -> None:
    """Those of the linear program, none, random ones, and ones that are far too high."""
    for seed in seeds(chunk):
        instance, _, relaxation, best, _ = tiny(seed)
        draw = np.random.default_rng(seed)
        prices = best_prices(seed)
        assert (prices >= 0).all()
        rows = len(prices)
        tried = [prices, np.zeros(rows), np.full(rows, 1e6), -np.ones(rows)]
        tried += [prices * draw.uniform(0.5, 1.5, rows) for _ in range(4)]
        tried += [draw.exponential(best + 0.1, rows) * 10.0 ** draw.integers(-7, 1, rows) for _ in range(4)]
        for each in tried:
            assert relaxation.bound(each).bound >= best * (1 - 1e-12), instance.name


def test_prices_of_the_program_bound_closely() -> None:
    """Where few jobs compete for few nodes whole counts cost more than this, but seldom much."""
    ratios = [relaxation.bound(best_prices(seed)).bound / best for seed in range(100)
              for _, _, relaxation, best, _ in [tiny(seed)] if best > 0]  # fmt: skip
    assert np.median(ratios) < 1.25
    none = [relaxation.bound(np.zeros(len(relaxation.fixed))).bound / best for _, _, relaxation, best, _ in
            map(tiny, range(100)) if best > 0]  # fmt: skip
    assert np.mean(ratios) < np.mean(none)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pressure", [True, False])
def test_the_bound_is_above_what_methods_find(family: str, pressure: bool) -> None:
    for seed in range(2):
        instance = generate(family, nodes=8, jobs=14, seed=seed, pressure=pressure)
        columns = column_set(instance)
        relaxation = Relaxation(columns)
        bound = relaxation.bound(relaxation.best_prices()).bound
        found = solve(instance, method="greedy").objective
        assert found <= bound + columns.error < 10 * found


# --- what shortfalls say --------------------------------------------------------------------------------------------


def shortfall_of(columns: ColumnSet, prices: Prices, j: int, option: Option, level: int) -> float | None:
    """The least shortfall of the choices that stand for what an option of brute force does at a pressure level.

    These allow its placement, with some tasks left out perhaps, and are worth no less. None where there is none.
    """
    choices = columns.jobs[j]
    if option.allocation is None:
        return -math.inf if choices.must_keep else float(prices.surplus[j])
    if choices.kept and option.allocation.same_as(choices.job.current):
        return float(prices.kept_shortfall[j][level])
    gpu_type, w, p, *profiles = columns.shape_of(option.allocation)
    fitting = [
        float(shortfall)
        for column, shortfall in zip(choices.columns, prices.shortfall[j], strict=True)
        if (column.gpu_type, column.worker_profile, column.ps_profile) == (gpu_type, *profiles)
        and column.workers <= w
        and column.servers <= p
        and column.span >= min(option.allocation.span, column.workers + column.servers)
        and column.level >= level
        and column.value >= option.values[level] * (1 - 1e-12)
    ]
    return min(fitting) if fitting else None


@pytest.mark.parametrize("chunk", CHUNKS)
def test_what_falls_short_by_more_than_the_gap_is_in_no_better_plan(chunk: int) -> None:
    """Brute force goes through every plan: its objective is at most bound − shortfall of each choice that it makes."""
    for seed in seeds(chunk)[::5]:
        instance, columns, relaxation, _, _ = tiny(seed)
        prices = relaxation.bound(best_prices(seed))
        search = Search(Oracle(instance))
        shortfalls: dict[tuple[int, int, int], float | None] = {}  # of an option at a level, whichever plan it is in
        for objective, plan in search.all():
            levels = [search.level(node) for node in range(len(search.load))]
            for j, option in enumerate(search.chosen):
                felt = max((levels[take[0]] or 0 for take in option.takes), default=0)
                if (j, id(option), felt) not in shortfalls:
                    shortfalls[j, id(option), felt] = shortfall_of(columns, prices, j, option, felt)
                shortfall = shortfalls[j, id(option), felt]
                if shortfall is not None:
                    assert objective <= prices.bound - shortfall + 1e-9 * prices.bound, (instance.name, plan)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_columns_outside_of_the_gap_can_be_dropped(chunk: int) -> None:
    """The best plan is among those that remain, and dropped ones are many."""
    dropped = total = 0
    for seed in seeds(chunk):
        instance, columns, relaxation, best, _ = tiny(seed)
        prices = relaxation.bound(best_prices(seed))
        keep = [shortfall <= prices.bound - best + 1e-9 * prices.bound for shortfall in prices.shortfall]
        left = columns.restricted([mask.tolist() for mask in keep])
        dropped += sum(int((~mask).sum()) for mask in keep)
        total += sum(len(mask) for mask in keep)
        again = Relaxation(left)
        assert again.bound(again.best_prices()).bound >= best * (1 - 1e-12), instance.name
    assert dropped > 0.1 * total


def test_running_nothing_is_a_choice() -> None:
    """A job's surplus is how far a plan without it stays below the bound."""
    for seed in range(100):
        instance, columns, relaxation, best, plan = tiny(seed)
        prices = relaxation.bound(best_prices(seed))
        for j, choices in enumerate(columns.jobs):
            if choices.job.name not in plan and not choices.must_keep:
                assert best <= prices.bound - prices.surplus[j] + 1e-9 * prices.bound, instance.name


# --- the linear program ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "jobs"), [(8, 14), (16, 30)])
@pytest.mark.parametrize("pressure", [True, False])
def test_prices_converge_to_the_program_over_all_choices(nodes: int, jobs: int, pressure: bool) -> None:
    """Column generation stops at the value of the whole program."""
    relaxation = Relaxation(column_set(generate("ps-mix", nodes=nodes, jobs=jobs, seed=1, pressure=pressure)))
    prices, value = relaxation._program.linear_program(np.arange(len(relaxation.choices))).solve()
    assert prices is not None
    bound = relaxation.bound(relaxation.best_prices()).bound
    assert bound == pytest.approx(value, rel=1e-5)
    assert bound >= value * (1 - 1e-7)
    assert relaxation.bound(prices).bound == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_it_stops_close_to_the_value_in_every_family(family: str) -> None:
    relaxation = Relaxation(column_set(generate(family, nodes=8, jobs=14, seed=2)))
    _, value = relaxation._program.linear_program(np.arange(len(relaxation.choices))).solve()
    assert relaxation.bound(relaxation.best_prices()).bound == pytest.approx(value, rel=10 * LP_GAP)


def test_without_columns_the_bound_is_what_is_kept() -> None:
    for seed in range(0, 60, 3):
        instance, columns, _, _, _ = tiny(seed)
        none = columns.restricted([[False] * len(choices.columns) for choices in columns.jobs])
        relaxation = Relaxation(none)
        kept = sum(max(choices.kept, default=0.0) for choices in columns.jobs)
        bound = relaxation.bound(np.zeros(len(relaxation.fixed))).bound
        assert bound == pytest.approx(kept, rel=1e-9, abs=1e-12)
        keeping = solve(instance, method="keep-current").plan
        assert bound >= evaluate(instance, keeping).objective * (1 - 1e-9)
