"""The law of a learning curve, by which the samples that a target still takes are foreseen, and training ends early.

Accuracy follows a(k) = a − b·(k + c)^(−d) in the samples k: ``pow4`` of Domhan, Springenberg and Hutter, "Speeding up
automatic hyperparameter optimization of deep neural networks by extrapolation of learning curves", IJCAI 2015. Loss
follows 1/(a·k + b) + c: Peng et al., "Optimus", EuroSys 2018, section 3.1.

Many laws fit the points of one curve about as well and foresee different things. So an accuracy law is a set of
:data:`MEMBERS` curves, each as likely as the next given the points. What it says is the median of what they say, and
its intervals hold 80 % of them. The median of the curves at k is the target exactly where k is the median of the
samples at which they reach it, so :meth:`AccuracyLaw.at` and :meth:`AccuracyLaw.reach` are inverse to each other, and
both rise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MEMBERS = 1001
"""Curves in an accuracy law; odd, so that one of them is the median."""

LEAST_POINTS = 4
"""A law has four parameters."""

_INSIDE = 0.8  # share of the members within an interval
_OPTIMISTIC = 0.95  # share of the members that are less optimistic than what counts as hope
_MOST_POINTS = 200  # more are averaged in groups
_RESOLUTION = 1e-4  # noise that any accuracy has, as a share of the highest
_NEAR = np.linspace(-3.0, 3.0, 15)  # limits to try around the best one, in standard errors
_FAR = np.linspace(0.0, 1.0, 16)  # and from the highest down to the level of the points
_OFFSETS = np.concatenate([[0.0], np.geomspace(1e-3, 30.0, 47)])  # c, as a share of the samples so far
_EXPONENTS = np.geomspace(0.1, 3.0, 40)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with the ends of its 80 % interval."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """Samples since the start at which a target is reached, with an 80 % interval; *upper* may be infinite."""

    samples: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True, eq=False)
class AccuracyLaw:
    """Curves a − b·(k + c)^(−d) that are equally likely; made by :func:`fit_law`.

    The curves are those of the expected accuracy: one evaluation scatters around them.

    Attributes:
        a, b, c, d: parameters, of shape [MEMBERS], where k and c are in units of *unit* samples and b is as if
            (k + c) were divided by (1 + c).
        unit: samples at the last point of the fit.
        bends: whether the points bend enough to tell of a limit. Many curves are straight or even steepen before they
            bend, and every law that passes through such points is a guess.
    """

    a: Floats
    b: Floats
    c: Floats
    d: Floats
    unit: float
    bends: bool

    def at(self, samples: float) -> float:
        """Expected accuracy after *samples*."""
        return self.foreseen(samples).value

    def foreseen(self, samples: float) -> Estimate:
        """Expected accuracy after *samples*, which may be infinite, with its interval."""
        return _estimate(self._values(samples))

    @property
    def limit(self) -> Estimate:
        """The accuracy that more samples never pass."""
        return _estimate(self.a)

    def reach(self, target: float) -> Forecast | None:
        """Samples at which the expected accuracy is *target*; None if at least half of the curves stay below."""
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            grown = (self.b / (self.a - target)) ** (1 / self.d) * (1 + self.c) - self.c
        samples = np.where(self.a > target, np.maximum(grown, 0.0), np.inf) * self.unit
        found = _estimate(samples)
        return Forecast(found.value, found.lower, found.upper) if math.isfinite(found.value) else None

    def gain(self, start: float, stop: float) -> Estimate:
        """Expected rise of the accuracy from *start* samples to *stop*, which may be infinite."""
        return _estimate(self._values(stop) - self._values(start))

    def hopeless(self, target: float, at: float = math.inf) -> bool:
        """Whether even an optimist (19 curves of 20) sees the accuracy below *target* after *at* samples.

        Never while the points do not bend.
        """
        return self.bends and float(np.quantile(self._values(at), _OPTIMISTIC, method="inverted_cdf")) < target

    def _values(self, samples: float) -> Floats:
        if math.isinf(samples):
            return self.a
        # (0 + 0)^(−d) is infinite, as is what such a curve starts from
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(self.a - self.b * ((samples / self.unit + self.c) / (1 + self.c)) ** -self.d)


def _estimate(values: Floats) -> Estimate:
    """Median and interval, as values of members, so that infinite ones do no harm."""
    quantiles = ((1 - _INSIDE) / 2, 0.5, (1 + _INSIDE) / 2)
    lower, middle, upper = (float(q) for q in np.quantile(values, quantiles, method="inverted_cdf"))
    return Estimate(middle, lower, upper)


def fit_law(samples: Sequence[float], accuracies: Sequence[float], *, highest: float = 1.0) -> AccuracyLaw | None:
    """The law of the accuracies measured after so many samples.

    Points that are not finite are passed over. The last counts ten times as much as one at the start, which is another
    phase of training.

    Args:
        samples: samples since the start, from 0, in any order.
        accuracies: the accuracy after so many; same length.
        highest: accuracy that cannot be passed.

    Returns:
        None below :data:`LEAST_POINTS` different numbers of samples, or where nothing rises beyond the noise.

    Raises:
        ValueError: the lengths differ.
    """
    points = _points(samples, accuracies)
    if points is None:
        return None
    unit, x, y = points
    weights = 0.1 ** (1 - x)
    weights *= len(x) / weights.sum()
    offsets = _OFFSETS if x[0] > 0 else _OFFSETS[1:]
    c, d = (grid.ravel() for grid in np.meshgrid(offsets, _EXPONENTS, indexing="ij"))
    u = ((x + c[:, None]) / (1 + c[:, None])) ** -d[:, None]  # [c × d, points]; 1 at the last point

    grid = _solve(u, y, weights, highest)
    floor = len(x) * (_RESOLUTION * highest) ** 2
    best = int(np.argmin(grid.residual))
    mean = np.average(y, weights=weights)
    flat = float(weights @ (y - mean) ** 2) + floor
    independent = _independent(y - grid.a[best] + grid.b[best] * u[best], weights)
    freedom = max(2.0, independent - LEAST_POINTS)
    # F test of the law against a constant, whose three more parameters must earn their keep
    if grid.b[best] <= 0 or flat <= (grid.residual[best] + floor) * (1 + 8 / freedom):
        return None

    # Limits to try for each (c, d): around the best one as its error has it, and from here to the highest.
    scatter = np.sqrt((grid.residual + floor) / (freedom * independent))
    error = scatter * np.sqrt(1 + grid.centre**2 * len(x) / grid.spread)
    near = np.minimum(grid.a[:, None] + error[:, None] * _NEAR, highest)
    level = min(mean, highest)
    far = np.broadcast_to(highest - (highest - level) * _FAR, (len(c), len(_FAR)))
    a = np.sort(np.concatenate([near, far], axis=1), axis=1)
    # With a and u given, b is one weighted mean; all sums follow from a few.
    uu, u1, uy = (u**2 @ weights)[:, None], (u @ weights)[:, None], (u @ (weights * y))[:, None]
    b = np.maximum((a * u1 - uy) / uu, 0.0)
    around = (y - mean) ** 2 @ weights + len(x) * (a - mean) ** 2
    residual = np.maximum(around - 2 * b * (a * u1 - uy) + b**2 * uu, 0.0) + floor
    # Likelihood of normal noise of the size that the best curve leaves; before, all a, log c and log d are as likely.
    width = np.gradient(a, axis=1)
    mass = width * np.exp((1 - residual / residual.min()) * freedom / 2) * (b > 0)
    chosen = _resample(mass.ravel())
    rows = chosen // a.shape[1]
    drawn = np.random.default_rng(0).standard_normal(MEMBERS)
    error_b = np.sqrt(residual.ravel()[chosen] / freedom / uu[rows, 0] * len(x) / independent)
    return AccuracyLaw(
        a.ravel()[chosen], np.abs(b.ravel()[chosen] + drawn * error_b), c[rows], d[rows], unit, _bends(x, y)
    )


def _bends(x: Floats, y: Floats) -> bool:
    """Whether the later half of the points, by samples, rises less than half as fast as the earlier."""
    early, late = x <= (x[0] + x[-1]) / 2, x >= (x[0] + x[-1]) / 2
    if min(early.sum(), late.sum()) < 2:
        return False
    first, second = (float(np.polyfit(x[half], y[half], 1)[0]) for half in (early, late))
    return second < first / 2


def _points(samples: Sequence[float], values: Sequence[float]) -> tuple[float, Floats, Floats] | None:
    """Largest number of samples, samples as shares of it in rising order, and values; None if there are too few."""
    if len(samples) != len(values):
        raise ValueError(f"{len(samples)} numbers of samples for {len(values)} values")
    k, y = np.asarray(samples, dtype=np.float64), np.asarray(values, dtype=np.float64)
    known = np.isfinite(k) & np.isfinite(y) & (k >= 0)
    order = np.argsort(k[known], kind="stable")
    k, y = k[known][order], y[known][order]
    if len(np.unique(k)) < LEAST_POINTS:
        return None
    if len(k) > _MOST_POINTS:
        k, y = (np.array([part.mean() for part in np.array_split(of, _MOST_POINTS)]) for of in (k, y))
    return float(k[-1]), k / k[-1], y


@dataclass(frozen=True, slots=True)
class _Grid:
    """Least squares of y = a − b·u with b ≥ 0 and a ≤ highest for each row of u; all of shape [rows]."""

    a: Floats
    b: Floats
    residual: Floats
    centre: Floats  # weighted mean of u
    spread: Floats  # weighted sum of squares of u around it


def _solve(u: Floats, y: Floats, weights: Floats, highest: float) -> _Grid:
    total = weights.sum()
    centre = u @ weights / total
    mean = float(y @ weights / total)
    spread = np.maximum((u - centre[:, None]) ** 2 @ weights, 1e-300)
    b = -((u - centre[:, None]) @ (weights * (y - mean))) / spread
    a = mean + b * centre

    # Along a bound the problem has one unknown; a curve that falls is flat instead.
    on_highest = np.maximum(u @ (weights * (highest - y)) / (u**2 @ weights), 0.0)
    falls, above = b < 0, a > highest
    b = np.where(falls, 0.0, np.where(above, on_highest, b))
    a = np.where(falls, min(mean, highest), np.where(above, highest, a))
    residual = (y - a[:, None] + b[:, None] * u) ** 2 @ weights
    return _Grid(a, b, residual, centre, spread)


def _independent(residuals: Floats, weights: Floats) -> float:
    """How many independent points the points are worth, by their weights and the lag-1 correlation of residuals.

    A curve that bends in a way that no law does leaves residuals in waves, which must not pass for many witnesses.
    """
    worth = float(weights.sum() ** 2 / (weights**2).sum())
    power = float(residuals @ residuals)
    correlation = float(residuals[1:] @ residuals[:-1]) / power if power > 0 else 0.0
    correlation = min(max(correlation, 0.0), 0.5)
    return worth * (1 - correlation) / (1 + correlation)


def _resample(mass: Floats) -> NDArray[np.intp]:
    """Indices of MEMBERS entries, each as often as its share of *mass* says (systematic resampling)."""
    edges = np.cumsum(mass)
    at = (np.arange(MEMBERS) + 0.5) / MEMBERS * edges[-1]
    return np.asarray(np.minimum(np.searchsorted(edges, at), len(mass) - 1), dtype=np.intp)


@dataclass(frozen=True, slots=True)
class LossLaw:
    """The loss 1/(a·k + b) + c after k samples, with a > 0, b ≥ 0; *c* is the limit."""

    a: float
    b: float
    c: float

    def at(self, samples: float) -> float:
        """Expected loss after *samples*."""
        divisor = self.a * samples + self.b
        return self.c + (1 / divisor if divisor > 0 else math.inf)

    @property
    def limit(self) -> float:
        """The loss that more samples never reach."""
        return self.c

    def reach(self, target: float) -> float | None:
        """Samples since the start at which the expected loss is *target*; None if it stays above."""
        return max(0.0, (1 / (target - self.c) - self.b) / self.a) if target > self.c else None


def fit_loss(samples: Sequence[float], losses: Sequence[float], *, lowest: float = 0.0) -> LossLaw | None:
    """The law of the losses measured after so many samples.

    For each c on a grid below the losses, 1/(loss − c) is a straight line in k, whose least squares are weighted so
    that they are those of the loss.

    Args:
        samples: samples since the start, from 0, in any order.
        losses: the loss after so many; same length.
        lowest: loss that cannot be passed.

    Returns:
        None below :data:`LEAST_POINTS` different numbers of samples, or where nothing falls.

    Raises:
        ValueError: the lengths differ.
    """
    points = _points(samples, losses)
    if points is None:
        return None
    unit, x, y = points
    weights = 0.25 ** (1 - x)
    top = float(y.max()) - lowest
    bottom = float(np.sort(y)[: max(1, len(y) // 8)].mean()) - lowest
    if not 0 < bottom < top:
        return None
    gaps = np.concatenate([np.geomspace(1e-3, 1.0, 150) * bottom, [bottom]])
    best: tuple[float, LossLaw] | None = None
    for c in np.unique(lowest + bottom - gaps):
        height = np.maximum(y - c, 1e-3 * top)  # noise may carry a point below the limit
        line = weights * height**4
        centre = float(line @ x / line.sum())
        level = float(line @ (1 / height) / line.sum())
        slope = float(line @ ((x - centre) * (1 / height - level)) / (line @ (x - centre) ** 2))
        b = level - slope * centre
        if b < 0:  # through the origin
            b, slope = 0.0, float(line @ (x / height) / (line @ x**2))
        if slope <= 0:
            continue
        with np.errstate(divide="ignore"):
            residual = float(weights @ (y - c - 1 / (slope * x + b)) ** 2)
        if best is None or residual < best[0]:
            best = residual, LossLaw(slope / unit, b, float(c))
    return best[1] if best is not None and math.isfinite(best[0]) else None


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do after an evaluation.

    Attributes:
        stop: whether training ends here.
        why: ``reached`` (the target is met), ``hopeless`` (it is out of reach), ``plateau`` (too little is left to
            gain) or ``go on``.
        reason: the same in one sentence, with figures.
        forecast: samples since the start at which the target is foreseen; None without one.
        further: samples from here to there; None without a forecast.
    """

    stop: bool
    why: Literal["reached", "hopeless", "plateau", "go on"]
    reason: str
    forecast: Forecast | None = None
    further: float | None = None


