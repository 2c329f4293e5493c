"""Swaps of equal nodes keep as many running jobs as possible, and nothing is lost by them."""

import itertools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coplace.formulations.keep import keep_current
from coplace.formulations.scoring import Scoring
from coplace.instances import Instance, Plan
from coplace.instances.generation import FAMILIES, generate
from coplace.instances.plan import Allocation
from coplace.solver import check
from coplace.solver.assignment import assign
from coplace.solver.relabel import relabel
from tests.building import instance, node, ps_job, ring_job


def running(tasks: dict[str, dict[str, int]], **changes: Any) -> dict[str, Any]:
    return {"current": {"tasks": tasks}, "restart_seconds": 60} | changes


def swapped(plan: Plan, becomes: dict[str, str]) -> Plan:
    """*plan* with nodes renamed."""
    return Plan(
        allocations={
            job: Allocation(
                tasks={
                    role: {becomes.get(name, name): count for name, count in placed.items()}
                    for role, placed in allocation.tasks.items()
                },
                profiles=allocation.profiles,
            )
            for job, allocation in plan.allocations.items()
        }
    )


def shuffled(given: Instance, plan: Plan, rng: random.Random) -> Plan:
    """*plan* with open nodes that are alike in every field but their name shuffled; pinned jobs stay."""
    pinned = {name for job in given.jobs if job.pinned and job.current for name in job.current.nodes}
    alike: dict[str, list[str]] = {}
    for each in given.nodes:
        if not each.cordoned and each.available and each.name not in pinned:
            nameless = each.model_copy(update={"name": "x", "rack": None}).model_dump_json()
            alike.setdefault(nameless, []).append(each.name)
    becomes: dict[str, str] = {}
    for names in alike.values():
        becomes |= dict(zip(names, rng.sample(names, len(names)), strict=True))
    return swapped(plan, becomes)


def small(seed: int, several: bool) -> tuple[Instance, Plan]:
    """Five equal nodes and running jobs, on one node each unless *several*; and a plan that moves them about."""
    rng = random.Random(seed)
    names = [f"n{i}" for i in range(5)]
    free = dict.fromkeys(names, 4)
    jobs = []
    for i in range(7):
        open_names = [name for name in names if free[name]]
        chosen = rng.sample(open_names, min(len(open_names), rng.randint(1, 3 if several else 1)))
        if not chosen:
            break
        workers = {name: rng.randint(1, min(2, free[name])) for name in chosen}
        for name, count in workers.items():
            free[name] -= count
        seconds = rng.choice([0, 60, 600])
        jobs.append(ring_job(f"j{i}", **running({"worker": workers}, restart_seconds=seconds, remaining=1e5)))
        jobs[-1]["worker"] |= {"max": 8}
    given = instance([node(name) for name in names], jobs)
    plan = shuffled(given, given.current, rng)
    # Some jobs leave those they sit with now, as far as there is room.
    for name in rng.sample(sorted(plan.allocations), rng.randint(0, 3)):
        order = dict(zip(names, rng.sample(names, len(names)), strict=True))
        alone = swapped(Plan(allocations={name: plan[name]}), order)
        changed = Plan(allocations=plan.allocations | alone.allocations)
        plan = changed if check(given, changed).feasible else plan
    return given, plan


def best_swap(given: Instance, plan: Plan) -> tuple[float, int]:
    """Objective and moves of the best permutation of the nodes that moves no more jobs; by going through them."""
    scoring = Scoring(given)
    names = [each.name for each in given.nodes]
    most = len(check(given, plan, scoring).moved)
    reports = (
        check(given, swapped(plan, dict(zip(names, order, strict=True))), scoring)
        for order in itertools.permutations(names)
    )
    return max((report.objective, -len(report.moved)) for report in reports if len(report.moved) <= most)


@pytest.mark.parametrize("seed", range(12))
def test_jobs_on_one_node_are_kept_as_well_as_any_permutation_keeps_them(seed: int) -> None:
    given, plan = small(seed, several=False)
    report = check(given, relabel(Scoring(given), plan))
    objective, _ = best_swap(given, plan)
    assert report.objective == pytest.approx(objective, rel=1e-6)


