"""How fast each worker is at present, from the durations of its steps."""

from __future__ import annotations

import math
from statistics import median

SMOOTHING = 0.2
"""Weight of a step in the smoothed speed: of noise with deviation σ, a deviation of σ/3 is left."""

JUMP = 1.25
"""A step that is faster or slower than expected by more than this factor is an outlier, or the first of a change."""

NOISY = 2.0
"""Most that the factor becomes for a worker whose steps are noisy: three times their deviation if that is more."""

ASIDE = 4
"""So many steps in a row outside on the same side are a change even if no two neighbours agree."""

_DEVIATIONS = 3 * math.sqrt(math.pi / 2)  # three standard ones as a multiple of the mean absolute one, of normal noise


class SpeedEstimate:
    """Samples per second of each worker: smoothed exponentially, deaf to a single outlier, quick after a change.

    A step within :data:`JUMP` of the estimate is averaged in, geometrically, since a speed is a ratio. One outside is
    set aside. When two in a row are outside on the same side and agree, the speed has changed, and the estimate starts
    again from them; of steps that do not agree it takes :data:`ASIDE`, and starts from their median. A change in the
    middle of a step is thus followed after two whole steps. Where steps are so noisy that chance takes one in a hundred
    outside, the factor grows with the noise. After a start the estimate is the plain mean of the steps since, until
    that is as smooth as the smoothing.

    Shares of a batch b_i in proportion to these speeds lead to equal step times also where a step has a fixed overhead,
    t_i = o_i + b_i / s_i, when repeated: the measured b_i / t_i grows with b_i, but less than in proportion, so the
    shares settle where t_i is the same for all.
    """

    def __init__(self, smoothing: float = SMOOTHING, jump: float = JUMP) -> None:
        """Know no worker yet.

        Raises:
            ValueError: *smoothing* is not in (0, 1], or *jump* is not above 1.
        """
        if not (0 < smoothing <= 1 and jump > 1):
            raise ValueError(f"smoothing must be in (0, 1] and jump above 1; found {smoothing} and {jump}")
        self._smoothing = smoothing
        self._jump = math.log(jump)
        self._workers: dict[str, _Level] = {}

    def add(self, worker: str, samples: int, seconds: float) -> None:
        """Take a step into account: so many samples, at least 1, in so many seconds, more than 0.

        Raises:
            ValueError: a number is out of range, or infinite.
        """
        if samples < 1 or not 0 < seconds < math.inf:
            raise ValueError(f"a step has at least 1 sample and takes a time; found {samples} samples in {seconds} s")
        value = math.log(samples / seconds)
        if worker not in self._workers:
            self._workers[worker] = _Level(value)
        else:
            self._workers[worker].add(value, self._smoothing, self._jump)

    def speed(self, worker: str) -> float | None:
        """Samples per second; None before the first step."""
        level = self._workers.get(worker)
        return None if level is None else math.exp(level.value)

    def speeds(self) -> dict[str, float]:
        """Samples per second of all that made a step, by name."""
        return {worker: math.exp(self._workers[worker].value) for worker in sorted(self._workers)}

    def steps(self, worker: str) -> int:
        """Steps that the estimate rests on: those since its last start; 0 before the first."""
        return self._workers[worker].steps if worker in self._workers else 0

    def forget(self, worker: str) -> None:
        """The worker is gone; no error if it was never there."""
        self._workers.pop(worker, None)


class _Level:
    """The estimate for one worker, as the logarithm of samples per second."""

    __slots__ = ("aside", "noise", "steps", "value")

    def __init__(self, value: float) -> None:
        self.value = value
        self.steps = 1
        self.noise = 0.0  # smoothed absolute deviation of steps that are no outliers
        self.aside: list[float] = []

    def add(self, value: float, smoothing: float, jump: float) -> None:
        deviation = value - self.value
        jump = max(jump, min(math.log(NOISY), _DEVIATIONS * self.noise))
        if abs(deviation) <= jump:
            self.aside.clear()
            self.steps += 1
            self.noise += (abs(deviation) - self.noise) * smoothing / 2
            self.value += deviation * max(smoothing, 1 / self.steps)
            return
        if self.aside and (self.aside[-1] > self.value) != (deviation > 0):
            self.aside.clear()
        self.aside.append(value)
        if len(self.aside) > 1 and abs(value - self.aside[-2]) <= jump:
            self._start(self.aside[-2:])
        elif len(self.aside) == ASIDE:
            self._start(self.aside)

    def _start(self, values: list[float]) -> None:
        self.value = median(values)
        self.steps = len(values)
        self.aside.clear()
