"""From classes to plans: slots and cuts are true of every packing, and what the driver says is true of every plan."""

from __future__ import annotations

import itertools
import random
from functools import cache

import numpy as np
import pytest

from coplace.formulations.classes import Amounts, Places
from coplace.formulations.columns import column_set
from coplace.formulations.evaluate import evaluate
from coplace.formulations.keep import keep_current
from coplace.formulations.mip.by_class import ClassMip
from coplace.formulations.scoring import Scoring
from coplace.formulations.slots import slots
from coplace.instances import Instance
from coplace.instances.generation import generate
from coplace.solver import check
from coplace.solver.classes.cutting import Cutting
from coplace.solver.classes.driver import solve_by_class
from coplace.solver.classes.packing import Packing
from coplace.solver.classes.patterns import Knapsack, violated
from coplace.solver.exact.task import Bounded, Ended, Found, Task
from tests.building import instance, node, ring_job
from tests.oracle.enumerate import best_plan
from tests.oracle.tiny import best_of_tiny, tiny_instance

ROOM: Amounts = (4, 16_000, 64_000, 25)


def pieces(draw: random.Random, number: int) -> list[Amounts]:
    return [
        (draw.choice((0, 1, 1, 2, 3)), draw.choice((1_000, 3_500, 6_000)), 2_000, draw.choice((2, 4, 5, 9, 12, 19)))
        for _ in range(number)
    ]


def fits(chosen: tuple[Amounts, ...]) -> bool:
    return all(sum(piece[r] for piece in chosen) <= ROOM[r] for r in range(4))


@pytest.mark.parametrize("seed", range(30))
def test_whatever_fits_on_a_node_takes_no_more_slots_than_it_has(seed: int) -> None:
    draw = random.Random(seed)
    known = [draw.randint(1, 30) for _ in range(6)]
    room = draw.randint(8, 30)
    found = slots(known, room)
    for count in range(1, 6):
        for chosen in itertools.combinations_with_replacement(sorted({a for a in known if a <= room}), count):
            if sum(chosen) <= room:
                assert all(sum(slot.of(amount) for amount in chosen) <= slot.on_node for slot in found)


@pytest.mark.parametrize("seed", range(30))
def test_no_node_holds_more_than_a_cut_says(seed: int) -> None:
    """Of the pieces that the cut was made for, and of others."""
    draw = random.Random(seed)
    some, others = pieces(draw, 4), pieces(draw, 4)
    cut = violated((0, 0), {piece: draw.choice((1.0, 2.0, 2.5)) for piece in some}, ROOM, draw.choice((0.5, 1.0, 1.5)))
    if cut is None:
        return
    for count in range(1, 6):
        for chosen in itertools.combinations_with_replacement(sorted({*some, *others}), count):
            if fits(chosen):
                assert sum(cut.of(piece) for piece in chosen) <= cut.on_node


@pytest.mark.parametrize("seed", range(30))
def test_the_knapsack_finds_the_heaviest_pattern(seed: int) -> None:
    draw = random.Random(seed)
    kinds = list(dict.fromkeys(pieces(draw, 3)))
    weights = np.array([draw.uniform(0, 1) for _ in kinds])
    weight, pattern = Knapsack(kinds, ROOM).best(weights)
    assert weight == pytest.approx(float(weights @ pattern))
    counts = itertools.product(*(range(13) for _ in kinds))
    inside = (
        c for c in counts if all(sum(n * k[r] for n, k in zip(c, kinds, strict=True)) <= ROOM[r] for r in (0, 1, 3))
    )
    assert weight == pytest.approx(max(float(weights @ np.array(c)) for c in inside))


@pytest.mark.parametrize("seed", range(4))
def test_both_packings_give_plans_that_break_nothing(seed: int) -> None:
    found = generate("ps-mix", nodes=4, jobs=5, seed=seed, pressure=seed % 2 == 1)
    places = Places(column_set(found))
    solution = ClassMip(places).solve(time_limit=20, gap=0.05, hint=keep_current(found))
    assert solution.counts is not None
    packed = Packing(places, solution.counts).solve(time_limit=5)
    by_patterns, left = Cutting(places, solution.counts, 1.0).solve()
    for plan, missing in ((packed.plan, packed.left), (by_patterns, left)):
        assert check(found, plan).feasible
        have = {job.name for job in found.jobs if job.name in plan}
        wanted = {
            found.jobs[j].name
            for j, choice in enumerate(solution.counts.jobs)
            if choice.column is not None or choice.kept is not None
        }
        assert have == wanted - {found.jobs[j].name for j in missing}


