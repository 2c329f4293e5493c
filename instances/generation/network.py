"""A kind of network: what the catalogue says of it, and what follows for workers of several GPUs and few CPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coplace.instances.speed import AllReduceCoefficients, PsCoefficients

Coefficients = PsCoefficients | AllReduceCoefficients

FURTHER_GPU_COST = 0.0102
"""Share of a GPU's speed lost per further GPU of the same worker: speed(g) = g · speed(1) · (1 − x·(g − 1)).

TensorFlow's benchmark tables, 8 GPUs against 1 in one machine, median (K80 and P100, four networks)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network as the catalogue describes it.

    Attributes:
        name: of the network.
        form: form of its speed.
        batches: batch sizes that jobs use, samples per step and GPU of a worker: of all workers together (ps-sync,
            allreduce) or of each (ps-async).
        measured: GPU type → coefficients for workers of one GPU, in seconds.
        relative: whose ratios between GPU types hold for it, a key of :data:`~.catalogue.RELATIVE_SPEED`.
        parameters_mib: size of the parameters in FP32, MiB; 0 where nothing depends on it (all-reduce).
        tensor_mib: size of the largest tensor, MiB.
        cpu: key of :data:`~.catalogue.CPU_SLOWDOWN`.
        spread: slope of ψ.
        neighbour: stretch of a step when a neighbour shares the GPU, less 1.
    """

    name: str
    form: Literal["ps-sync", "ps-async", "allreduce"]
    batches: tuple[int, ...]
    measured: dict[str, Coefficients]
    relative: str
    parameters_mib: int = 0
    tensor_mib: int = 0
    cpu: str
    spread: float = 0.0
    neighbour: float


def significant(value: float) -> float:
    """*value* rounded to four significant digits."""
    return float(f"{value:.3e}")


def coefficients(network: Network, gpu_type: str, gpus: int, relative: dict[str, dict[str, float]]) -> Coefficients:
    """Coefficients of *network* for workers of *gpus* GPUs of *gpu_type*.

    A type that was not measured takes the computation (a, b) of the one whose speed is nearest, divided by the ratio
    of their speeds in *relative*; communication stays, being up to network and CPUs. More GPUs in a worker shorten the
    computation per sample; what the worker sends once per step does not change (its GPUs reduce among themselves).
    """
    ratios = relative[network.relative]
    source = min(network.measured, key=lambda known: (abs(ratios[known] - ratios[gpu_type]), known))
    found = network.measured[source]
    ratio = 1.0 if source == gpu_type else ratios[gpu_type] / ratios[source]
    speedup = ratio * gpus * (1 - FURTHER_GPU_COST * (gpus - 1))
    return found.model_copy(update={"a": significant(found.a / speedup), "b": significant(found.b / ratio)})


def cpu_slowdown(
    network: Network,
    gpu_type: str,
    cpus_per_gpu: float,
    relative: dict[str, dict[str, float]],
    curves: dict[str, dict[int, float]],
) -> float:
    """Factor ≥ 1 on the computation of *network* with so many CPUs per GPU of *gpu_type*.

    The curve was measured on fast GPUs, taken as V100. Loading and computing overlap, so that the slower one sets the
    pace: on a GPU that computes r times as fast as a V100 the same CPUs slow by r times the factor, and never below 1.
    Between measured CPU counts the rate of loading is linear.
    """
    curve = curves[network.cpu]
    known = sorted(curve)
    low = max((cpus for cpus in known if cpus <= cpus_per_gpu), default=known[0])
    high = min((cpus for cpus in known if cpus >= cpus_per_gpu), default=known[-1])
    rate = 1 / curve[low]
    if cpus_per_gpu < known[0]:
        rate *= cpus_per_gpu / known[0]
    elif low != high:
        rate += (1 / curve[high] - 1 / curve[low]) * (cpus_per_gpu - low) / (high - low)
    ratios = relative[network.relative]
    return round(max(1.0, ratios[gpu_type] / ratios["v100"] / rate), 2)
