"""Explanations: the right smallest change of each kind on tiny clusters, and that every change that is named holds."""

from __future__ import annotations

from typing import Any

import pytest

import coplace
from coplace.formulations.scoring import Scoring
from coplace.instances import InputError, Instance, parse_instance
from coplace.instances.generation import generate
from coplace.instances.plan import Plan
from coplace.instances.writing import to_document
from coplace.solver import solve
from coplace.solver.check import check
from coplace.solver.explain import KINDS, Cluster, Counterfactual, RunningJob, WaitingJob, explain
from coplace.solver.explain.start import start
from coplace.solver.packing import Packer
from coplace.solver.state import State
from tests.building import instance, node, ps_job, ring_job

RING = {"a": 0.001, "b": 0.01, "transfer_intra": 0.002, "transfer_inter": 0.02}
PAIR = {"gpu": 1, "cpu": 2, "memory": "8Gi", "min": 2, "max": 4}
WHOLE = {"gpu": 4, "cpu": 2, "memory": "8Gi"}
SHARP = {"form": "allreduce", "batch": 128, "types": {"a100": {"a": 0.001}}, "interference": {"slope": 50}}
CALM = {"gpu": 1, "cpu": 1, "intensity": 40}
TWO_TYPES = {"form": "allreduce", "batch": 128, "types": {"a100": RING, "v100": RING}}
SEVEN = {"form": "table", "points": [{"gpu_type": "a100", "workers": 3, "servers": 1, "speed": 5}]}


def runs(**jobs: dict[str, int]) -> Plan:
    """A plan of workers by node."""
    return Plan.model_validate({"allocations": {name: {"tasks": {"worker": on}} for name, on in jobs.items()}})


def small(name: str, **changes: Any) -> dict[str, Any]:
    """A job of one worker with one GPU."""
    return ring_job(name, worker={"gpu": 1, "cpu": 2, "memory": "8Gi", "max": 1}, **changes)


def running(name: str, on: str) -> dict[str, Any]:
    return small(name, current={"tasks": {"worker": {on: 1}}}, restart_seconds=0.0)


