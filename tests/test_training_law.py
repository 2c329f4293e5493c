"""The law of learning curves: forecasts of made-up and of measured curves, and when training ends early."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from coplace.training.law import EarlyStop, fit_law, fit_loss

SAMPLES = np.linspace(400.0, 8000.0, 20)

Curve = Callable[[np.ndarray], np.ndarray]


def power(k: np.ndarray) -> np.ndarray:
    return 0.95 - 0.9 * (k / 1000 + 1) ** -0.8


def exponential(k: np.ndarray) -> np.ndarray:
    return 0.95 - 0.85 * np.exp(-k / 4000)


def reached(curve: Curve, target: float) -> float:
    """Samples at which *curve* is *target*."""
    k = np.geomspace(1, 1e6, 200_001)
    return float(k[np.searchsorted(curve(k), target)])


def noisy(curve: Curve, noise: float, seed: int) -> np.ndarray:
    return curve(SAMPLES) + noise * np.random.default_rng(seed).standard_normal(len(SAMPLES))


@pytest.mark.parametrize(
    ("curve", "noise", "target", "factor"),
    [
        (power, 0.0, 0.84, 1.05),
        (power, 0.0, 0.88, 1.1),
        (power, 0.005, 0.84, 1.4),
        (exponential, 0.0, 0.87, 1.15),
        (exponential, 0.0, 0.90, 1.15),
        (exponential, 0.005, 0.90, 1.3),
    ],
)
def test_a_forecast_comes_within_a_factor(curve: Curve, noise: float, target: float, factor: float):
    truth = reached(curve, target)
    for seed in range(8 if noise else 1):
        law = fit_law(SAMPLES, noisy(curve, noise, seed))
        assert law is not None
        forecast = law.reach(target)
        assert forecast is not None
        assert truth / factor < forecast.samples < truth * factor
        assert forecast.lower <= forecast.samples <= forecast.upper


def test_intervals_cover_the_truth_of_a_power_law():
    truth = reached(power, 0.84)
    covered, limits, runs = 0, 0, 40
    for seed in range(runs):
        law = fit_law(SAMPLES, noisy(power, 0.01, seed))
        assert law is not None
        forecast = law.reach(0.84)
        covered += forecast is not None and forecast.lower <= truth <= forecast.upper
        limits += law.limit.lower <= 0.95 <= law.limit.upper
    assert covered >= 0.7 * runs
    assert limits >= 0.7 * runs


def test_the_law_rises_and_reach_is_its_inverse():
    law = fit_law(SAMPLES, noisy(power, 0.01, 3))
    assert law is not None
    values = [law.at(k) for k in np.linspace(0, 40_000, 200)]
    assert values == sorted(values)
    assert values[-1] <= law.limit.value <= 1.0
    forecasts = [law.reach(target) for target in np.linspace(0.5, 0.9, 20)]
    ends = [(f.lower, f.samples, f.upper) for f in forecasts if f is not None]
    assert len(ends) > 10
    for part in zip(*ends, strict=True):
        assert list(part) == sorted(part)
    for target in (0.6, 0.75, 0.85):
        forecast = law.reach(target)
        assert forecast is not None
        assert law.at(forecast.samples) == pytest.approx(target, abs=1e-6)
    assert law.gain(8000, math.inf).value >= 0


def test_the_same_points_give_the_same_law_in_any_order_and_unit():
    values = noisy(power, 0.01, 5)
    law = fit_law(SAMPLES, values)
    turned = fit_law(SAMPLES[::-1], values[::-1])
    scaled = fit_law(SAMPLES * 1000, values)
    assert law is not None
    assert turned is not None
    assert scaled is not None
    assert law.reach(0.85) == turned.reach(0.85)
    assert scaled.at(1e7) == pytest.approx(law.at(1e4), rel=1e-6)


def test_points_without_a_rise_have_no_law():
    rng = np.random.default_rng(0)
    assert fit_law([1, 2, 3], [0.1, 0.2, 0.3]) is None
    assert fit_law([1, 2, 3, 3, 3], [0.1, 0.2, 0.3, 0.3, 0.3]) is None
    assert fit_law([1, 2, 3, math.nan], [0.1, 0.2, 0.3, 0.35]) is None
    assert fit_law(SAMPLES, [0.5] * 20) is None
    assert fit_law(SAMPLES, power(SAMPLES)[::-1]) is None
    assert sum(fit_law(SAMPLES, 0.5 + 0.01 * rng.standard_normal(20)) is not None for _ in range(20)) <= 3
    with pytest.raises(ValueError, match="3 numbers of samples for 2 values"):
        fit_law([1, 2, 3], [0.1, 0.2])


def test_many_points_and_ones_at_the_start_and_the_top():
    k = np.arange(3000.0)
    law = fit_law(k, power(k))
    assert law is not None
    assert law.at(3000) == pytest.approx(power(np.array(3000.0)), abs=0.01)
    top = fit_law(SAMPLES, 1 - 0.5 * (SAMPLES / 400) ** -2.0)
    assert top is not None
    assert top.limit.upper <= 1.0
    percent = fit_law(SAMPLES, 100 * power(SAMPLES), highest=100.0)
    assert percent is not None
    assert percent.limit.value == pytest.approx(95, abs=3)


def test_a_target_above_the_limit_is_hopeless_and_one_below_is_not():
    k = np.linspace(1000, 60_000, 30)
    law = fit_law(k, 0.7 - 0.5 * (k / 1000 + 1) ** -1.5)
    assert law is not None
    assert law.hopeless(0.8)
    assert not law.hopeless(0.69)
    assert law.hopeless(0.6999, at=61_000)
    assert law.reach(0.8) is None


def test_a_curve_that_does_not_bend_yet_is_never_hopeless():
    """Guards against stopping in the steep phase of an S-shaped curve, through which laws with low limits pass."""
    k = np.arange(1.0, 9.0)
    law = fit_law(k, 0.1 + 0.07 * k)
    assert law is not None
    assert not law.hopeless(0.99)


def test_the_law_of_loss():
    k = np.linspace(100, 5000, 30)
    truth = 1 / (0.002 * k + 0.4) + 0.3
    law = fit_loss(k, truth)
    assert law is not None
    assert law.limit == pytest.approx(0.3, abs=0.02)
    assert law.at(20_000) == pytest.approx(1 / 40.4 + 0.3, rel=0.05)
    samples = law.reach(0.35)
    assert samples == pytest.approx((1 / 0.05 - 0.4) / 0.002, rel=0.3)
    assert law.reach(0.2) is None
    noise = fit_loss(k, truth + 0.02 * np.random.default_rng(0).standard_normal(30))
    assert noise is not None
    assert noise.at(10_000) == pytest.approx(1 / 20.4 + 0.3, rel=0.15)
    assert fit_loss(k, truth[::-1]) is None
    assert fit_loss(k[:3], truth[:3]) is None
    assert fit_loss(k, [1.0] * 30) is None


def test_early_stop_says_when_the_target_is_met_and_foresees_it():
    stop = EarlyStop(0.84)
    decisions = [stop.evaluated(k, float(power(np.array(k)))) for k in range(400, 20_000, 400)]
    first = next(index for index, decision in enumerate(decisions) if decision.stop)
    assert decisions[first].why == "reached"
    assert decisions[first].reason.endswith("meets the target of 84.00 %")
    before = decisions[first - 10]
    assert before.why == "go on"
    assert before.reason.startswith("the target of 84.00 % is foreseen in ")
    assert before.further == pytest.approx(4000, rel=0.25)


def test_early_stop_gives_up_only_after_confirmation():
    stop = EarlyStop(0.9, budget=60_000, patience=3)
    decisions = []
    for k in range(1000, 60_000, 1000):
        decisions.append(stop.evaluated(k, 0.7 - 0.5 * (k / 1000 + 1) ** -1.5))
        if decisions[-1].stop:
            break
    assert decisions[-1].why == "hopeless"
    assert "not foreseen within the budget of 60,000 samples" in decisions[-1].reason
    assert [d.reason.startswith("goes on until this is confirmed") for d in decisions[-3:]] == [True, True, False]


def test_early_stop_on_a_plateau_that_the_law_or_the_points_show():
    stop = EarlyStop(None, 0.005, budget=80_000)
    decisions = [stop.evaluated(k, 0.7 - 0.5 * (k / 1000 + 1) ** -1.5) for k in range(1000, 60_000, 1000)]
    assert decisions[5].why == "go on"
    assert decisions[-1].why == "plateau"
    rng = np.random.default_rng(0)
    level = EarlyStop(None, 0.02)
    flat = [level.evaluated(k, 0.5 + 0.005 * rng.standard_normal()) for k in range(20)]
    assert flat[-1].why == "plateau"
    assert flat[8].why == "go on"
    never = EarlyStop(None, None)
    assert not any(never.evaluated(k, 0.5).stop for k in range(40))


def test_a_run_that_goes_back_to_a_checkpoint_decides_as_if_it_had_not():
    once, twice = EarlyStop(0.94), EarlyStop(0.94)
    for k in range(400, 6000, 400):
        twice.evaluated(k, 0.3)
    for k in range(400, 6000, 400):
        expected = once.evaluated(k, float(power(np.array(k))))
        assert twice.evaluated(k, float(power(np.array(k)))) == expected


def test_a_curve_measured_on_handwritten_digits():
    """The first 12 of 36 epochs of a perceptron foresee the rest, and nothing stops it before its target."""
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    images, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(labels))
    images, labels = images[order] / 16, labels[order]
    network = MLPClassifier((32,), learning_rate_init=1e-3, random_state=0, batch_size=64)
    samples, accuracies = [], []
    for epoch in range(1, 37):
        order = rng.permutation(1200)
        for start in range(0, 1152, 64):
            batch = order[start : start + 64]
            network.partial_fit(images[batch], labels[batch], classes=np.arange(10))
        samples.append(1152 * epoch)
        accuracies.append(network.score(images[1200:], labels[1200:]))
    law = fit_law(samples[:12], accuracies[:12])
    assert law is not None
    foreseen = law.foreseen(samples[-1])
    final = float(np.mean(accuracies[-3:]))
    assert accuracies[11] < final - 0.04
    assert foreseen.lower <= final <= foreseen.upper
    assert foreseen.value == pytest.approx(final, abs=0.03)
    target = final - 0.01
    first = next(k for k, accuracy in zip(samples, accuracies, strict=True) if accuracy >= target)
    forecast = law.reach(target)
    assert forecast is not None
    assert first / 1.5 < forecast.samples < 1.5 * first
    stop = EarlyStop(target, budget=samples[-1])
    decisions = [stop.evaluated(*point) for point in zip(samples, accuracies, strict=True)]
    assert next(decision.why for decision in decisions if decision.stop) == "reached"
