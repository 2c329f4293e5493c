"""Who gets how much of each step: by rule, by the resources of the nodes, or by measured speed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from coplace.training.scheduling.speeds import SpeedEstimate

SMOOTHING_SECONDS = 5.0
"""Time constant with which sampled resources are smoothed."""

TOGETHER = 0.03
"""Share by which the logarithms of measured speeds are drawn together; a worker of a third of the speed of the others
takes 3 % longer for it."""

SMOOTHING = 0.1
"""Weight of a step in a worker's speed: little, since noise would make the shares of equal workers unequal; a change by
more than a quarter is taken over at once all the same."""

LEAST_SHARE = 0.05
"""Least weight of a worker, as a share of an equal one: it is measured with little noise still."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of one step of a worker.

    Attributes:
        samples: in the step.
        seconds: from when the worker was given the step until its gradient was with all servers.
        compute_seconds: of them, in forward and backward.
        cpu_seconds: CPU time in forward and backward, of all threads.
    """

    samples: int
    seconds: float
    compute_seconds: float
    cpu_seconds: float


class Balance(Protocol):
    """Weights of workers, by which batches and partitions are shared out."""

    def saw(self, worker: str, seen: Seen) -> None:
        """Take a step into account."""

    def forget(self, worker: str) -> None:
        """A worker is gone."""

    def weights(self, cores: Mapping[str, float], batch: int) -> dict[str, float]:
        """Weight of each worker, above 0, for steps of *batch* samples of all together.

        *cores* has, for every worker, the cores that it may use at most.
        """
        ...


class Static:
    """All the same, whatever the nodes are like."""

    def saw(self, worker: str, seen: Seen) -> None:
        """Not looked at."""

    def forget(self, worker: str) -> None:
        """Nothing is kept."""

    def weights(self, cores: Mapping[str, float], batch: int) -> dict[str, float]:
        """All 1."""
        return dict.fromkeys(cores, 1.0)


class Dynamic:
    """By sampled resources: the cores that a worker really gets while it computes, smoothed over seconds.

    A worker of which nothing is known yet counts with the cores that its node has for it. It sees other users of the
    node, and limits, but not that cores of one node are slower than those of another.
    """

    def __init__(self) -> None:
        self._cores: dict[str, float] = {}

    def saw(self, worker: str, seen: Seen) -> None:
        """Smooth the cores used, by the length of the step."""
        if seen.compute_seconds <= 0:
            return
        cores = max(seen.cpu_seconds / seen.compute_seconds, 0.01)
        share = min(1.0, seen.compute_seconds / SMOOTHING_SECONDS)
        before = self._cores.get(worker, cores)
        self._cores[worker] = before + share * (cores - before)

    def forget(self, worker: str) -> None:
        """Drop what was known."""
        self._cores.pop(worker, None)

    def weights(self, cores: Mapping[str, float], batch: int) -> dict[str, float]:
        """Cores that each gets."""
        return {worker: self._cores.get(worker, max(most, 0.01)) for worker, most in cores.items()}


class Adaptive:
    """By measured speed, so that all reach the barrier together (Chen et al., "Semi-dynamic load balancing", 2020).

    A step of b samples takes worker i the time o_i + b / s_i: what it takes whatever b is, to fetch parameters and to
    send the gradient, and the samples at its speed. All take the same time T with b_i = s_i · (T − o_i), and
    T = (B + Σ s_i · o_i) / Σ s_i makes them B in all. Where computing itself takes a time that hardly depends on b,
    the measured b / t grows with b and any shares would confirm themselves; so speeds are drawn together a little, to
    the power of 1 − :data:`TOGETHER`, which lets such shares return to equal ones.

    A worker without a measured step counts with the mean of the others.
    """

    def __init__(self) -> None:
        self._speeds = SpeedEstimate(smoothing=SMOOTHING)
        self._overheads: dict[str, float] = {}

    def saw(self, worker: str, seen: Seen) -> None:
        """Take the speed and the overhead of a step into account."""
        if seen.samples < 1 or seen.compute_seconds <= 0:
            return
        self._speeds.add(worker, seen.samples, seen.compute_seconds)
        overhead = max(0.0, seen.seconds - seen.compute_seconds)
        before = self._overheads.get(worker, overhead)
        self._overheads[worker] = before + 0.2 * (min(overhead, 4 * before + 0.01) - before)

    def forget(self, worker: str) -> None:
        """Drop what was known."""
        self._speeds.forget(worker)
        self._overheads.pop(worker, None)

    def weights(self, cores: Mapping[str, float], batch: int) -> dict[str, float]:
        """Samples of each worker, fractions included."""
        measured = {worker: speed for worker, speed in self._speeds.speeds().items() if worker in cores}
        if not measured:
            return dict.fromkeys(cores, 1.0)
        mean = sum(measured.values()) / len(measured)
        speeds = {worker: mean * (measured.get(worker, mean) / mean) ** (1 - TOGETHER) for worker in cores}
        usual = sum(self._overheads[worker] for worker in measured) / len(measured)
        overheads = {worker: self._overheads.get(worker, usual) for worker in cores}
        whole = sum(speeds.values())
        together = (batch + sum(speeds[worker] * overheads[worker] for worker in cores)) / whole
        least = LEAST_SHARE * batch / len(cores)
        return {worker: max(speeds[worker] * (together - overheads[worker]), least) for worker in cores}


def balance(name: str) -> Balance:
    """The balance called ``static``, ``dynamic`` or ``adaptive``."""
    kinds: dict[str, type[Balance]] = {"static": Static, "dynamic": Dynamic, "adaptive": Adaptive}
    return kinds[name]()