def test_jobs_on_several_nodes_are_kept_nearly_as_well() -> None:
    """Of what the best permutation gains, summed; a single one may be missed."""
    gained = possible = 0.0
    for seed in range(12):
        given, plan = small(seed, several=True)
        before = check(given, plan).objective
        objective, _ = best_swap(given, plan)
        gained += check(given, relabel(Scoring(given), plan)).objective - before
        possible += objective - before
    assert possible > 0
    assert gained >= 0.95 * possible


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_shuffled_cluster_is_put_back_as_it_was(family: str) -> None:
    given = generate(family, nodes=40, jobs=80, seed=1)
    scoring = Scoring(given)
    plan = keep_current(given, scoring)
    mixed = shuffled(given, plan, random.Random(1))
    assert check(given, mixed, scoring).moved
    assert not check(given, relabel(scoring, mixed), scoring).moved


@given(seed=st.integers(0, 10**6), family=st.sampled_from(sorted(FAMILIES)))
def test_nothing_is_lost(seed: int, family: str) -> None:
    """Whatever is cordoned, lost, pinned, and however few moves are allowed."""
    rng = random.Random(seed)
    given = generate(family, nodes=12, jobs=24, seed=seed % 50)
    changes: list[dict[str, Any]] = [{}, {}, {}, {"cordoned": True}, {"lost": "all"}]
    nodes = tuple(each.model_copy(update=rng.choice(changes)) for each in given.nodes)
    jobs = tuple(job.model_copy(update={"pinned": job.running and rng.random() < 0.2}) for job in given.jobs)
    given = given.model_copy(update={"nodes": nodes, "jobs": jobs})
    scoring = Scoring(given)
    mixed = shuffled(given, keep_current(given, scoring), rng)
    before = check(given, mixed, scoring)
    budget = given.rules.model_copy(update={"move_budget": len(before.moved)})
    given = given.model_copy(update={"rules": budget})
    scoring = Scoring(given)
    assert check(given, mixed, scoring).feasible
    after = check(given, relabel(scoring, mixed), scoring)
    assert after.feasible
    assert after.objective >= before.objective
    assert len(after.moved) <= len(before.moved)


def test_a_plan_that_keeps_all_is_returned_as_it_is() -> None:
    given = generate("ps-mix", nodes=20, jobs=40, seed=2)
    scoring = Scoring(given)
    plan = keep_current(given, scoring)
    assert relabel(scoring, plan) is plan


def test_the_job_that_loses_more_is_kept() -> None:
    """Both sit alike, and only one can be where it was."""
    jobs = [
        ps_job("short", **running({"worker": {"a": 2}, "ps": {"a": 1}}, remaining=1e4)),
        ps_job("long", **running({"worker": {"a": 2}, "ps": {"a": 1}}, remaining=1e4, restart_seconds=600)),
    ]
    given = instance([node("a"), node("b")], jobs)
    one, two = given.job["short"].current, given.job["long"].current
    assert one is not None
    assert two is not None
    plan = Plan(allocations={"short": one, "long": swapped(Plan(allocations={"long": two}), {"a": "b"})["long"]})
    after = relabel(Scoring(given), plan)
    assert after["long"].same_as(two)
    assert not after["short"].same_as(one)


def test_labels_that_no_job_selects_do_not_tell_nodes_apart() -> None:
    """Kubernetes labels every node with its own name."""
    named = [node(name, labels={"hostname": name, "zone": zone}) for name, zone in (("a", "x"), ("b", "x"), ("c", "y"))]
    job = ps_job("j", **running({"worker": {"a": 2}, "ps": {"a": 1}}))
    for selector, wanted in (({}, True), ({"zone": "x"}, True), ({"hostname": "b"}, False)):
        other = ring_job("other", node_selector=selector)
        given = instance(named, [job, other])
        assert given.job["j"].current is not None
        plan = swapped(Plan(allocations={"j": given.job["j"].current}), {"a": "b"})
        assert (relabel(Scoring(given), plan)["j"].nodes == ("a",)) is wanted


@pytest.mark.parametrize("ends", [1, 3, 8, 20, 400])
def test_both_libraries_find_the_same_total(ends: int) -> None:
    rng = random.Random(ends)
    weights = {(rng.randrange(ends), rng.randrange(ends)): rng.randint(1, 50) for _ in range(4 * ends)}
    totals = set()
    for library in ("networkx", "ortools", None):
        matched = assign(weights, library)  # type: ignore[arg-type]
        assert len(set(matched.values())) == len(matched)
        totals.add(sum(weights[pair] for pair in matched.items()))
    assert len(totals) == 1


def test_without_pairs_there_is_nothing_to_assign() -> None:
    assert assign({}) == {}
