"""Records as a whole: copies with other values, and numbers at the ends of their ranges."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coplace.formulations.scoring import Scoring
from coplace.formulations.speed import Configurations, StatedSpeeds
from coplace.instances import GOALS, Allocation, Instance, Job, Node, Resources, instance_sha256, parse_instance
from coplace.instances.base import LARGEST, SMALLEST
from coplace.instances.consistency import SHORTEST_STEP
from tests.documents import VALID

# --- copies ---------------------------------------------------------------------------------------------------------


def test_a_copy_with_other_jobs_knows_no_old_ones() -> None:
    """``instance.job`` of the copy still held the jobs of the original, once somebody had asked that for them."""
    instance = parse_instance(VALID)
    before = (instance.job, instance.node, instance.gpu_types, instance.current)
    copy = instance.model_copy(update={"jobs": instance.jobs[2:], "nodes": instance.nodes[:1]})
    assert list(copy.job) == ["table"]
    assert list(copy.node) == ["v1"]
    assert copy.gpu_types == ("V100",)
    assert len(copy.current) == 0
    assert (instance.job, instance.node, instance.gpu_types, instance.current) == before


def test_a_copy_of_a_node_has_its_own_room() -> None:
    node = Node(name="a", gpu_type="t", gpu=4, cpu=1000, memory=10)
    assert node.free == (4, 1000, 10)
    assert node.model_copy(update={"lost": Resources(gpu=1)}).free == (3, 1000, 10)
    assert node.model_copy(update={"lost": "all"}, deep=True).free == (0, 0, 0)


def test_a_copy_of_a_job_has_its_own_types() -> None:
    job = parse_instance(VALID).jobs[0]
    assert job.types == ("T4", "V100")
    assert job.model_copy(update={"gpu_types": ("T4",)}).types == ("T4",)


def test_a_copy_of_an_allocation_has_its_own_nodes() -> None:
    allocation = Allocation(tasks={"worker": {"a": 1}})
    assert (allocation.span, allocation.canonical) == (1, (("worker", 0, (("a", 1),)),))
    copy = allocation.model_copy(update={"tasks": {"worker": {"b": 1, "c": 1}}})
    assert copy.nodes == ("b", "c")
    assert not copy.same_as(allocation)


def test_a_copy_without_another_value_is_equal() -> None:
    instance = parse_instance(VALID)
    assert instance.model_copy() == instance
    assert instance_sha256(instance.model_copy(update={"goal": instance.goal})) == instance_sha256(instance)


# --- numbers at the ends of their ranges ----------------------------------------------------------------------------

EXTREME = st.sampled_from([SMALLEST, 1.0, LARGEST])
SECONDS = st.sampled_from([0.0, 1.0, LARGEST])
NODES = (
    Node(name="a", gpu_type="t", gpu=8, cpu=64_000, memory=2**18),
    Node(name="b", gpu_type="t", gpu=8, cpu=64_000, memory=2**18),
)


@st.composite
def extreme_speeds(draw: st.DrawFn) -> dict[str, Any]:
    form = draw(st.sampled_from(["ps-sync", "ps-async", "allreduce", "table"]))
    common = {
        "interference": {"slope": draw(SECONDS), "onset": draw(SECONDS)},
        "spread": {"slope": draw(SECONDS)},
        "form": form,
    }
    if form == "table":
        points = [{"gpu_type": "t", "workers": w, "servers": 0, "speed": draw(EXTREME)} for w in (1, 4)]
        return common | {"points": points, "communication_share": draw(st.sampled_from([0.0, 0.5, 1.0]))}
    a, b = draw(st.sampled_from([(SHORTEST_STEP, 0.0), (0.0, SHORTEST_STEP), (LARGEST, 0.0), (LARGEST, LARGEST)]))
    rest = ("latency_intra", "transfer_intra") if form == "allreduce" else ("c", "d", "e")
    more = {"staleness_cost": draw(SECONDS)} if form == "ps-async" else {}
    return common | more | {"batch": draw(EXTREME), "types": {"t": {"a": a, "b": b} | {k: draw(SECONDS) for k in rest}}}


@st.composite
def extreme_jobs(draw: st.DrawFn, name: str) -> Job:
    speed = draw(extreme_speeds())
    ps = {"ps": {"cpu": 1, "max": 4}} if speed["form"].startswith("ps") else {}
    return Job.model_validate(
        ps
        | {
            "name": name,
            "architecture": "ps" if ps else "allreduce",
            "worker": {"cpu": 1, "max": 4, "slowdown": draw(st.sampled_from([1.0, 1e6]))},
            "speed": speed,
            "remaining": draw(st.none() | EXTREME),
            "attained_gpu_seconds": draw(SECONDS),
            "age_seconds": draw(SECONDS),
            "weight": draw(EXTREME),
            "restart_seconds": draw(SECONDS),
            "deadline_seconds": draw(st.none() | st.sampled_from([-LARGEST, 0.0, 1e-300, SMALLEST, LARGEST])),
        }
    )


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_number_within_its_range_makes_a_value_that_is_none(data: st.DataObject) -> None:
    """5e-324 samples left, a batch of 1e18 or a table from 5e-324 to 1e18 gave NaN, infinity or a traceback."""
    jobs = tuple(data.draw(extreme_jobs(name)) for name in ("i", "j"))
    instance = Instance(
        nodes=NODES,
        jobs=jobs,
        goal=data.draw(st.sampled_from(GOALS)),
        horizon_seconds=data.draw(st.none() | EXTREME),
        pressure_levels=data.draw(st.sampled_from([(), (1e-6, 1000.0)])),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scoring = Scoring(instance, StatedSpeeds())
        for j, job in enumerate(jobs):
            assert math.isfinite(scoring.weights[j])
            for workers, servers, level, kept in itertools.product((1, 4), (0, 1, 4), (0, -1), (True, False)):
                if bool(servers) != bool(job.ps):
                    continue
                k = Configurations(0, workers, servers, 1, scoring.levels[level], 0, 0)
                value = scoring.value(j, float(scoring.model.predict(job, k).mean), kept=kept)
                assert math.isfinite(float(value))
                assert value >= 0


@pytest.mark.parametrize("rest", [1e-17, -3e-10, 0.0])
def test_a_deadline_that_rounding_has_left_is_now(rest: float) -> None:
    """The speed that meets a deadline in 1e-17 s is not a number to divide by."""
    job = parse_instance(VALID).jobs[0]
    assert Job.model_validate(job.model_dump() | {"deadline_seconds": rest}).deadline_seconds == 0
