"""Why a job waits: the reason names what holds it, and would be gone if that were mended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from coplace.instances import Instance
from coplace.solver import solve
from coplace.solver.exact.worker import Worker
from tests.building import instance, node, ps_job, ring_job

WIDE = {"gpu": 3, "cpu": 2, "memory": "8Gi", "min": 2, "max": 2}


def case(nodes: list[dict[str, Any]], job: dict[str, Any], *others: dict[str, Any], **changes: Any) -> Instance:
    return instance(nodes, [*others, job], **changes)


def busy(gpus: int, on: str) -> dict[str, Any]:
    return ring_job(f"busy-{on}", pinned=True, current={"tasks": {"worker": {on: gpus}}})


HELD = {
    "too large": (
        case([node()], ring_job(worker={"gpu": 8, "cpu": 2})),
        case([node(gpu=8)], ring_job(worker={"gpu": 8, "cpu": 2})),
        "capacity", "gpu", "a worker needs 8 GPUs, the largest a100 node offers 4 GPUs",
    ),
    "short": (
        case([node()], ring_job(worker={"gpu": 1, "cpu": 2, "min": 5, "max": 5})),
        case([node(), node("m")], ring_job(worker={"gpu": 1, "cpu": 2, "min": 5, "max": 5})),
        "capacity", "gpu", "its workers need 5 GPUs on a100 nodes, 4 GPUs free",
    ),
    "fragmented": (
        case([node(), node("m")], ring_job(worker={"gpu": 3, "cpu": 2}), busy(2, "n"), busy(2, "m")),
        case([node(), node("m")], ring_job(worker={"gpu": 3, "cpu": 2}), busy(1, "n"), busy(2, "m")),
        "fragmentation", "gpu", "4 GPUs free, but in pieces: a worker needs 3 GPUs on one a100 node, 0 of 1 fit",
    ),
    "cpu not beside gpu": (
        case([node(used={"cpu": 31}), node("m", used={"gpu": 4})], ring_job(worker={"gpu": 1, "cpu": 2})),
        case([node(used={"cpu": 30}), node("m", used={"gpu": 4})], ring_job(worker={"gpu": 1, "cpu": 2})),
        "fragmentation", None, "together on one a100 node, 0 of 1 fit",
    ),
    "quota": (
        case([node()], ring_job(worker=WIDE | {"min": 1, "max": 1}), rules={"quotas": {"default": {"gpu": 2}}}),
        case([node()], ring_job(worker=WIDE | {"min": 1, "max": 1}), rules={"quotas": {"default": {"gpu": 3}}}),
        "quota", "gpu", "tenant default uses 0 GPUs of its quota of 2 GPUs, and it needs 3 GPUs",
    ),
    "servers": (
        case([node(memory="16Gi")], ps_job(ps={"cpu": 1, "memory": "12Gi"})),
        case([node(memory="16Gi"), node("m", memory="16Gi")], ps_job(ps={"cpu": 1, "memory": "12Gi"})),
        "fragmentation", None, "find no room together",
    ),
    "servers too large": (
        case([node(memory="16Gi")], ps_job(ps={"cpu": 1, "memory": "20Gi"})),
        case([node(memory="16Gi"), node("m", memory="20Gi")], ps_job(ps={"cpu": 1, "memory": "20Gi"})),
        "capacity", "memory", "a parameter server needs 1 CPU, 20Gi memory together on one node, 0 of 1 fit",
    ),
    "cordoned": (
        case([node(cordoned=True)], ring_job()), case([node()], ring_job()),
        "cordon", None, "no a100 node is open: 1 cordoned",
    ),
    "selector": (
        case([node()], ring_job(node_selector={"disk": "ssd"})),
        case([node(labels={"disk": "ssd"})], ring_job(node_selector={"disk": "ssd"})),
        "selector", None, "no open a100 node carries disk=ssd",
    ),
    "pressure": (
        case([node()], ring_job(worker={"gpu": 1, "cpu": 1, "intensity": 60}), pressure_levels=[0.5]),
        case([node()], ring_job(worker={"gpu": 1, "cpu": 1, "intensity": 60}), pressure_levels=[0.6]),
        "pressure", None, "its workers add intensity 60 each, the calmest a100 node with room for one bears 50 more",
    ),
    "tasks per node": (
        case([node()], ring_job(worker={"cpu": 1, "min": 2, "max": 2}), rules={"max_tasks_per_node": 1}),
        case([node(), node("m")], ring_job(worker={"cpu": 1, "min": 2, "max": 2}), rules={"max_tasks_per_node": 1}),
        "tasks-per-node", None, "at most 1 tasks of a job may share a node",
    ),
    "no speed": (
        case([node()], ps_job(speed={"form": "table", "points": [
            {"gpu_type": "a100", "workers": 7, "servers": 1, "speed": 5}]})),
        case([node()], ps_job(speed={"form": "table", "points": [
            {"gpu_type": "a100", "workers": 2, "servers": 1, "speed": 5}]})),
        "speed", None, "no speed is known for its counts",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """One process for all solves."""
    with Worker() as one:
        yield one


@pytest.mark.parametrize("name", HELD)
def test_the_reason_names_what_holds_the_job_and_mending_it_admits_the_job(name: str, worker: Worker) -> None:
    held, mended, rule, resource, words = HELD[name]
    (pending,) = solve(held, worker=worker).pending
    assert (pending.job, pending.rule) == ("j", rule)
    assert resource is None or pending.resource == resource
    assert words in pending.reason
    assert solve(mended, worker=worker).pending == ()


def test_a_job_that_would_slow_a_heavier_one_waits_for_that_reason() -> None:
    sharp = {"form": "allreduce", "batch": 128, "types": {"a100": {"a": 0.001}}, "interference": {"slope": 50}}
    worker = {"gpu": 1, "cpu": 1, "intensity": 40}
    heavy = ring_job("heavy", speed=sharp, worker=worker, weight=100.0)
    light = ring_job("light", speed=sharp, worker=worker)
    result = solve(instance([node()], [heavy, light], pressure_levels=[0.4, 0.8]))
    (pending,) = result.pending
    assert (pending.job, pending.rule) == ("light", "value")
    assert "costs others" in pending.reason


def test_every_waiting_job_has_a_reason_and_no_running_one() -> None:
    from coplace.instances.generation import generate

    for family in ("ps-mix", "saturated", "fragmented", "cpu-bound"):
        problem = generate(family, nodes=12, jobs=40, seed=3)
        result = solve(problem, method="greedy")
        assert {p.job for p in result.pending} | set(result.plan.allocations) == set(problem.job)
        assert not {p.job for p in result.pending} & set(result.plan.allocations)
        assert all(p.reason for p in result.pending)
