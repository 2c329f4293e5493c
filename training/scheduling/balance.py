"""Who gets how much of each step: by rule, by the resources of the nodes, or by measured speed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from coplace.training.scheduling.speeds import SpeedEstimate

SMOOTHING_SECONDS = 5.0
"""Time constant with which sampled resources are smoothed."""


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

    def weights(self, cores: Mapping[str, float]) -> dict[str, float]:
        """Weight of each worker, above 0. *cores* has, for every worker, the cores that it may use at most."""
        ...


class Static:
    """All the same, whatever the nodes are like."""

    def saw(self, worker: str, seen: Seen) -> None:
        """Not looked at."""

    def forget(self, worker: str) -> None:
        """Nothing is kept."""

    def weights(self, cores: Mapping[str, float]) -> dict[str, float]:
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

    def weights(self, cores: Mapping[str, float]) -> dict[str, float]:
        """Cores that each gets."""
        return {worker: self._cores.get(worker, max(most, 0.01)) for worker, most in cores.items()}


class Adaptive:
    """By measured speed, so that all reach the barrier together: LB-BSP's idea (Chen et al., "Semi-dynamic load
    balancing", SoCC 2020), on whole steps with their communication.

    A worker without a measured step counts with the mean of the others.
    """

    def __init__(self) -> None:
        self._speeds = SpeedEstimate(smoothing=0.3)

    def saw(self, worker: str, seen: Seen) -> None:
        """Take the speed of a step into account."""
        if seen.samples > 0 and seen.seconds > 0:
            self._speeds.add(worker, seen.samples, seen.seconds)

    def forget(self, worker: str) -> None:
        """Drop what was known."""
        self._speeds.forget(worker)

    def weights(self, cores: Mapping[str, float]) -> dict[str, float]:
        """Samples per second."""
        known = {worker: speed for worker, speed in self._speeds.speeds().items() if worker in cores}
        mean = sum(known.values()) / len(known) if known else 1.0
        return {worker: known.get(worker, mean) for worker in cores}


def balance(name: str) -> Balance:
    """The balance called ``static``, ``dynamic`` or ``adaptive``."""
    kinds: dict[str, type[Balance]] = {"static": Static, "dynamic": Dynamic, "adaptive": Adaptive}
    return kinds[name]()
