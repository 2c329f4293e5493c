"""Whether more or fewer tasks would help a job: what it asks of whoever grants it nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WORTHWHILE = 0.7
"""Share of the workers' time that must go into computing for more workers to be worth asking for."""

WASTED = 0.35
"""Share of the workers' time in computing below which fewer workers would do about as well."""

USELESS = 0.1
"""A worker slower than this fraction of the mean is not worth its place in a barrier."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the job asks for.

    Attributes:
        workers: workers that it would like to have.
        without: workers that it would rather give back, by name.
        reason: why, as a sentence.
    """

    workers: int
    without: tuple[str, ...] = ()
    reason: str = ""


def wish(workers: int, computing: float, weights: Mapping[str, float], least: int, most: int) -> Wish:
    """What a job asks for.

    Args:
        workers: that it has.
        computing: share of the workers' time that goes into computing, lately; the rest is waiting and communication.
        weights: of the workers, in any unit of speed.
        least, most: bounds of the number of workers.
    """
    mean = sum(weights.values()) / max(len(weights), 1)
    slow = sorted(name for name, weight in weights.items() if weight < USELESS * mean)
    if slow and workers - len(slow) >= least:
        verb = "contributes" if len(slow) == 1 else "each contribute"
        reason = f"{', '.join(slow)} {verb} less than a tenth of what a worker does on average"
        return Wish(workers - len(slow), tuple(slow), reason)
    if computing >= WORTHWHILE and workers < most:
        return Wish(workers + 1, (), f"the workers compute {computing:.0%} of the time, so one more would add speed")
    if computing < WASTED and workers > least:
        slowest = min(weights, key=lambda name: (weights[name], name)) if weights else ""
        reason = f"the workers compute only {computing:.0%} of the time, so one fewer would cost little"
        return Wish(workers - 1, (slowest,) if slowest else (), reason)
    return Wish(workers)
