"""Choices as arrays, what they take of the rows, and prices from samples of the jobs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from coplace.formulations.columns import column_set
from coplace.formulations.relaxation import Choices, Relaxation, Row, all_choices, choices_of, generation, sampling
from coplace.formulations.relaxation.choices import job_ranges
from coplace.instances import WORKER, Instance, parse_instance, to_document
from coplace.instances.generation import FAMILIES, generate
from tests.oracle.tiny import best_of_tiny, tiny_instance

SEEDS = range(60)
ARRAYS = (
    "starts", "job", "value", "kept", "gpu_type", "level", "span", "workers", "servers", "worker_profile", "ps_profile",
    "server_memory", "line",
)  # fmt: skip


def with_rules(instance: Instance) -> Instance:
    """The same with quotas of two tenants and a move budget."""
    document: dict[str, Any] = to_document(instance)
    tenants = sorted({job.tenant for job in instance.jobs})
    document["rules"] = {"quotas": {tenant: {"gpu": 9, "cpu": 64, "memory": "300Gi"} for tenant in tenants[:2]}}
    document["rules"]["move_budget"] = 1
    return parse_instance(document)


def plain_demand(relaxation: Relaxation, row: Row, k: int) -> float:
    """What choice *k* takes of *row*, as the docstring of Row says it, in plain numbers."""
    instance, choices = relaxation.instance, relaxation.choices
    job = instance.jobs[int(choices.job[k])]
    w, p = int(choices.workers[k]), int(choices.servers[k])
    profile = job.worker.profiles[int(choices.worker_profile[k])]
    worker = {"gpu": job.worker.gpu, "cpu": profile.cpu, "memory": profile.memory, "intensity": job.worker.intensity}
    server = {"gpu": 0, "cpu": 0, "memory": int(choices.server_memory[k]), "intensity": 0}
    if job.ps is not None:
        server |= {"cpu": job.ps.profiles[int(choices.ps_profile[k])].cpu, "intensity": job.ps.intensity}
    if row.kind == "moves":
        return -1.0 if choices.kept[k] and choices.jobs.counts_as_move[int(choices.job[k])] else 0.0
    assert row.resource is not None
    d, s = worker[row.resource], server[row.resource]
    if row.kind == "quota":
        return float(w * d + p * s) if job.tenant == row.tenant else 0.0
    if choices.level[k] > row.level or row.gpu_type not in (None, instance.gpu_types[int(choices.gpu_type[k])]):
        return 0.0
    if choices.span[k] == 1:
        return float((w * d + p * s) // row.size)
    return float(w * (d // row.size) + (p * (s // row.size) if row.gpu_type is None else 0))


@pytest.mark.parametrize("chunk", range(6))
def test_all_choices_are_those_of_the_columns(chunk: int) -> None:
    for seed in SEEDS[chunk::6]:
        instance = tiny_instance(seed)
        columns, choices = column_set(instance, counts="columns"), all_choices(instance)
        same = choices_of(columns)
        for name in ARRAYS:
            assert np.array_equal(getattr(choices, name), getattr(same, name)), (seed, name)
        for j, entry in enumerate(columns.jobs):
            assert choices.starts[j + 1] - choices.starts[j] == len(entry.columns) + len(entry.kept)
            assert choices.jobs.must_keep[j] == entry.must_keep
            assert choices.jobs.counts_as_move[j] == entry.counts_as_move
            kept = choices.of(j).stop - len(entry.kept)
            assert choices.kept[choices.of(j)].tolist() == [k >= kept for k in range(*choices.of(j).indices(10**9))]
            if entry.kept and entry.job.current is not None:
                assert choices.workers[kept] == entry.job.current.count(WORKER)


def cases() -> list[Relaxation]:
    tiny = [Relaxation(choices_of(column_set(tiny_instance(seed))), thresholds=True) for seed in range(20)]
    families = [
        Relaxation(all_choices(with_rules(generate(family, nodes=6, jobs=10, seed=3))), thresholds=True)
        for family in FAMILIES
    ]
    lines = [Relaxation(column_set(tiny_instance(seed), counts="lines", tolerance=0.01)) for seed in range(5)]
    return tiny + families + lines


def test_what_prices_charge_is_what_the_rows_say() -> None:
    """Look-up tables, the matrix of the program and plain numbers agree, and so do quotas, moves and pieces."""
    draw = np.random.default_rng(5)
    kinds = set()
    for relaxation in cases():
        kinds |= {(row.kind, row.size > 1 and row.resource) for row in relaxation.rows}
        every = np.arange(len(relaxation.choices))
        demand = relaxation._program.demands(every)
        for k in draw.permutation(every)[:40].tolist():
            assert demand[:, k].tolist() == [plain_demand(relaxation, row, k) for row in relaxation.rows]
        for _ in range(3):
            prices = draw.exponential(1e-3, len(relaxation.rows)) * (draw.random(len(relaxation.rows)) < 0.5)
            found = relaxation.bound(prices)
            expected = relaxation.choices.value - prices @ demand
            assert np.allclose(found.reduced, expected, rtol=1e-9, atol=1e-9 * (1 + float(prices.max())) * 1e3)
            best = np.where(relaxation.choices.jobs.must_keep, -np.inf, 0.0)
            np.maximum.at(best, relaxation.choices.job, found.reduced)
            assert np.array_equal(found.surplus, best)
            some = np.sort(draw.permutation(every)[: len(every) // 2])
            assert np.allclose(relaxation._program.pricing.some(prices, some), found.reduced[some])
    assert kinds == {
        ("pool", False), ("pool", "gpu"), ("pool", "intensity"), ("quota", False), ("moves", False),
    }  # fmt: skip


def test_jobs_and_choices_can_be_picked() -> None:
    choices = all_choices(generate("ps-mix", nodes=6, jobs=12, seed=1))
    some = np.array([1, 4, 5, 11])
    few = choices.of_jobs(some)
    for i, j in enumerate(some.tolist()):
        assert np.array_equal(few.value[few.of(i)], choices.value[choices.of(j)])
        assert (few.job[few.of(i)] == i).all()
    assert few.positions.tolist() == some.tolist()
    picked = np.arange(3, len(choices), 7)
    taken = choices.take(picked)
    assert np.array_equal(taken.value, choices.value[picked])
    for j in range(12):
        assert (taken.job[taken.of(j)] == j).all()


@pytest.mark.parametrize("most", [1, 5, 1000])
def test_ranges_of_jobs_hold_each_choice_once(most: int) -> None:
    starts = np.array([0, 0, 3, 3, 4, 9, 9])
    ranges = list(job_ranges(starts, most))
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 6
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
    assert all(starts[last] - starts[first] <= most or last - first == 1 for first, last in ranges)


# --- prices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", range(4))
def test_pieces_of_intensity_bound_every_plan_and_tighten(chunk: int) -> None:
    tighter = 0
    for seed in range(chunk * 25, chunk * 25 + 25):
        instance = tiny_instance(seed)
        choices, (best, _) = all_choices(instance), best_of_tiny(seed)
        bounds = []
        for thresholds in (True, False):
            relaxation = Relaxation(choices, thresholds=thresholds)
            bounds.append(relaxation.bound(relaxation.best_prices()).bound)
        assert bounds[0] >= best * (1 - 1e-12), instance.name
        assert bounds[0] <= bounds[1] * (1 + 1e-5)
        tighter += bounds[0] < bounds[1] * (1 - 1e-3)
    assert tighter


@pytest.fixture
def small_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coplace.formulations.relaxation.relaxation.MANY_CHOICES", 100)
    monkeypatch.setattr(sampling, "FIRST_SAMPLE", 20)
    monkeypatch.setattr(sampling, "SECOND_SAMPLE", 60)


@pytest.mark.parametrize("family", ["ps-mix", "cpu-bound", "big-gangs"])
@pytest.mark.usefixtures("small_samples")
def test_samples_of_jobs_find_nearly_the_best_prices(family: str) -> None:
    instance = generate(family, nodes=60, jobs=120, seed=2)
    relaxation = Relaxation(all_choices(instance), thresholds=False)
    best = relaxation.bound(relaxation._program.best_prices()).bound
    found = relaxation.bound(relaxation.best_prices()).bound
    assert best * (1 - 1e-6) <= found <= best * 1.05


@pytest.mark.usefixtures("small_samples")
def test_samples_cope_with_pinned_jobs_quotas_and_a_budget() -> None:
    instance = with_rules(generate("saturated", nodes=20, jobs=80, seed=4))
    document: dict[str, Any] = to_document(instance)
    for job in document["jobs"]:
        job["pinned"] = "current" in job
    relaxation = Relaxation(all_choices(parse_instance(document)), thresholds=False)
    assert relaxation.choices.jobs.must_keep.sum() > 10
    best = relaxation.bound(relaxation._program.best_prices()).bound
    assert relaxation.bound(relaxation.best_prices()).bound <= best * 1.1


def test_similar_classes_of_nodes_are_pooled() -> None:
    """What all nodes offer together stays, and no mean is over nodes that offer different things."""
    draw = np.random.default_rng(3)
    kind = np.arange(300) % 3
    supply = draw.uniform(1, 2, (3, 300, 2))
    supply[kind, np.arange(300)] = 0.0  # each kind offers nothing in a row of its own
    size = draw.integers(1, 9, 300).astype(float)
    mean, total = sampling.pooled(supply, size, 20)
    assert 20 <= len(total) <= 23
    assert total.sum() == size.sum()
    assert np.allclose(np.einsum("rcl,c->rl", mean, total), np.einsum("rcl,c->rl", supply, size))
    assert ((mean == 0).sum(axis=0) == 1).all()
    same, sizes = sampling.pooled(supply, size, 300)
    assert same is supply
    assert sizes is size


def test_a_sample_is_spread_over_the_kinds_of_jobs() -> None:
    choices = all_choices(generate("ps-mix", nodes=20, jobs=200, seed=0))
    some = sampling.sample(choices, 50)
    assert len(set(some.tolist())) == 50
    assert np.array_equal(some, sampling.sample(choices, 50))
    gpus = choices.jobs.worker_gpu
    for size in np.unique(gpus):
        assert abs((gpus[some] == size).sum() - (gpus == size).sum() / 4) <= 2
    assert sampling.sample(choices, 500).tolist() == list(range(200))


def test_prices_of_another_round_are_a_start() -> None:
    """They are found by what they are the prices of, and take no more rounds than starting afresh."""
    before = generate("ps-mix", nodes=16, jobs=30, seed=1)
    after = parse_instance({**to_document(before), "jobs": to_document(before)["jobs"][2:]})
    first, second = (Relaxation(all_choices(instance)) for instance in (before, after))
    prices = first.best_prices()
    known = first.priced(prices)
    assert np.array_equal(first.prices_at(known), np.maximum(prices, 0.0))
    assert known == tuple(sorted(known, key=lambda priced: priced.row.order()))
    fresh = second.bound(second.best_prices()).bound
    assert second.bound(second.best_prices(warm=known)).bound == pytest.approx(fresh, rel=10 * generation.LP_GAP)


def test_prices_of_tight_pressure_bound_no_less_truly() -> None:
    instance = generate("ps-mix", nodes=16, jobs=30, seed=1)
    relaxation = Relaxation(all_choices(instance))
    loose, tight = relaxation.best_prices(), relaxation.best_prices(tighten=0.8)
    assert relaxation.bound(tight).bound > relaxation.bound(loose).bound
    intensity = [i for i, row in enumerate(relaxation.rows) if row.resource == "intensity"]
    assert (tight @ relaxation.supply)[: relaxation.levels].max() > 0
    assert tight[intensity].sum() > loose[intensity].sum()


def test_an_instance_without_choices_has_prices_too() -> None:
    for document in (
        {"version": "coplace/v1", "nodes": [], "jobs": []},
        {"version": "coplace/v1", "nodes": [{"name": "n", "gpu_type": "a100", "gpu": 1, "cpu": 1, "memory": "1Gi"}]},
    ):
        choices: Choices = all_choices(parse_instance({"jobs": [], **document}))
        relaxation = Relaxation(choices)
        assert relaxation.bound(relaxation.best_prices()).bound == 0
