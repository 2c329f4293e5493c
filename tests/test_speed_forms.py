"""Speed models by their invariants: positive, monotone where physics says so, efficiency at most 1."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coplace.formulations.speed import Configurations, StatedSpeeds
from coplace.instances import Job
from tests.building import instance, node, ps_job, ring_job

COEFFICIENT = st.floats(0, 10)
POSITIVE = st.floats(1e-4, 10)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """A job of any closed form, with φ and ψ."""
    form = draw(st.sampled_from(["ps-sync", "ps-async", "allreduce"]))
    stretch: dict[str, Any] = {
        "interference": {"slope": draw(COEFFICIENT), "onset": draw(st.floats(0, 1))},
        "spread": {"slope": draw(COEFFICIENT)},
        "batch": draw(st.integers(1, 4096)),
    }
    if form == "allreduce":
        inside = [draw(COEFFICIENT), draw(COEFFICIENT)]
        types = {
            t: {
                "a": draw(POSITIVE), "b": draw(COEFFICIENT), "latency_intra": inside[0], "transfer_intra": inside[1],
                "latency_inter": inside[0] + draw(COEFFICIENT), "transfer_inter": inside[1] + draw(COEFFICIENT),
            }
            for t in ("a100", "k80")
        }  # fmt: skip
        job = ring_job(speed={"form": form, "types": types} | stretch)
    else:
        types = {t: {"a": draw(POSITIVE)} | {key: draw(COEFFICIENT) for key in "bcde"} for t in ("a100", "k80")}
        stale = {"staleness_cost": draw(st.floats(0, 1))} if form == "ps-async" else {}
        job = ps_job(speed={"form": form, "types": types} | stretch | stale)
    return instance([node()], [job]).jobs[0]


CONFIGURATIONS = st.tuples(
    st.integers(0, 1), st.integers(1, 64), st.integers(1, 16), st.integers(1, 64), st.floats(0, 2)
)


def speed(job: Job, *k: Any) -> float:
    return float(StatedSpeeds().predict(job, Configurations(*k)).mean)


@given(jobs(), CONFIGURATIONS)
def test_speed_is_positive_and_finite_and_falls_with_span_and_pressure(job: Job, k: tuple[Any, ...]) -> None:
    gpu_type, w, p, span, pressure = k
    here = speed(job, gpu_type, w, p, span, pressure)
    assert 0 < here < np.inf
    assert speed(job, gpu_type, w, p, span + 1, pressure) <= here * (1 + 1e-12)
    assert speed(job, gpu_type, w, p, span, pressure + 0.25) <= here * (1 + 1e-12)


@given(jobs(), CONFIGURATIONS)
def test_workers_never_gain_more_than_their_number(job: Job, k: tuple[Any, ...]) -> None:
    gpu_type, w, p, span, pressure = k
    one = speed(job, gpu_type, 1, p, span, pressure)
    assert speed(job, gpu_type, w, p, span, pressure) <= w * one * (1 + 1e-9)


@given(jobs(), st.lists(CONFIGURATIONS, min_size=1, max_size=8))
def test_arrays_and_single_configurations_agree_to_the_last_bit(job: Job, ks: list[tuple[Any, ...]]) -> None:
    columns = (np.array(column) for column in zip(*ks, strict=True))
    together = StatedSpeeds().predict(job, Configurations(*columns))
    assert together.mean.tolist() == [speed(job, *k) for k in ks]
    assert (together.lower <= together.mean).all()
    assert (together.mean <= together.upper).all()


def test_ps_sync_by_hand() -> None:
    types = {"a100": {"a": 0.01, "b": 0.2, "c": 0.3, "d": 0.02, "e": 0.05}}
    form = {"form": "ps-sync", "batch": 120, "types": types,
            "interference": {"slope": 2, "onset": 0.5}, "spread": {"slope": 0.6}}  # fmt: skip
    worker = {"profiles": [{"cpu": 2}, {"cpu": 1, "slowdown": 3}], "max": 4}
    ps = {"profiles": [{"cpu": 1}, {"cpu": 1, "slowdown": {"a100": 2}}], "max": 3}
    job = instance([node()], [ps_job(speed=form, worker=worker, ps=ps)]).jobs[0]
    # T = (0.01·120/4 + 0.2)·3·(1 + 2·0.25) + (0.3·4/2 + 0.02·4 + 0.05·2)·2·(1 + 0.6·(1 − 1/3))
    step = (0.3 + 0.2) * 3 * 1.5 + (0.6 + 0.08 + 0.1) * 2 * 1.4
    assert speed(job, 0, 4, 2, 3, 0.75, 1, 1) == pytest.approx(120 / step, rel=1e-12)


def test_ps_async_by_hand() -> None:
    form = {"form": "ps-async", "batch": 32, "types": {"a100": {"a": 0.01, "c": 0.1}}, "staleness_cost": 0.1}
    job = instance([node()], [ps_job(speed=form)]).jobs[0]
    assert speed(job, 0, 4, 2) == pytest.approx(4 * 32 / (0.32 + 0.2) / 1.3, rel=1e-12)


def test_allreduce_uses_the_slow_links_as_soon_as_a_second_node_is_used() -> None:
    ring = {"a": 0.01, "latency_intra": 0.1, "latency_inter": 0.2, "transfer_intra": 0.3, "transfer_inter": 0.5}
    job = instance([node()], [ring_job(speed={"form": "allreduce", "batch": 40, "types": {"a100": ring}})]).jobs[0]
    assert speed(job, 0, 4, 0, 1) == pytest.approx(40 / (0.1 + 0.3 + 0.45), rel=1e-12)
    assert speed(job, 0, 4, 0, 2) == pytest.approx(40 / (0.1 + 0.6 + 0.75), rel=1e-12)


def table_job(points: list[tuple[int, int, float]], share: float = 0.0) -> Job:
    form = {"form": "table", "communication_share": share,
            "points": [{"gpu_type": "a100", "workers": w, "servers": p, "speed": v} for w, p, v in points]}  # fmt: skip
    job = ps_job(speed=form, worker={"cpu": 1, "max": 8}, ps={"cpu": 1, "max": 6})
    return instance([node()], [job]).jobs[0]


def test_a_table_is_exact_at_its_points_linear_between_and_silent_outside() -> None:
    job = table_job([(1, 1, 10), (4, 1, 40), (2, 3, 30), (4, 3, 60)])
    assert speed(job, 0, 1, 1) == 10
    assert speed(job, 0, 2, 1) == 20  # between 1 and 4 workers with 1 server
    assert speed(job, 0, 3, 3) == 45  # between 2 and 4 workers with 3 servers
    assert speed(job, 0, 2, 2) == 25  # then between 1 and 3 servers
    assert speed(job, 0, 1, 2) == 0  # nothing is known of 1 worker with 3 servers
    assert speed(job, 0, 5, 1) == 0
    assert speed(job, 0, 4, 4) == 0


def test_a_table_never_leaves_the_range_of_its_points() -> None:
    points = [(w, p, float(10 * w + p)) for w, p in itertools.product((1, 3, 8), (1, 2, 6))]
    job = table_job(points, share=0.25)
    for w, p in itertools.product(range(1, 9), range(1, 7)):
        assert 11 <= speed(job, 0, w, p) <= 86
