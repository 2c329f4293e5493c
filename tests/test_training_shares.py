"""Whole shares in proportion, and the speeds that they follow."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coplace.training.data.shares import apportion
from coplace.training.scheduling.speeds import JUMP, SpeedEstimate

finite = st.floats(0, 1e300)


@given(st.integers(0, 10**6), st.lists(finite, min_size=1, max_size=12), st.integers(0, 50))
def test_shares_add_up_and_nobody_goes_without(total: int, weights: list[float], least: int) -> None:
    shares = apportion(total, weights, least)
    assert sum(shares) == total
    assert len(shares) == len(weights)
    n = len(weights)
    if least:
        assert min(shares) >= min(least, total // n)
        if total < n:
            assert max(shares, default=0) <= 1
    assert shares == apportion(total, weights, least)
    for i in range(n):  # who is heavier gets no less
        for j in range(n):
            if weights[i] > weights[j]:
                assert shares[i] >= shares[j]


@given(st.integers(0, 10**9), st.lists(finite, min_size=1, max_size=12))
def test_shares_without_a_least_are_within_one_of_proportion(total: int, weights: list[float]) -> None:
    exact = [Fraction(weight) for weight in weights]
    if not any(exact):
        exact = [Fraction(1)] * len(exact)
    for share, weight in zip(apportion(total, weights, 0), exact, strict=True):
        assert abs(share - total * weight / sum(exact)) < 1


@pytest.mark.parametrize(
    ("total", "weights", "least", "shares"),
    [
        (10, [1, 1, 1], 0, [4, 3, 3]),
        (100, [43, 33, 24], 0, [43, 33, 24]),
        (21, [41, 33, 26], 0, [9, 7, 5]),  # 8.61, 6.93, 5.46
        (64, [3, 1], 1, [48, 16]),
        (64, [1000, 1], 4, [60, 4]),
        (64, [1000, 1, 0], 4, [56, 4, 4]),
        (10, [0, 0, 0, 0], 1, [3, 3, 2, 2]),
        (3, [1, 5, 2, 5, 0], 1, [0, 1, 1, 1]),
        (7, [5, 1, 1], 3, [3, 2, 2]),  # not 3 for each: as near as can be
        (2, [9, 1, 1], 0, [2, 0, 0]),
        (10, [math.inf, 3, math.inf], 1, [5, 1, 4]),
        (10, [math.inf, 3, math.inf], 0, [5, 0, 5]),
        (0, [1, 2], 1, [0, 0]),
        (0, [], 1, []),
        (9, [5e-324, 1e308, 1e308], 1, [1, 4, 4]),
        (10**18 + 1, [1, 1], 1, [5 * 10**17 + 1, 5 * 10**17]),
    ],
)
def test_shares_of(total: int, weights: list[float], least: int, shares: list[int]) -> None:
    found = apportion(total, weights, least)
    assert sum(found) == total
    assert found == shares[: len(weights)] + [0] * (len(weights) - len(shares))


@pytest.mark.parametrize(
    ("total", "weights", "least", "message"),
    [
        (5, [1.0, -0.1], 1, "weight 1 must be a number of at least 0; found -0.1"),
        (5, [math.nan], 1, "weight 0 must be a number of at least 0; found nan"),
        (5, [-math.inf, 1.0], 1, "found -inf"),
        (-5, [1.0], 1, "at least 0; found -5 and 1"),
        (5, [1.0], -1, "at least 0; found 5 and -1"),
        (5, [], 1, "5 cannot be split: there are no weights"),
    ],
)
def test_shares_of_nonsense_are_refused(total: int, weights: list[float], least: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        apportion(total, weights, least)


def jitter(generator: random.Random, sigma: float) -> float:
    return math.exp(generator.gauss(0, sigma))


@pytest.mark.parametrize("sigma", [0.05, 0.1, 0.2])
def test_noise_leaves_the_shares_calm(sigma: float) -> None:
    generator = random.Random(1)
    estimate = SpeedEstimate()
    errors = []
    for step in range(5000):
        estimate.add("a", 64, 0.5 * jitter(generator, sigma))
        speed = estimate.speed("a")
        assert speed is not None
        if step >= 10:
            errors.append(abs(speed / 128 - 1))
    assert sum(errors) / len(errors) < sigma / 2
    assert sorted(errors)[int(0.99 * len(errors))] < sigma


def test_one_slow_step_of_many_changes_nothing() -> None:
    generator = random.Random(2)
    estimate = SpeedEstimate()
    for step in range(500):
        slow = generator.uniform(1.5, 20) if step % 7 == 5 else 1.0
        estimate.add("a", 64, 0.5 * slow * jitter(generator, 0.05))
        if step >= 8:
            assert estimate.speed("a") == pytest.approx(128, rel=0.1)


@pytest.mark.parametrize("factor", [0.25, 0.5, 0.7, 1.5, 4.0])
@pytest.mark.parametrize("middle", [0.0, 0.3, 0.6, 0.9])
def test_a_change_is_followed_within_four_steps(factor: float, middle: float) -> None:
    """Speeds change every 40 steps, a part *middle* into a step."""
    generator = random.Random(3)
    estimate = SpeedEstimate()
    speed, worst = 128.0, 0.0
    for change in range(20):
        after = 128.0 if speed != 128.0 else 128.0 * factor
        for step in range(40):
            whole = 1 - middle if step == 0 else 1.0
            seconds = (1 - whole) * 64 / speed + whole * 64 / after
            estimate.add("a", 64, seconds * jitter(generator, 0.05))
            found = estimate.speed("a")
            assert found is not None
            if change and step >= 4:
                worst = max(worst, abs(math.log(found / after)))
        speed = after
    assert worst < 0.15


def test_a_slow_first_step_is_forgotten_after_two_more() -> None:
    estimate = SpeedEstimate()
    assert (estimate.speed("a"), estimate.steps("a"), estimate.speeds()) == (None, 0, {})
    for seconds in (30.0, 0.5, 0.5):
        estimate.add("a", 64, seconds)
    assert estimate.speed("a") == pytest.approx(128)
    assert estimate.steps("a") == 2


def test_steps_that_never_agree_are_a_change_in_the_end() -> None:
    estimate = SpeedEstimate()
    for _ in range(5):
        estimate.add("a", 100, 1.0)
    for samples, expected in ((50, 100), (30, 100), (60, 100), (20, 38.7)):
        estimate.add("a", samples, 1.0)
        assert estimate.speed("a") == pytest.approx(expected, rel=0.01)


def test_deviations_to_both_sides_are_no_change() -> None:
    estimate = SpeedEstimate()
    estimate.add("a", 100, 1.0)
    for samples in (200, 50, 200, 50):
        estimate.add("a", samples, 1.0)
    assert estimate.speed("a") == pytest.approx(100)


def test_workers_are_apart_and_can_go() -> None:
    estimate = SpeedEstimate()
    estimate.add("b", 10, 1.0)
    estimate.add("a", 10, 2.0)
    assert list(estimate.speeds()) == ["a", "b"]
    assert estimate.speeds() == pytest.approx({"a": 5.0, "b": 10.0})
    estimate.forget("a")
    estimate.forget("a")
    assert list(estimate.speeds()) == ["b"]


@pytest.mark.parametrize(("samples", "seconds"), [(0, 1.0), (-1, 1.0), (1, 0.0), (1, math.nan), (1, math.inf)])
def test_steps_that_cannot_be_are_refused(samples: int, seconds: float) -> None:
    with pytest.raises(ValueError, match="a step has at least 1 sample and takes a time"):
        SpeedEstimate().add("a", samples, seconds)
    for smoothing, jump in ((0.0, JUMP), (1.1, JUMP), (0.5, 1.0)):
        with pytest.raises(ValueError, match="smoothing must be in"):
            SpeedEstimate(smoothing, jump)


def finish_times(
    overheads: list[float], speeds: list[float], batch: int, rounds: int, sigma: float = 0.0
) -> list[list[float]]:
    """Step times t_i = o_i + b_i / s_i of every round, each round's shares in proportion to the speeds measured."""
    generator = random.Random(4)
    estimate = SpeedEstimate()
    names = [f"w{i}" for i in range(len(speeds))]
    shares = apportion(batch, [1.0] * len(names))
    result = []
    for _ in range(rounds):
        times = [o + b / s for o, b, s in zip(overheads, shares, speeds, strict=True)]
        result.append(times)
        for name, share, seconds in zip(names, shares, times, strict=True):
            estimate.add(name, share, seconds * jitter(generator, sigma))
        found = estimate.speeds()
        shares = apportion(batch, [found[name] for name in names])
    return result


