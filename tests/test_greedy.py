"""The greedy method starts whatever fits and gains, whatever the scales of weights, counts and clusters."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import numpy as np
import pytest

from coplace.formulations.scoring import Scoring
from coplace.instances import Instance
from coplace.instances.generation import FAMILIES, generate
from coplace.solver import solve
from coplace.solver.counts import MOST_OPTIONS, count_ranges, thinned
from coplace.solver.greedy import greedy
from coplace.solver.options import Options, OptionTables
from coplace.solver.packing import Shortage
from coplace.solver.pending import pending_jobs
from coplace.solver.smallest import SmallestShapes
from coplace.solver.state import State
from tests.building import instance, node, ps_job, ring_job

ASYNC = {"form": "ps-async", "batch": 32, "types": {"a100": {"a": 0.003, "b": 0.01, "c": 0.01}}}


def table(*points: tuple[int, int, float]) -> dict[str, Any]:
    rows = [{"gpu_type": "a100", "workers": w, "servers": p, "speed": v} for w, p, v in points]
    return {"form": "table", "points": rows}


def shape_of(problem: Instance, job: str = "j", **options: Any) -> tuple[int, int]:
    plan = solve(problem, method="greedy", **options).plan
    return (plan[job].workers, plan[job].servers) if job in plan else (0, 0)


# --- nothing that fits is left waiting ------------------------------------------------------------------------------


def test_a_job_of_which_only_few_shapes_fit_is_started() -> None:
    """2 workers and 1 server fit; the steepest are larger, and the count fell by one at a time until patience ended."""
    job = ps_job(
        worker={"gpu": 1, "cpu": 1, "max": 8}, ps={"cpu": 6, "max": 1}, speed=ASYNC,
    )  # fmt: skip
    assert shape_of(instance([node(gpu=8, cpu=8)], [job])) == (2, 1)


def test_a_quota_below_the_steepest_shape_does_not_keep_a_job_waiting() -> None:
    """A table rises steadily to 16 workers, of which the quota allows 2."""
    job = ring_job(
        architecture="ps", worker={"gpu": 1, "cpu": 1, "max": 16}, ps={"cpu": 1},
        speed=table((1, 1, 100.0), (16, 1, 1610.0)),
    )  # fmt: skip
    nodes = [node(f"n{i}", gpu=8) for i in range(4)]
    assert shape_of(instance(nodes, [job], rules={"quotas": {"default": {"gpu": 2}}})) == (2, 1)


def test_the_smallest_shape_is_tried_when_every_larger_one_fails() -> None:
    """By the sums of free GPUs and CPU 8 workers fit, but the CPU lies on another type: 8, 7, … 4 fail one by one."""
    far = node("far", gpu_type="k80", gpu=8, cpu=64)
    near = node("near", gpu=8, cpu=2, memory="16Gi")
    job = ring_job(
        architecture="ps", worker={"gpu": 1, "cpu": 1, "max": 8}, ps={"cpu": 0},
        speed=table(*((w, 1, 100.0 * w**1.2) for w in range(1, 9))),
    )  # fmt: skip
    assert shape_of(instance([near, far], [job]))[0] >= 1


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(4))
def test_no_job_waits_for_the_search(family: str, seed: int) -> None:
    """A reason ``search`` would say that the smallest shape of the job fits as things stand, and gains."""
    result = solve(generate(family, nodes=16, jobs=40, seed=seed), method="greedy")
    assert result.reason == "finished"
    assert [p for p in result.pending if p.rule == "search"] == []


def test_a_step_that_gains_nothing_rules_out_only_shapes_that_are_worth_no_more() -> None:
    """3 workers gain nothing over what runs, after the restart; 10 do, and were ruled out with them."""
    speeds = table((1, 0, 100.0), (2, 0, 101.0), (3, 0, 125.0), (4, 0, 126.0), (10, 0, 2000.0))
    job = ring_job(worker={"gpu": 1, "cpu": 1, "max": 10}, speed=speeds)
    state = State(Scoring(instance([node(gpu=16)], [job])))
    options = OptionTables(state).options(0)
    assert options is not None
    three, ten = (int(np.flatnonzero(options.workers == w)[0]) for w in (3, 10))
    gone = options.as_hopeless(three, "gain")
    assert gone[three]
    assert not gone[ten]
    assert options.as_hopeless(three, Shortage.WORKERS)[ten]  # room is another matter


def test_what_a_quota_refuses_on_one_type_it_refuses_on_all() -> None:
    ring = {"a": 0.001, "b": 0.01, "transfer_inter": 0.02}
    job = ring_job(speed={"form": "allreduce", "batch": 128, "types": {"a100": ring, "k80": ring}})
    state = State(Scoring(instance([node(), node("k", gpu_type="k80")], [job])))
    options = OptionTables(state).options(0)
    assert options is not None
    tried = int(np.flatnonzero((options.workers == 2) & (options.gpu_type == 0))[0])
    gone = options.as_hopeless(tried, Shortage.QUOTA)
    assert (gone == (options.workers >= 2)).all()
    assert set(options.gpu_type[options.as_hopeless(tried, Shortage.WORKERS)].tolist()) == {0}


# --- scales ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heavy", [1.0, 1e6, 1e13])
def test_a_light_job_beside_a_heavy_one_is_started(heavy: float) -> None:
    """Its gain was held against the whole objective, of which it is 1e-13, with most GPUs idle."""
    nodes = [node(f"n{i}", gpu=8) for i in range(10)]
    problem = instance(nodes, [ring_job("heavy", weight=heavy), ring_job("light")])
    assert {"heavy", "light"} == set(solve(problem, method="greedy").plan.allocations)


@pytest.mark.parametrize("weight", [1e-13, 1e-6, 1e13])
def test_the_plan_does_not_depend_on_the_unit_of_weights(weight: float) -> None:
    """An absolute tolerance of 1e-12 made jobs of weight 1e-13 worth nothing."""
    problem = generate("ps-mix", nodes=8, jobs=16, seed=3)
    scaled = problem.model_copy(
        update={"jobs": tuple(job.model_copy(update={"weight": job.weight * weight}) for job in problem.jobs)}
    )
    plan = solve(problem, method="greedy").plan
    assert len(plan) > 4
    assert {name: a.tasks for name, a in solve(scaled, method="greedy").plan.allocations.items()} == {
        name: a.tasks for name, a in plan.allocations.items()
    }


# --- many counts ----------------------------------------------------------------------------------------------------


def test_counts_beyond_what_the_cluster_holds_cost_nothing() -> None:
    """10,000 workers × 1,000 servers on a node of 4 GPUs took gigabytes; a table of that size more."""
    many = {"worker": {"gpu": 1, "cpu": 1, "max": 10_000}, "ps": {"cpu": 1, "max": 1_000}}
    jobs = [
        ps_job("stated", **many),
        ps_job("measured", **many, speed=table((1, 1, 10.0), (10_000, 1, 1e5), (1, 1_000, 1.0), (10_000, 1_000, 1e4))),
    ]
    problem = instance([node()], jobs)
    tracemalloc.start()
    result = solve(problem, method="greedy")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(result.plan) >= 1
    assert result.pending == () or all(p.rule != "search" for p in result.pending)
    assert peak < 100e6


def test_options_are_thinned_and_keep_what_matters() -> None:
    few = thinned(range(3, 5_001), 40, besides={777, 9_999})
    assert {3, 4, 5, 777, 5_000} <= set(few.tolist())
    assert 9_999 not in few
    assert len(few) < 50
    assert thinned(range(2, 8), 40).tolist() == [2, 3, 4, 5, 6, 7]
    job = instance([node()], [ps_job(speed=table((1, 1, 1.0), (300, 41, 9.0)))]).jobs[0]
    workers, servers = count_ranges(job, range(1, 513), range(1, 65), others=3)
    assert len(workers) * len(servers) * 3 < 1.3 * MOST_OPTIONS
    assert {1, 300, 512} <= set(workers.tolist())
    assert {1, 41, 64} <= set(servers.tolist())


def test_a_time_limit_in_the_middle_leaves_what_was_placed_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """The options of all jobs were built before the first was started: a limit that fell there left an empty plan."""
    wide = {"worker": {"gpu": 1, "cpu": 1, "max": 512}, "ps": {"cpu": 1, "max": 64}}
    problem = instance(
        [node(f"n{i}", gpu=8, cpu=96, memory="512Gi") for i in range(64)], [ps_job(f"j{i}", **wide) for i in range(300)]
    )
    state = State(Scoring(problem))
    built = []
    build = OptionTables.options

    def counted(tables: OptionTables, j: int) -> Options | None:
        built.append(j)
        return build(tables, j)

    monkeypatch.setattr(OptionTables, "options", counted)
    assert not greedy(state, lambda: len(built) > 20)
    assert state.objective > 0


# --- clusters -------------------------------------------------------------------------------------------------------


def test_a_cluster_without_nodes_has_an_empty_plan() -> None:
    """The arrays of its nodes could not be shaped."""
    assert solve(instance([], [])).objective == 0
    problem = instance([node()], [ring_job(), ps_job("p")])
    result = solve(problem.model_copy(update={"nodes": ()}), method="greedy")
    assert len(result.plan) == 0
    assert [(p.rule, p.reason) for p in result.pending] == [("capacity", "the cluster has no node")] * 2


def test_selectors_are_looked_up_and_not_compared_node_by_node() -> None:
    """Thousands of selectors of which each names a node: this took a comparison per selector and node."""
    nodes = [node(f"n{i}", labels={"host": f"n{i}", "zone": str(i % 3)}) for i in range(1_500)]
    jobs = [ring_job(f"j{i}", node_selector={"host": f"n{i}", "zone": str(i % 3)}) for i in range(1_500)]
    jobs.append(ring_job("nowhere", node_selector={"host": "n1", "zone": "2"}))
    problem = instance(nodes, jobs)
    arrays = Scoring(problem).nodes
    started = time.process_time()
    found = [arrays.selected(job).tolist() for job in problem.jobs]
    assert time.process_time() - started < 1.0
    assert found == [[i] for i in range(1_500)] + [[]]
    assert arrays.limits(problem.jobs[-1])[0].nodes == 0
    assert arrays.limits(problem.jobs[0])[0].nodes == 1


def test_what_the_open_nodes_hold_is_counted_node_by_node() -> None:
    nodes = [node("a", cpu=3), node("b", lost={"gpu": 3}), node("c", cordoned=True), node("d", lost="all")]
    problem = instance(nodes, [ring_job()])
    arrays = Scoring(problem).nodes
    assert arrays.most_tasks(problem.jobs[0], 0, (1, 1000, 0)) == 3 + 1
    assert arrays.most_tasks(problem.jobs[0], None, (2, 0, 0)) == 2


def test_hundreds_of_levels_and_thousands_of_types_do_not_overflow() -> None:
    """Levels were kept in 8 bits."""
    from coplace.formulations.candidates import candidates

    job = ring_job(
        worker={"gpu": 1, "cpu": 1, "intensity": 290},
        speed={"form": "allreduce", "batch": 128, "types": {"a100": {"a": 0.001}}, "interference": {"slope": 1}},
    )
    levels = [(i + 1) / 1000 for i in range(300)]
    found = candidates(instance([node(pressure_capacity=1000)], [job], pressure_levels=levels))
    assert len(found)
    assert found.level.min() == 289
    assert found.level.max() == 299
    assert np.iinfo(found.gpu_type.dtype).max > 40_000


# --- the smallest shapes --------------------------------------------------------------------------------------------


def test_smallest_shapes_leave_out_what_is_larger_in_every_respect() -> None:
    model = {"model": "8Gi", "copies": 1.0, "base": "1Gi"}
    job = ps_job(
        worker={"min": 2, "max": 4, "profiles": [{"cpu": 2, "memory": "4Gi"}, {"cpu": 1, "memory": "8Gi"},
                                                 {"cpu": 3, "memory": "8Gi"}]},
        ps={"min": 1, "max": 3, "memory_model": model, "profiles": [{"cpu": 1, "memory": "5Gi"}]},
    )  # fmt: skip
    state = State(Scoring(instance([node()], [job])))
    found = {shape[1:] for shape in SmallestShapes(state).of(0)}
    # 9 GiB at one server, 5 GiB at two, and no less at three
    assert found == {(2, 1, 0, 0), (2, 1, 1, 0), (2, 2, 0, 0), (2, 2, 1, 0)}


def test_smallest_shapes_of_a_table_start_where_it_does_on_each_type() -> None:
    points = [("a100", 4, 2, 9.0), ("k80", 2, 1, 5.0), ("k80", 2, 3, 6.0)]
    speed = {
        "form": "table",
        "points": [dict(zip(("gpu_type", "workers", "servers", "speed"), p, strict=True)) for p in points],
    }
    job = ps_job(worker={"cpu": 1, "max": 8}, ps={"cpu": 1, "max": 4}, speed=speed)
    state = State(Scoring(instance([node(), node("k", gpu_type="k80")], [job])))
    assert [shape[:3] for shape in SmallestShapes(state).of(0)] == [(0, 4, 2), (1, 2, 1)]


# --- reasons --------------------------------------------------------------------------------------------------------


def test_reasons_for_very_many_jobs_come_at_once() -> None:
    """20,000 jobs on 2,000 nodes were looked at job by job and node by node, past every time limit."""
    problem = generate("cpu-bound", nodes=200, jobs=4_000, seed=1)
    scoring = Scoring(problem)
    from coplace.formulations.keep import keep_current

    plan = keep_current(problem, scoring)
    started = time.process_time()
    assert len(pending_jobs(scoring, plan)) == len(problem.jobs) - len(plan)
    assert time.process_time() - started < 3.0


def test_amounts_free_on_cordoned_nodes_are_not_promised() -> None:
    problem = instance([node(), node("c", cordoned=True)], [ring_job(worker={"gpu": 1, "cpu": 1, "min": 5, "max": 5})])
    (pending,) = solve(problem, method="greedy").pending
    assert pending.reason == "its workers need 5 GPUs on a100 nodes, 4 GPUs free on open nodes"


def test_a_job_that_is_worth_nothing_says_so() -> None:
    scoring = Scoring(instance([node()], [ring_job()]))
    scoring.weights[0] = 0.0
    from coplace.instances import Plan

    (pending,) = pending_jobs(scoring, Plan())
    assert (pending.rule, pending.reason) == (
        "value", "running it is worth 0 for the goal throughput, so that nothing is gained",
    )  # fmt: skip


def test_a_job_of_unknown_length_runs_for_the_goal_makespan() -> None:
    """It had weight 0 until it had run, and so was never started."""
    unknown = ring_job("unknown") | {"remaining": None}
    result = solve(instance([node("n"), node("m")], [unknown, ring_job("known")], goal="makespan"), method="greedy")
    assert set(result.plan.allocations) == {"unknown", "known"}
