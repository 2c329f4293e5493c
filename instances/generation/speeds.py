"""Speeds of generated jobs: the catalogue's coefficients for a worker of so many GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from coplace.instances.generation.catalogue import SHARED_OF_NODE
from coplace.instances.generation.network import Network, coefficients
from coplace.instances.speed import (
    AllReduceCoefficients,
    AllReduceSpeed,
    Interference,
    PsAsyncSpeed,
    PsCoefficients,
    PsSyncSpeed,
    Spread,
)

FormSpeed = PsSyncSpeed | PsAsyncSpeed | AllReduceSpeed

STALENESS_COST = 0.01
"""Loss of statistical efficiency per further asynchronous worker (assumption: a tenth is lost with about 12)."""

ONSET = 0.25
"""Pressure below which tasks do not feel their neighbours (assumption)."""


class SpeedMaker:
    """Builds speeds for the GPU types of one cluster; jobs that are alike share one object."""

    def __init__(self, gpu_types: Iterable[str], relative: dict[str, dict[str, float]]) -> None:
        self._relative = relative
        self._types = tuple(sorted(gpu_types))
        self._make = lru_cache(maxsize=None)(self._build)

    def __call__(self, network: Network, gpus: int, batch: int) -> FormSpeed:
        """Speed of *network* with workers of *gpus* GPUs and *batch* samples per step and GPU of a worker."""
        return self._make(_Key(network), gpus, batch)

    def _build(self, key: _Key, gpus: int, batch: int) -> FormSpeed:
        network = key.network
        interference = Interference(slope=round(SHARED_OF_NODE * network.neighbour, 3), onset=ONSET)
        spread = Spread(slope=network.spread)
        found = {gpu: coefficients(network, gpu, gpus, self._relative) for gpu in self._types}
        total = float(batch * gpus)
        if network.form == "allreduce":
            rings = {gpu: ring for gpu, ring in found.items() if isinstance(ring, AllReduceCoefficients)}
            return AllReduceSpeed(form="allreduce", batch=total, types=rings, interference=interference, spread=spread)
        types = {gpu: ps for gpu, ps in found.items() if isinstance(ps, PsCoefficients)}
        if network.form == "ps-sync":
            return PsSyncSpeed(form="ps-sync", batch=total, types=types, interference=interference, spread=spread)
        return PsAsyncSpeed(
            form="ps-async",
            batch=total,
            types=types,
            staleness_cost=STALENESS_COST,
            interference=interference,
            spread=spread,
        )


class _Key:
    """A network by name and form, which together are unique; its own fields cannot be hashed."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._words = (network.name, network.form)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._words == other._words

    def __hash__(self) -> int:
        return hash(self._words)


def rough_times(speed: FormSpeed, gpu_type: str, workers: int, servers: int) -> tuple[float, float]:
    """Computation and communication of one step in s, packed and alone, without slowdowns.

    Only for drawing plausible work and intensities: the speed that counts is that of ``coplace.formulations``.
    """
    w, p = workers, servers
    if isinstance(speed, AllReduceSpeed):
        ring = speed.types[gpu_type]
        inter = ring.latency_inter * (w - 1) + ring.transfer_inter * 2 * (w - 1) / w
        return ring.a * speed.batch / w + ring.b, inter
    ps = speed.types[gpu_type]
    samples = speed.batch / w if isinstance(speed, PsSyncSpeed) else speed.batch
    return ps.a * samples + ps.b, ps.c * w / p + ps.d * w + ps.e * p


def rough_speed(speed: FormSpeed, gpu_type: str, workers: int, servers: int) -> float:
    """Samples per second under the same simplifications."""
    step = sum(rough_times(speed, gpu_type, workers, servers))
    return (workers if isinstance(speed, PsAsyncSpeed) else 1) * speed.batch / step