CASES: dict[str, tuple[Instance, Plan, str, str]] = {
    "nothing": (instance([node()], [ring_job()]), Plan(), "nothing", "nothing: it fits and gains"),
    "selector": (
        instance([node()], [ring_job(node_selector={"disk": "ssd"})]), Plan(),
        "selector", "no node selector disk=ssd",
    ),
    "one label of two": (
        instance([node(labels={"zone": "a"})], [ring_job(node_selector={"disk": "ssd", "zone": "a"})]), Plan(),
        "selector", "a node selector without disk=ssd",
    ),
    "GPU type": (
        instance([node(), node("v", gpu_type="v100", used={"gpu": 4})],
                 [ring_job(speed=TWO_TYPES, gpu_types=["v100"])]), Plan(),
        "gpu-type", "a100 as a GPU type that it may use",
    ),
    "counts": (
        instance([node()], [ps_job(speed=SEVEN, worker={"max": 2, "cpu": 1})]), Plan(),
        "counts", "3 workers and 1 server among its counts",
    ),
    "weight": (
        instance([node()], [ring_job("heavy", speed=SHARP, worker=CALM, weight=100.0),
                            ring_job(speed=SHARP, worker=CALM)], pressure_levels=[0.4, 0.8]),
        runs(heavy={"n": 1}), "weight", "instead of 1",
    ),
    "tasks per node": (
        instance([node()], [ring_job(worker=PAIR)], rules={"max_tasks_per_node": 1}), Plan(),
        "tasks-per-node", "up to 2 tasks of a job on a node instead of 1",
    ),
    "move": (
        instance([node("n"), node("m")], [small("a"), small("b"), ring_job(worker=WHOLE)]),
        runs(a={"n": 1}, b={"m": 1}), "move", "job a moves to m",
    ),
    "move budget": (
        instance([node("n"), node("m")], [running("a", "n"), running("b", "m"), ring_job(worker=WHOLE)],
                 rules={"move_budget": 0}),
        runs(a={"n": 1}, b={"m": 1}), "move-budget", "a move budget of 1 instead of 0, and job a moves to m",
    ),
    "CPU of a worker": (
        instance([node(used={"cpu": 31})], [ring_job(worker={"cpu": 2})]), Plan(),
        "profile", "a request of 1 instead of 2 CPU for each worker, if that is no slower",
    ),
    "memory of a worker": (
        instance([node(used={"memory": "124Gi"})], [ring_job(worker={"cpu": 1, "memory": "8Gi"})]), Plan(),
        "profile", "a request of 4Gi instead of 8Gi memory for each worker",
    ),
    "memory of a server": (
        instance([node(memory="16Gi")], [ps_job(ps={"cpu": 1, "memory": "20Gi"})]), Plan(),
        "profile", "instead of 20Gi memory for each server",
    ),
    "minimum": (
        instance([node(used={"gpu": 1})], [ring_job(worker=PAIR | {"min": 4})]), Plan(),
        "minimum", "a minimum of 3 workers instead of 4",
    ),
    "minimum of servers": (
        instance([node(memory="26Gi")], [ps_job(ps={"cpu": 1, "memory": "8Gi", "min": 3, "max": 3})]), Plan(),
        "minimum", "a minimum of 2 servers instead of 3",
    ),
    "quota": (
        instance([node()], [ring_job(worker=PAIR)], rules={"quotas": {"default": {"gpu": 1}}}), Plan(),
        "quota", "a quota of tenant default of 2 GPUs instead of 1 GPU",
    ),
    "cordon": (
        instance([node(cordoned=True), node("m", used={"gpu": 4})], [ring_job()]), Plan(),
        "uncordon", "uncordon node n",
    ),
    "capacity": (
        instance([node(used={"gpu": 3}), node("m", used={"gpu": 4})], [ring_job(worker=PAIR)]), Plan(),
        "capacity", "1 GPU more on node n",
    ),
    "capacity of a node that lost more than it has free": (
        instance([node(used={"gpu": 2}, lost={"gpu": 3})], [ring_job()]), Plan(),
        "capacity", "1 GPU more on node n",
    ),
    "pressure capacity": (
        instance([node()], [ring_job(worker={"gpu": 1, "cpu": 1, "intensity": 60})], pressure_levels=[0.5]), Plan(),
        "capacity", "20 pressure capacity more on node n",
    ),
    "capacity for a server": (
        instance([node(memory="16Gi")], [ps_job(ps={"cpu": 1, "memory": "20Gi"})]), Plan(),
        "capacity", "memory more on node n",
    ),
    "shrink": (
        instance([node()], [ring_job("other"), ring_job(worker=PAIR)]), runs(other={"n": 4}),
        "shrink", "job other shrinks from 4 workers to 2",
    ),
    "stop": (
        instance([node()], [small("a"), ring_job(worker=WHOLE)]), runs(a={"n": 1}),
        "stop", "job a ends or is withdrawn",
    ),
    "node": (
        instance([node(used={"gpu": 4})], [ring_job(worker=PAIR)]), Plan(),
        "node", "1 more node like n",
    ),
    "nodes": (
        instance([node(used={"gpu": 3})], [ring_job(worker=PAIR | {"min": 10, "max": 10})]), Plan(),
        "node", "3 more nodes like n",
    ),
    "quota and capacity": (
        instance([node(used={"gpu": 3})], [ring_job(worker=PAIR)], rules={"quotas": {"default": {"gpu": 1}}}
                 | {"max_tasks_per_node": 2}), Plan(),
        "minimum", "a minimum of 1 worker instead of 2",
    ),
    "quota, then capacity": (
        instance([node(used={"gpu": 3})], [ring_job(worker={"gpu": 2, "cpu": 2, "memory": "8Gi"})],
                 rules={"quotas": {"default": {"gpu": 1}}}), Plan(),
        "quota+capacity", "a quota of tenant default of 2 GPUs instead of 1 GPU, and 1 GPU more on node n",
    ),
}  # fmt: skip


def explained(problem: Instance, plan: Plan, job: str = "j") -> WaitingJob:
    found = explain(problem, plan, job)
    assert isinstance(found, WaitingJob)
    return found


def of_kind(waiting: WaitingJob, kind: str) -> Counterfactual:
    (found,) = (found for found in waiting.counterfactuals if found.kind == kind)
    return found


def test_every_kind_has_a_case() -> None:
    assert {kind for _, _, kind, _ in CASES.values()} >= {"nothing", *KINDS}