def test_a_packing_says_when_there_is_none() -> None:
    """Two nodes of 4 GPUs: 3 + 3 + 2 GPUs fit as a sum and not as pieces; without slots the counts say they do."""
    jobs = [
        ring_job(f"j{j}", worker={"gpu": gpu, "cpu": 1, "memory": "1Gi", "max": 1}) for j, gpu in enumerate((3, 3, 2))
    ]
    found = instance([node("n0"), node("n1")], jobs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coplace.formulations.mip.by_class.constraints.Constraints.slots", lambda *_: None)
        places = Places(column_set(found))
        solution = ClassMip(places).solve(time_limit=20, gap=0)
    assert solution.counts is not None
    assert all(choice.column is not None for choice in solution.counts.jobs)
    packed = Packing(places, solution.counts).solve(time_limit=20)
    assert packed.complete
    assert len(packed.left) == 1


# --- the driver -----------------------------------------------------------------------------------------------------


@cache
def tiny(seed: int) -> tuple[Instance, float]:
    found = tiny_instance(seed)
    return found, best_of_tiny(seed)[0]


def solved(found: Instance, backend: str, seconds: float, gap: float) -> tuple[Ended, float, float]:
    """The end, the objective of the best plan and the last bound; every plan is checked."""
    scoring = Scoring(found)
    kept = keep_current(found, scoring)
    best, bound = evaluate(found, kept, scoring).objective, float("inf")

    def say(event: object) -> None:
        nonlocal best, bound
        if isinstance(event, Found):
            report = check(found, event.plan, scoring)
            assert report.feasible
            best = report.objective
        elif isinstance(event, Bounded):
            bound = event.bound

    columns = column_set(found, scoring, counts="columns")
    ended = solve_by_class(Task(columns, backend, kept, best, time_limit=seconds, gap=gap), say)
    return ended, best, bound


@pytest.mark.parametrize("backend", ["highs", "cpsat"])
@pytest.mark.parametrize("chunk", range(4))
def test_the_driver_ends_at_the_optimum_of_tiny_instances(backend: str, chunk: int) -> None:
    for seed in range(chunk * 20, (chunk + 1) * 20):
        found, optimum = tiny(seed)
        ended, best, bound = solved(found, backend, seconds=30, gap=0)
        assert ended == Ended("done"), found.name
        assert best == pytest.approx(optimum, rel=1e-6, abs=1e-9), found.name
        assert optimum * (1 - 1e-9) <= bound <= optimum * (1 + 1e-6) + 1e-9, found.name


def test_plans_and_bounds_of_a_cluster_meet_within_percents() -> None:
    found = generate("ps-mix", nodes=8, jobs=14, seed=1)
    _, best, bound = solved(found, "highs", seconds=8, gap=0.01)
    assert best <= bound <= 1.1 * best


def test_equal_nodes_are_told_apart_where_counts_fail() -> None:
    """5 + 5 + 5 + 4 + 3 GiB fit twice 11 GiB as a sum, and not as pieces; cuts do not look at memory."""
    sizes = (5, 5, 5, 4, 3)
    jobs = [
        ring_job(f"j{j}", worker={"gpu": 0, "cpu": 1, "memory": f"{size}Gi", "max": 1}) for j, size in enumerate(sizes)
    ]
    found = instance([node("n0", memory="11Gi"), node("n1", memory="11Gi")], jobs)
    ended, best, bound = solved(found, "highs", seconds=20, gap=0)
    assert ended == Ended("done")
    assert best == pytest.approx(bound, rel=1e-6)
    assert best == pytest.approx(best_plan(found)[0], rel=1e-6)


def test_lines_are_refused() -> None:
    found = instance([node("n0")], [ring_job()])
    columns = column_set(found, counts="lines")
    ended = solve_by_class(Task(columns, "highs", keep_current(found), 0.0, time_limit=5, gap=0), lambda _: None)
    assert ended.why == "failure"
    with pytest.raises(ValueError, match="columns"):
        Places(columns)