@pytest.mark.parametrize(
    ("overheads", "speeds"),
    [
        ([0.0, 0.0, 0.0], [400.0, 200.0, 100.0]),
        ([0.1, 0.1, 0.1, 0.1], [1000.0, 1000.0, 500.0, 250.0]),
        ([0.3, 0.05, 0.1], [800.0, 800.0, 200.0]),
        ([0.4, 0.4], [4000.0, 1000.0]),
    ],
)
def test_shares_by_measured_speed_settle_where_all_finish_together(overheads: list[float], speeds: list[float]) -> None:
    times = finish_times(overheads, speeds, 512, 150)
    assert max(times[-1]) / min(times[-1]) < 1.03  # a sample more or less, and the tail of the smoothing
    # With equal times t: b_i = (t − o_i) s_i, and the b_i sum to the batch.
    ideal = (512 + sum(o * s for o, s in zip(overheads, speeds, strict=True))) / sum(speeds)
    assert max(times[-1]) == pytest.approx(ideal, rel=0.03)


def test_shares_settle_with_noise_too() -> None:
    times = finish_times([0.1, 0.05, 0.1], [1000.0, 500.0, 250.0], 1024, 200, sigma=0.05)
    late = [max(t) / min(t) for t in times[60:]]
    assert sum(late) / len(late) < 1.08