@pytest.mark.parametrize("name", CASES)
def test_the_smallest_change_of_a_kind_is_found_and_holds(name: str) -> None:
    problem, plan, kind, words = CASES[name]
    waiting = explained(problem, plan)
    assert words in of_kind(waiting, kind).change
    assert_they_hold(problem, plan, waiting)


def assert_they_hold(problem: Instance, plan: Plan, waiting: WaitingJob) -> None:
    """Every change that is named admits the job, and it was needed."""
    state = State(Scoring(problem), plan)
    needed = start(state, Packer(state), state.scoring.index[waiting.job]) is None
    shares = [found.share for found in waiting.counterfactuals]
    assert shares == sorted(shares)
    assert len({found.kind for found in waiting.counterfactuals}) == len(shares)
    for found in waiting.counterfactuals:
        assert needed is (found.kind != "nothing")
        changed = parse_instance(to_document(found.instance))  # so it is sound, and nothing is cached
        report, before = check(changed, found.plan), check(changed, found.without)
        assert report.feasible, (found.change, report.violations)
        assert waiting.job in found.plan
        assert waiting.job not in found.without
        assert report.objective >= before.objective
        assert report.objective - before.objective == pytest.approx(found.gain, abs=1e-9)
        assert found.outcome == report.evaluation.jobs[waiting.job]
        if found.kind not in ("move", "move-budget", "shrink", "stop"):
            assert found.without.tasks == plan.tasks
        if found.kind not in ("move", "move-budget"):
            others = {job: tasks for job, tasks in found.plan.tasks.items() if job != waiting.job}
            assert others == found.without.tasks


@pytest.mark.parametrize("family", ["ps-mix", "saturated", "fragmented", "cpu-bound", "allreduce-mix", "big-gangs"])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_change_that_is_named_holds_and_is_needed(family: str, seed: int) -> None:
    problem = generate(family, nodes=8, jobs=20, seed=seed)
    result = solve(problem, method="greedy")
    for pending in result.pending:
        waiting = explained(problem, result.plan, pending.job)
        assert waiting.pending.rule == pending.rule
        assert_they_hold(problem, result.plan, waiting)
    unexplained = sum(not explained(problem, result.plan, p.job).counterfactuals for p in result.pending)
    assert unexplained <= len(result.pending) // 20


@pytest.mark.parametrize("name", ["capacity", "quota", "minimum", "CPU of a worker", "nodes", "shrink"])
def test_one_unit_less_does_not_admit_the_job(name: str) -> None:
    """Otherwise it were not the smallest change."""
    problem, plan, kind, _ = CASES[name]
    changed = of_kind(explained(problem, plan), kind).instance
    document = to_document(changed)
    job = next(job for job in document["jobs"] if job["name"] == "j")
    if kind == "capacity":
        document["nodes"][0]["gpu"] -= 1
    elif kind == "quota":
        document["rules"]["quotas"]["default"]["gpu"] -= 1
    elif kind == "minimum":
        job["worker"]["min"] += 1
    elif kind == "profile":
        job["worker"]["profiles"][-1]["cpu"] = "1001m"
    elif kind == "node":
        del document["nodes"][-1]
    else:
        plan = runs(other={"n": 3})
        document = to_document(problem)
    less = parse_instance(document)
    if kind == "shrink":
        assert check(less, plan).feasible
    state = State(Scoring(less), plan)
    assert start(state, Packer(state), state.scoring.index["j"]) is None


def test_the_weight_is_the_least_that_pays() -> None:
    problem, plan, _, _ = CASES["weight"]
    found = of_kind(explained(problem, plan), "weight")
    weight = found.instance.job["j"].weight
    lighter = found.instance.job["j"].model_copy(update={"weight": weight * 0.99})
    state = State(Scoring(problem.model_copy(update={"jobs": (problem.jobs[0], lighter)})), plan)
    assert start(state, Packer(state), 1) is None


def test_a_pinned_job_is_not_asked_to_give_way() -> None:
    pinned = running("a", "n") | {"pinned": True}
    problem = instance([node()], [pinned, ring_job(worker=WHOLE)])
    kinds = {found.kind for found in explained(problem, runs(a={"n": 1})).counterfactuals}
    assert kinds == {"capacity", "node"}


def test_what_the_other_job_loses_is_said() -> None:
    problem, plan, _, _ = CASES["stop"]
    found = of_kind(explained(problem, plan), "stop")
    assert found.cost == pytest.approx(check(problem, plan).evaluation.jobs["a"].value)
    assert "a" not in found.instance.job


