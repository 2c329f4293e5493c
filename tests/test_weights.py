"""Weights against what they are derived from."""

from __future__ import annotations

import numpy as np
import pytest

from coplace.formulations.reference import Reference
from coplace.formulations.scoring import Scoring
from coplace.formulations.weights import elasticity, job_weights
from tests.building import instance, node, ps_job, ring_job


def scored(*sizes: float, goal: str = "jct", **changes: object) -> Scoring:
    jobs = [ring_job(f"j{i}", remaining=size, **changes) for i, size in enumerate(sizes)]
    return Scoring(instance([node()], jobs, goal=goal))


@pytest.mark.parametrize("q", [0.2, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("n", [1, 2, 5, 400])
def test_flow_time_weights_reproduce_hesrpt(q: float, n: int) -> None:
    """Maximising Σ λ_i θ_i^q over shares gives θ_i = (i/n)^a − ((i−1)/n)^a (Berg et al., arXiv:1903.09346)."""
    problem = instance([node()], [ring_job(f"j{i}", remaining=1e6 * (n - i)) for i in range(n)], goal="jct")
    references = [Reference(1, 100.0, (2,), (100.0 * 2**q,)) for _ in range(n)]
    weights = job_weights(problem, references)
    a = 1 / (1 - q)
    optimal = weights**a / (weights**a).sum()  # from the stationarity of Σ λ θ^q
    rank = np.arange(1, n + 1)
    np.testing.assert_allclose(optimal, (rank / n) ** a - ((rank - 1) / n) ** a, rtol=1e-6, atol=1e-12)


def test_short_jobs_weigh_more_and_equal_ones_keep_their_order() -> None:
    weights = scored(5e6, 1e6, 9e6, 1e6).weights
    assert weights[2] == 1.0  # the longest
    assert weights[2] < weights[0] < weights[1] < weights[3]


def test_weights_stay_finite_in_a_queue_of_fifty_thousand() -> None:
    n = 50_000
    problem = instance([node()], [ring_job(f"j{i}", remaining=1e6 + i) for i in range(3)], goal="jct")
    big = problem.model_copy(update={"jobs": problem.jobs[:1] * n})
    weights = job_weights(big, [Reference(1, 1.0, (2,), (1.9,))] * n)
    assert np.isfinite(weights).all()
    assert (weights > 0).all()
    assert weights.max() <= n


def test_elasticity_is_the_slope_of_the_speed_up() -> None:
    assert elasticity([Reference(1, 10.0, (2, 4, 8), (10 * 2**0.7, 10 * 4**0.7, 10 * 8**0.7))]) == pytest.approx(0.7)
    assert elasticity([Reference(2, 10.0, (4,), (20.0,))]) == 0.95
    assert elasticity([Reference(2, 10.0, (4,), (10.0,))]) == 0.05
    assert elasticity([Reference(3, 10.0)]) == 0.5


def test_without_remaining_work_the_least_served_job_weighs_most() -> None:
    jobs = [ring_job(f"j{i}", attained_gpu_seconds=served) | {"remaining": None} for i, served in enumerate((9, 1, 5))]
    weights = Scoring(instance([node()], jobs, goal="jct")).weights
    assert weights[0] < weights[2] < weights[1]


def test_makespan_weights_are_relative_sizes() -> None:
    assert scored(1e6, 3e6, goal="makespan").weights == pytest.approx([0.5, 1.5])


def test_other_goals_weigh_all_alike_times_the_own_weight() -> None:
    for goal in ("throughput", "fairness", "deadline"):
        assert scored(1e6, 3e6, goal=goal, weight=2.5).weights == [2.5, 2.5]


def test_a_job_without_a_speed_weighs_nothing() -> None:
    gap = {"form": "table", "points": [{"gpu_type": "a100", "workers": 9, "servers": 1, "speed": 5}]}
    scoring = Scoring(instance([node()], [ps_job("gap", speed=gap), ps_job("fine")]))
    assert scoring.weights == [0.0, 1.0]
    assert scoring.reference[0] == 0


def test_the_reference_is_the_best_at_the_smallest_count_that_has_a_speed() -> None:
    rows = (("a100", 3, 1, 30), ("a100", 3, 2, 35), ("k80", 3, 1, 90), ("a100", 4, 1, 60))
    points = [{"gpu_type": t, "workers": w, "servers": p, "speed": v} for t, w, p, v in rows]
    job = ps_job(speed={"form": "table", "points": points})
    scoring = Scoring(instance([node()], [job]))
    assert scoring.reference_workers == [3]
    assert scoring.reference == [35]  # no k80 in the cluster


@pytest.mark.parametrize("kept", [True, False])
def test_the_effective_speed_pays_for_the_restart_over_the_horizon(kept: bool) -> None:
    job = ring_job(remaining=1e5, restart_seconds=100.0, age_seconds=4000.0, restarts=1)
    scoring = Scoring(instance([node()], [job]))
    # horizon = 4000 / 2 s; at 10 samples/s the work outlasts it, at 1000 it takes 100 s
    assert scoring.effective(0, 10.0, kept) == pytest.approx(10 if kept else 10 * 2000 / 2100)
    assert scoring.effective(0, 1000.0, kept) == pytest.approx(1000 if kept else 500)
    speeds = np.array([10.0, 1000.0])
    np.testing.assert_array_equal(
        scoring.effective(0, speeds, kept), [scoring.effective(0, 10.0, kept), scoring.effective(0, 1000.0, kept)]
    )


def test_a_deadline_is_worth_nothing_beyond_the_required_speed() -> None:
    job = ring_job(remaining=1e5, restart_seconds=0.0, deadline_seconds=1000.0)
    scoring = Scoring(instance([node()], [job], goal="deadline"))
    assert scoring.value(0, 50.0, kept=True) == pytest.approx(0.5)
    assert scoring.value(0, 500.0, kept=True) == 1.0
