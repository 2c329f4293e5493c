"""What an instance says about a job's training speed: a form with fitted coefficients, or a measured table.

Only the data stands here; :mod:`coplace.formulations.speed` computes with it. All times are in seconds per step.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from coplace.instances.base import Count, Name, NonNegative, Number, Positive, Record

AtLeastOne = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]


class Interference(Record):
    """φ(τ) = 1 + slope · max(0, τ − onset): how pressure τ on the worst node of a job stretches its computation."""

    slope: NonNegative = 0.0
    onset: NonNegative = 0.0


class Spread(Record):
    """ψ(m) = 1 + slope · (1 − 1/m): how a span of m nodes stretches communication (share of it that leaves a node)."""

    slope: NonNegative = 0.0


class SpeedForm(Record):
    """What all forms have in common."""

    interference: Interference = Interference()
    spread: Spread = Spread()


class PsCoefficients(Record):
    """Coefficients of a parameter-server job on one GPU type, all ≥ 0 and a + b ≥ 1e-12.

    ps-sync:  T = (a·B/w + b)·φ + (c·w/p + d·w + e·p)·ψ, samples/s = B/T.
    ps-async: T = (a·β + b)·φ + (c·w/p + d·w + e·p)·ψ, samples/s = w·β/T.
    Source: Peng et al., Optimus, EuroSys 2018, section 3.2, with φ and ψ added.

    Attributes:
        a: seconds of computation per sample.
        b: seconds of computation per step.
        c: seconds of transfer, times p, per worker (gradients and parameters through a server).
        d: seconds of overhead per worker.
        e: seconds of overhead per server.
    """

    a: NonNegative
    b: NonNegative = 0.0
    c: NonNegative = 0.0
    d: NonNegative = 0.0
    e: NonNegative = 0.0


class AllReduceCoefficients(Record):
    """Coefficients of an all-reduce job on one GPU type, all ≥ 0 and a + b ≥ 1e-12.

    T = (a·B/w + b)·φ + (latency·(w − 1) + transfer·2·(w − 1)/w)·ψ, samples/s = B/T: a ring of w workers
    (Patarasuk and Yuan, JPDC 2009). The ``intra`` values hold for span 1, the ``inter`` values above;
    one that is not given is the ``intra`` one.

    Attributes:
        a: seconds of computation per sample.
        b: seconds of computation per step.
        latency_intra, latency_inter: seconds per hop of the ring.
        transfer_intra, transfer_inter: seconds to send the gradients once over one link.
    """

    a: NonNegative
    b: NonNegative = 0.0
    latency_intra: NonNegative = 0.0
    latency_inter: NonNegative = 0.0
    transfer_intra: NonNegative = 0.0
    transfer_inter: NonNegative = 0.0

    @model_validator(mode="before")
    @classmethod
    def _as_fast_between_nodes(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        missing = {f"{key}_inter": data.get(f"{key}_intra", 0.0) for key in ("latency", "transfer")}
        return missing | data


class PsSyncSpeed(SpeedForm):
    """Synchronous parameter server (BSP): a global batch of ``batch`` samples split over the workers."""

    form: Literal["ps-sync"]
    batch: Positive
    types: Annotated[dict[Name, PsCoefficients], Field(min_length=1)]


class PsAsyncSpeed(SpeedForm):
    """Asynchronous parameter server (ASP, SSP): every worker takes steps of ``batch`` samples on its own.

    ``staleness_cost`` s makes the statistical efficiency 1 / (1 + s·(w − 1)): the share of the samples' worth that
    is left when w workers compute on stale parameters.
    """

    form: Literal["ps-async"]
    batch: Positive
    types: Annotated[dict[Name, PsCoefficients], Field(min_length=1)]
    staleness_cost: NonNegative = 0.0


class AllReduceSpeed(SpeedForm):
    """Synchronous ring all-reduce: a global batch of ``batch`` samples split over the workers."""

    form: Literal["allreduce"]
    batch: Positive
    types: Annotated[dict[Name, AllReduceCoefficients], Field(min_length=1)]


class SpeedPoint(Record):
    """A measured speed in samples/s on ``gpu_type`` with so many workers and servers, packed and alone."""

    gpu_type: Name
    workers: AtLeastOne
    servers: Count = 0
    speed: Positive


class TableSpeed(SpeedForm):
    """Measured speeds, interpolated and never extrapolated.

    Rule: on each GPU type, for each measured server count the speed is linear in the worker count between
    neighbouring points; then, for each worker count, linear in the server count between neighbouring server counts
    that have a value there. Counts outside of what this covers have no speed, and so are no configurations.
    Of the step time the share ``communication_share`` is stretched by ψ and the rest by φ.
    """

    form: Literal["table"]
    points: Annotated[tuple[SpeedPoint, ...], Field(min_length=1)]
    communication_share: Annotated[Number, Field(ge=0, le=1)] = 0.0


Speed = Annotated[PsSyncSpeed | PsAsyncSpeed | AllReduceSpeed | TableSpeed, Field(discriminator="form")]
"""The speed of a job as an instance states it."""


def speed_types(speed: PsSyncSpeed | PsAsyncSpeed | AllReduceSpeed | TableSpeed) -> tuple[str, ...]:
    """GPU types that *speed* knows, sorted."""
    if isinstance(speed, TableSpeed):
        return tuple(sorted({point.gpu_type for point in speed.points}))
    return tuple(sorted(speed.types))