def test_without_time_the_kinds_that_were_not_tried_are_named() -> None:
    problem, plan, _, _ = CASES["node"]
    waiting = explain(problem, plan, "j", time_limit=1e-9)
    assert isinstance(waiting, WaitingJob)
    assert waiting.counterfactuals == ()
    assert set(waiting.not_tried) <= set(KINDS)
    assert "node" in waiting.not_tried


def test_a_job_that_is_worth_nothing_is_admitted_by_no_change() -> None:
    late = ring_job(deadline_seconds=10.0)
    table = {"form": "table", "points": [{"gpu_type": "a100", "workers": 3, "speed": 5}]}
    problem = instance([node()], [ring_job(speed=table, worker={"cpu": 1, "max": 2}), late | {"name": "k"}])
    waiting = explained(problem, Plan())
    assert waiting.pending.rule == "speed"
    assert [found.kind for found in waiting.counterfactuals] == ["counts"]


# --- jobs that run --------------------------------------------------------------------------------------------------


def explained_running(problem: Instance, plan: Plan, job: str) -> RunningJob:
    found = explain(problem, plan, job)
    assert isinstance(found, RunningJob)
    return found


def test_a_started_job_has_a_gain_and_a_runner_up() -> None:
    problem = instance([node(), node("m")], [ring_job()])
    found = explained_running(problem, runs(j={"n": 4}), "j")
    assert (found.change, found.stayed, found.stayed_held, found.gave_way) == ("started", None, None, {})
    assert found.gain == found.outcome.value > 0
    assert found.restart_cost > 0
    assert found.runner_up is not None
    assert found.runner_up.gain < found.gain
    assert found.runner_up.allocation.workers == 3
    assert check(problem, Plan(allocations={"j": found.runner_up.allocation})).feasible


def test_a_resized_job_is_compared_with_how_it_ran() -> None:
    before = {"tasks": {"worker": {"n": 1}}}
    problem = instance([node()], [ring_job(current=before)])
    found = explained_running(problem, runs(j={"n": 4}), "j")
    assert found.change == "resized"
    assert found.stayed is not None
    assert found.stayed.value == pytest.approx(check(problem, runs(j={"n": 1})).objective)  # kept, so no restart


def test_a_moved_job_says_what_took_its_place_and_who_gave_way() -> None:
    problem = instance(
        [node("n"), node("m")],
        [running("j", "n"), running("old", "m"), ring_job("big", worker=WHOLE)],
    )
    found = explained_running(problem, runs(j={"m": 1}, big={"n": 1}), "j")
    assert found.change == "moved"
    assert found.stayed is None
    assert found.stayed_held is not None
    assert found.stayed_held.startswith("capacity: node n is over its gpu")
    assert found.gave_way == {"old": "stopped"}
    big = explained_running(problem, runs(j={"m": 1}, big={"n": 1}), "big")
    assert big.gave_way == {"j": "moved"}


def test_pressure_on_others_and_the_next_in_line_are_said() -> None:
    jobs = [ring_job(name, speed=SHARP, worker=CALM) for name in ("j", "beside")] + [ring_job("later", worker=WHOLE)]
    problem = instance([node(), node("m", used={"gpu": 4})], jobs, pressure_levels=[0.4, 0.8])
    found = explained_running(problem, runs(j={"n": 1}, beside={"n": 1}), "j")
    assert found.pressure_cost > 0
    assert found.gain == pytest.approx(found.outcome.value - found.pressure_cost)
    alone = explained_running(problem, runs(j={"n": 1}), "j")
    assert alone.next_in_line in ("beside", "later")
    assert alone.next_gain > 0


def test_a_pinned_job_has_no_runner_up() -> None:
    problem = instance([node(), node("m")], [running("j", "n") | {"pinned": True}])
    found = explained_running(problem, runs(j={"n": 1}), "j")
    assert (found.change, found.runner_up) == ("kept", None)


def test_a_job_of_one_size_could_run_elsewhere() -> None:
    problem = instance([node("n"), node("m", used={"gpu": 3})], [small("j")])
    found = explained_running(problem, runs(j={"m": 1}), "j")
    assert found.runner_up is not None
    assert found.runner_up.allocation.nodes == ("n",)