class EarlyStop:
    """Decides after each evaluation whether to go on.

    A verdict of hopelessness or of a plateau must come *patience* times in a row, since one evaluation may mislead. The
    same evaluations give the same decisions, so after a restart it is enough to feed them again.

    Args:
        target: accuracy to reach; None if there is none.
        min_gain: a plateau is where even an optimist foresees less gain than this over the rest of the budget; None if
            a plateau is no reason to stop.
        budget: samples after which training ends anyhow, since the start; infinite if there is no end.
        patience: verdicts in a row.
        least_points: evaluations before the first verdict.
        highest: accuracy that cannot be passed.
        hopeless: whether a target that is out of reach is a reason to stop.
    """

    def __init__(
        self,
        target: float | None,
        min_gain: float | None = 0.001,
        *,
        budget: float = math.inf,
        patience: int = 2,
        least_points: int = 6,
        highest: float = 1.0,
        hopeless: bool = True,
    ) -> None:
        self._hopeless = hopeless
        self.target = target
        self.min_gain = min_gain
        self.budget = budget
        self._patience = patience
        self._least = max(least_points, LEAST_POINTS)
        self._highest = highest
        self._samples: list[float] = []
        self._accuracies: list[float] = []
        self._verdicts: list[str] = []
        self.law: AccuracyLaw | None = None

    def evaluated(self, samples: float, accuracy: float) -> Decision:
        """Take in the *accuracy* after *samples*, and decide.

        Evaluations of as many samples or more are forgotten: the run went back to a checkpoint.
        """
        while self._samples and self._samples[-1] >= samples:
            for known in (self._samples, self._accuracies, self._verdicts):
                known.pop()
        self._samples.append(samples)
        self._accuracies.append(accuracy)
        decision = self._verdict(samples, accuracy)
        self._verdicts.append(decision.why)
        if decision.stop and decision.why != "reached":
            row = self._verdicts[-self._patience :]
            if len(row) < self._patience or any(why != decision.why for why in row):
                reason = f"goes on until this is confirmed: {decision.reason}"
                return Decision(False, "go on", reason, decision.forecast, decision.further)
        return decision

    def _verdict(self, samples: float, accuracy: float) -> Decision:
        target = self.target
        if target is not None and accuracy >= target:
            reason = f"the accuracy of {_percent(accuracy)} meets the target of {_percent(target)}"
            return Decision(True, "reached", reason, None, 0.0)
        self.law = fit_law(self._samples, self._accuracies, highest=self._highest)
        forecast = self.law.reach(target) if self.law and target is not None else None
        further = max(0.0, forecast.samples - samples) if forecast else None
        if self.law and len(self._samples) >= self._least and self.budget > samples:
            until = "ever" if math.isinf(self.budget) else f"within the budget of {self.budget:,.0f} samples"
            foreseen = self.law.foreseen(self.budget)
            if target is not None and self._hopeless and self.law.hopeless(target, self.budget):
                reason = (
                    f"the target of {_percent(target)} is not foreseen {until}: {_percent(foreseen.value)}, "
                    f"at most {_percent(foreseen.upper)}"
                )
                return Decision(True, "hopeless", reason, forecast, further)
            gain = self.law.gain(samples, self.budget)
            if self.min_gain is not None and gain.upper < self.min_gain:
                rest = (
                    "from here on" if math.isinf(self.budget) else f"in the {self.budget - samples:,.0f} samples left"
                )
                reason = f"a gain of {100 * gain.value:.2g} points is foreseen {rest}, below {100 * self.min_gain:.2g}"
                return Decision(True, "plateau", reason, forecast, further)
        elif self.law is None and self._level():
            least = f"{100 * (self.min_gain or 0):.2g} points"
            reason = f"the accuracy has not risen by {least} in {len(self._samples)} evaluations"
            return Decision(True, "plateau", reason)
        return Decision(False, "go on", self._outlook(forecast, further, samples), forecast, further)

    def _level(self) -> bool:
        """Whether the later half of the evaluations is, as far as their scatter lets on, no better than the earlier."""
        half = len(self._samples) // 2
        if self.min_gain is None or half < self._least:
            return False
        early, late = np.array(self._accuracies[:half]), np.array(self._accuracies[-half:])
        scatter = math.sqrt((early.var(ddof=1) + late.var(ddof=1)) / half)
        return bool(late.mean() - early.mean() + 1.3 * scatter < self.min_gain)

    def _outlook(self, forecast: Forecast | None, further: float | None, samples: float) -> str:
        if self.law is None:
            few = len(self._samples) < LEAST_POINTS
            return "too few evaluations for a forecast" if few else "no rise of the accuracy to foresee anything by"
        if self.target is None:
            limit = self.law.foreseen(self.budget)
            return f"an accuracy of {_percent(limit.value)} is foreseen, at most {_percent(limit.upper)}"
        if forecast is None or further is None:
            return f"the target of {_percent(self.target)} is possible, but not foreseen"
        lower, upper = (max(0.0, end - samples) for end in (forecast.lower, forecast.upper))
        ends = f"at least {lower:,.0f}" if math.isinf(upper) else f"{lower:,.0f} to {upper:,.0f}"
        return f"the target of {_percent(self.target)} is foreseen in {further:,.0f} more samples ({ends})"


def _percent(accuracy: float) -> str:
    return f"{100 * accuracy:.2f} %"