def test_a_job_that_may_not_be_moved_has_no_runner_up() -> None:
    problem = instance([node("n"), node("m")], [running("j", "n")], rules={"move_budget": 0})
    assert explained_running(problem, runs(j={"n": 1}), "j").runner_up is None


def test_every_runner_up_is_feasible_and_worth_what_is_said() -> None:
    problem = generate("ps-mix", nodes=8, jobs=16, seed=3)
    plan = solve(problem, method="greedy").plan
    whole = check(problem, plan).objective
    for name in plan.allocations:
        found = explained_running(problem, plan, name)
        rest = Plan(allocations={job: planned for job, planned in plan.allocations.items() if job != name})
        assert whole - check(problem, rest).objective == pytest.approx(found.gain, abs=1e-9)
        for other in (found.runner_up, found.stayed):
            if other is None:
                continue
            report = check(problem, Plan(allocations=rest.allocations | {name: other.allocation}))
            assert {violation.rule for violation in report.violations} <= {"move-budget"}
            assert report.objective - check(problem, rest).objective == pytest.approx(other.gain, abs=1e-9)


# --- the cluster ----------------------------------------------------------------------------------------------------


def test_the_cluster_says_what_more_would_be_worth() -> None:
    rules = {"quotas": {"default": {"gpu": 6}}, "move_budget": 1}
    problem = instance(
        [node(), node("closed", cordoned=True), node("cpu", gpu=0, gpu_type="none")],
        [ring_job(name, worker=PAIR) for name in "abcd"], rules=rules,
    )  # fmt: skip
    found = explain(problem, runs(a={"n": 4}), verify=2)
    assert isinstance(found, Cluster)
    assert [what_if.estimate for what_if in found.what_ifs] == sorted(
        (what_if.estimate for what_if in found.what_ifs), reverse=True
    )
    assert {what_if.kind for what_if in found.what_ifs} == {"node", "quota", "uncordon", "move-budget"}
    assert found.bound >= found.objective
    assert found.searched is not None
    assert found.searched >= found.objective
    measured = [what_if.measured for what_if in found.what_ifs]
    assert all(gain is not None and gain >= 0 for gain in measured[:2])
    assert measured[2:] == [None] * (len(measured) - 2)


def test_the_price_of_a_node_bounds_what_the_bound_gains() -> None:
    """As long as the jobs have the same choices: here all of their counts have room with and without it."""
    problem = instance(
        [node(count=3), node("half", gpu=2, count=2)],
        [ring_job(f"j{i}", weight=1.0 + i, worker=PAIR | {"min": 1, "max": 2}) for i in range(12)],
    )
    found = explain(problem, Plan())
    assert isinstance(found, Cluster)
    assert [what_if.kind for what_if in found.what_ifs] == ["node"]
    assert found.what_ifs[0].estimate > 0
    for what_if in found.what_ifs:
        like = problem.node[what_if.change.rpartition(" ")[2]]
        larger = problem.model_copy(update={"nodes": (*problem.nodes, like.model_copy(update={"name": "extra"}))})
        after = explain(larger, Plan())
        assert isinstance(after, Cluster)
        assert after.bound <= (found.bound + what_if.estimate) * (1 + 1e-6)


def test_an_empty_cluster_has_nothing_to_add() -> None:
    found = explain(instance([], []), Plan(), verify=3)
    assert isinstance(found, Cluster)
    assert (found.objective, found.what_ifs, found.searched) == (0.0, (), None)


# --- the front door -------------------------------------------------------------------------------------------------


def test_it_stands_at_the_front_door() -> None:
    assert coplace.explain is explain


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"job": "jj"}, "job: must be a job of the instance; found 'jj'; did you mean j?"),
        ({"time_limit": 0.0}, "time_limit: must be above 0 seconds; found 0.0"),
        ({"verify": -1}, "verify: must not be negative; found -1"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        explain(instance([node()], [ring_job()]), Plan(), **arguments)
    assert str(error.value) == message


def test_a_plan_that_breaks_a_rule_is_refused() -> None:
    with pytest.raises(InputError) as error:
        explain(instance([node()], [ring_job(), ring_job("k")]), runs(j={"n": 4}, k={"n": 4}), "j")
    assert str(error.value) == (
        "plan: must keep every rule of the instance; found capacity: node n is over its gpu: 8 GPUs of 4 GPUs free; "
        "coplace check lists what it breaks; only a plan that keeps every rule can be explained"
    )
