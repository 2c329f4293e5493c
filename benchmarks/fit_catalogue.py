"""Fit the figures of :mod:`coplace.instances.generation.catalogue` to measured public data, and print them.

Run ``python -m benchmarks.fit_catalogue``. The data is looked for in the folder ``COPLACE_DATA``, by default
``../shared/data`` beside the checkout. Each line gives the coefficients and the mean and largest relative error of
the step time over the measured points. Coefficients are seconds; see :mod:`coplace.instances.speed` for the forms.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Row = dict[str, str]

PS = ("a", "b", "c", "d", "e")
"""Coefficients of the parameter-server forms."""

RING = ("a", "b", "latency_intra", "transfer_intra", "latency_inter", "transfer_inter")
"""Coefficients of the all-reduce form."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients with how well they explain the data.

    Attributes:
        coefficients: name → seconds, four significant digits.
        mean_error, max_error: of the step time, relative to what was measured.
        points: measurements.
    """

    coefficients: dict[str, float]
    mean_error: float
    max_error: float
    points: int


def default_data() -> Path:
    """The folder with the data: ``COPLACE_DATA``, or ``shared/data`` beside the checkout."""
    return Path(os.environ.get("COPLACE_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")


def rows(data: Path, name: str, keep: Callable[[Row], bool] = lambda row: True) -> list[Row]:
    """Rows of one file that *keep* accepts; raises ``OSError`` if the file is missing."""
    with (data / name).open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if keep(row)]


def nnls(matrix: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """The x ≥ 0 with the least |matrix·x − target|; matrix (m, n) with n ≤ 6 or so, target (m,).

    Tries every set of columns that may be above zero. The optimum restricted to its own support is an ordinary
    least-squares solution, so it is among those tried, and with six columns there are only 63.
    """
    columns = matrix.shape[1]
    best, best_error = np.zeros(columns), float(np.sum(target**2))
    for size in range(1, columns + 1):
        for support in itertools.combinations(range(columns), size):
            part, *_ = np.linalg.lstsq(matrix[:, support], target, rcond=None)
            if (part < 0).any():
                continue
            error = float(np.sum((matrix[:, support] @ part - target) ** 2))
            if error < best_error * (1 - 1e-9):  # ties go to fewer coefficients
                best, best_error = np.zeros(columns), error
                best[list(support)] = part
    return best


def fit(names: Sequence[str], features: Iterable[Sequence[float]], times: Iterable[float]) -> Fit:
    """Fit step times (s) linearly to *features* (points, coefficients), weighing relative errors."""
    matrix, measured = np.array(list(features), dtype=float), np.array(list(times), dtype=float)
    found = nnls(matrix / measured[:, None], np.ones(len(measured)))
    rounded = np.array([significant(value) for value in found])
    errors = np.abs(matrix @ rounded / measured - 1)
    return Fit(
        dict(zip(names, rounded.tolist(), strict=True)), float(errors.mean()), float(errors.max()), len(measured)
    )


def significant(value: float, digits: int = 4) -> float:
    """*value* rounded to so many significant digits."""
    return float(f"{value:.{digits - 1}e}")


# Parameter servers ---------------------------------------------------------------------------------------------------


def dl2(data: Path) -> dict[str, Fit]:
    """Synchronous jobs of DL2: T = a·B/w + b + c·w/p + d·w + e·p over (w, p) at one global batch B."""
    measured = rows(data, "speed_ps_dl2.csv", lambda row: row["ok"] == "1")
    fits = {}
    for model in dict.fromkeys(row["model"] for row in measured):
        chosen = [row for row in measured if row["model"] == model]
        counts = [(float(row["total_batch"]), int(row["num_workers"]), int(row["num_ps"])) for row in chosen]
        features = [(batch / w, 1.0, w / p, w, p) for batch, w, p in counts]
        fits[model] = fit(PS, features, (float(row["step_time_s"]) for row in chosen))
    return fits


def cmdare(data: Path) -> dict[tuple[str, str], Fit]:
    """Asynchronous jobs of CM-DARE by (model, GPU type): a worker's step takes T = w / (steps per second of all).

    The batch of a worker never varies, so that a·β and b cannot be told apart: all of it is booked under a.
    """
    measured = rows(data, "speed_ps_cmdare.csv")
    fits = {}
    for model, gpu in dict.fromkeys((row["model"], row["gpu"]) for row in measured):
        chosen = [row for row in measured if (row["model"], row["gpu"]) == (model, gpu)]
        features, times = [], []
        for row in chosen:
            w, p = int(row["num_workers"]), int(row["num_ps"])
            features.append((float(row["batch_per_worker"]), 0.0, w / p, w, p))
            times.append(w / float(row["speed_steps_per_s_median"]))
        fits[model, gpu] = fit(PS, features, times)
    return fits


def transient(data: Path) -> Fit:
    """Asynchronous ResNet-32 on V100 (batch 128, as in CM-DARE), one zone, one GPU type, 1–8 workers, 1–2 servers."""
    chosen = rows(
        data,
        "speed_ps_transient.csv",
        lambda row: (
            row["placement"] == "same_zone"
            and row["num_ps_basis"] == "stated"
            and row["worker_gpus"] == f"{row['num_workers']}*v100"
        ),
    )
    counts = [(int(row["num_workers"]), int(row["num_ps"]), float(row["speed_steps_per_s"])) for row in chosen]
    return fit(PS, [(128.0, 0.0, w / p, w, p) for w, p, _ in counts], [w / speed for w, _, speed in counts])


def single_worker_ratio(data: Path) -> dict[str, float]:
    """CM-DARE model → speed of one V100 worker over one P100 worker."""
    speeds = {
        (row["model"], row["gpu"]): float(row["speed_steps_per_s_mean"])
        for row in rows(data, "speed_ps_cmdare_single_worker.csv")
    }
    return {
        model: round(speed / speeds[model, "p100"], 2)
        for (model, gpu), speed in speeds.items()
        if gpu == "v100" and (model, "p100") in speeds
    }


def inception_v3(data: Path) -> dict[str, Fit]:
    """Synchronous Inception-v3 by GPU type: P100 on Piz Daint, K80 on p2.xlarge; one GPU a node, 64 samples a worker.

    The tables hold runs up to 128 workers; those above 32 are left out, where the network saturates.
    """
    measured = rows(
        data,
        "speed_ps_tables.csv",
        lambda row: (
            row["system"] in ("piz_daint", "ec2_p2.xlarge")
            and row["model"] == "inception-v3"
            and row["data"] == "synthetic"
            and int(row["num_workers"]) <= 32
        ),
    )
    fits = {}
    for gpu in ("k80", "p100"):
        chosen = [row for row in measured if row["gpu"] == gpu]
        features, times = [], []
        for row in chosen:
            w, p, batch = int(row["num_workers"]), int(row["num_ps"]), float(row["batch_per_gpu"])
            features.append((batch, 0.0, w / p, w, p))
            times.append(w * batch / float(row["speed_samples_per_s"]))
        fits[gpu] = fit(PS, features, times)
    return fits


def vgg_compute(data: Path) -> float:
    """Seconds per sample of VGG-16 on one K80 (TensorFlow's tables, 32 samples, one GPU): the median."""
    chosen = rows(
        data,
        "speed_ps_tables.csv",
        lambda row: (row["model"], row["gpu"], row["num_gpus"]) == ("vgg-16", "k80", "1"),
    )
    return significant(1 / statistics.median(float(row["speed_samples_per_s"]) for row in chosen))


def gpus_per_worker_efficiency(data: Path) -> float:
    """What each GPU more in a worker costs: x in speed(g) = g · speed(1) · (1 − x·(g − 1)), TensorFlow's tables."""
    measured = rows(
        data,
        "speed_ps_tables.csv",
        lambda row: (
            row["source"] == "tensorflow-docs"
            and row["num_nodes"] == "1"
            and row["variable_update"] in ("parameter_server", "distributed_replicated")
        ),
    )
    kind = ("system", "model", "data", "variable_update", "batch_per_gpu")
    alone: dict[tuple[str, ...], float] = {}
    costs = []
    for row in measured:
        key = tuple(row[column] for column in kind)
        gpus, speed = int(row["num_gpus"]), float(row["speed_samples_per_s"])
        if gpus == 1:
            alone[key] = speed
        elif gpus == 8 and key in alone:
            costs.append((1 - speed / (8 * alone[key])) / 7)
    return round(statistics.median(costs), 4)


# All-reduce ----------------------------------------------------------------------------------------------------------


def _ring(batch: float, workers: int, inter: bool) -> tuple[float, ...]:
    """Features of the ring, the inter-node coefficients as what they add, so that they are never below the others."""
    hops, volume = workers - 1.0, 2 * (workers - 1) / workers
    return (batch, 1.0, hops, volume, hops * inter, volume * inter)


def _fit_ring(features: Iterable[Sequence[float]], times: Iterable[float]) -> Fit:
    found = fit(RING, features, times)
    coefficients = dict(found.coefficients)
    for word in ("latency", "transfer"):
        coefficients[f"{word}_inter"] = significant(coefficients[f"{word}_inter"] + coefficients[f"{word}_intra"])
    return Fit(coefficients, found.mean_error, found.max_error, found.points)


def gavel(data: Path) -> dict[tuple[str, str], Fit]:
    """Gavel's isolated speeds by (model, GPU type): 1–8 workers of one GPU, packed and spread, several batches."""
    measured = rows(
        data,
        "gavel_throughputs_isolated.csv",
        lambda row: row["source"] == "gavel_sim" and row["measured"] == "1",
    )
    fits = {}
    for model in ("ResNet-18", "ResNet-50", "Transformer", "LM"):
        for gpu in ("p100", "v100"):  # K80: halving the batch of ResNet-18 doubled its speed, which no form explains
            features, times = [], []
            for row in measured:
                if (row["model"], row["gpu"]) == (model, gpu):
                    batch, w = float(row["batch_per_gpu"]), int(row["num_gpus"])
                    features.append(_ring(batch, w, row["consolidated"] == "0" and w > 1))
                    times.append(w * batch / float(row["speed_samples_per_s"]))
            fits[model, gpu] = _fit_ring(features, times)
    return fits


def elasticflow(data: Path) -> dict[str, Fit]:
    """ElasticFlow's strong scaling on A100 by model: nodes of 8 GPUs, so that above 8 the ring leaves the node."""
    measured = rows(data, "speed_allreduce_elasticflow.csv", lambda row: row["gpu"] == "a100")
    fits = {}
    for model in ("bert", "deepspeech2", "gpt2", "inception3", "resnet50", "vgg16"):
        features, times = [], []
        for row in measured:
            w, batch = int(row["num_gpus"]), float(row["global_batch"])
            if row["model"] == model:
                features.append(_ring(batch / w, w, w > 8))
                times.append(batch / float(row["speed_samples_per_s"]))
        fits[model] = _fit_ring(features, times)
    return fits


# Between GPU types, CPUs, neighbours, memory -------------------------------------------------------------------------


def type_ratios(data: Path) -> dict[str, dict[str, float]]:
    """Model → GPU type → speed of one GPU over a P100: geometric mean over the batches measured on both types.

    A100 and V100 meet in ResNet-50 with 64 and 128 samples (ElasticFlow against Gavel); that ratio is ``a100_v100``.
    """
    speeds: dict[tuple[str, str, str], float] = {}
    for row in rows(data, "gavel_throughputs_isolated.csv", lambda row: row["measured"] == "1"):
        if row["source"] == "gavel_physical" and row["num_gpus"] == "1" and row["speed_samples_per_s"]:
            speeds[row["model"], row["batch_per_gpu"], row["gpu"]] = float(row["speed_samples_per_s"])
    ratios: dict[str, dict[str, float]] = {}
    for model in ("ResNet-18", "ResNet-50", "Transformer", "LM", "Recommendation"):
        ratios[model] = {}
        for gpu in ("k80", "v100"):
            logs = [
                np.log(speed / speeds[model, batch, "p100"])
                for (name, batch, on), speed in speeds.items()
                if (name, on) == (model, gpu) and (model, batch, "p100") in speeds
            ]
            if logs:  # the Transformer's batches on P100 and V100 meet once only
                ratios[model][gpu] = round(float(np.exp(np.mean(logs))), 2)
    logs = [
        np.log(float(row["speed_samples_per_s"]) / speeds["ResNet-50", row["global_batch"], "v100"])
        for row in rows(data, "speed_allreduce_elasticflow.csv")
        if (row["model"], row["gpu"], row["num_gpus"]) == ("resnet50", "a100", "1")
        and ("ResNet-50", row["global_batch"], "v100") in speeds
    ]
    ratios["a100_v100"] = {"a100": round(float(np.exp(np.mean(logs))), 2)}
    return ratios


def cpu_curves(data: Path) -> dict[str, dict[int, float]]:
    """Synergy: model → CPUs per GPU → slowdown against the most CPUs, with the most memory."""
    measured = rows(data, "synergy_cpu_mem_speed.csv")
    most = max(float(row["memory_gb_per_gpu"]) for row in measured)
    curves: dict[str, dict[int, float]] = {}
    for row in measured:
        if float(row["memory_gb_per_gpu"]) == most:
            curves.setdefault(row["model"], {})[int(row["cpus_per_gpu"])] = float(row["relative_speed"])
    return {
        model: {cpus: round(max(curve.values()) / speed, 2) for cpus, speed in sorted(curve.items())}
        for model, curve in curves.items()
    }


def neighbour_cost(data: Path) -> dict[str, float]:
    """Gavel's pairs on K80: model → median of 1/norm − 1, the stretch of a step when another job shares the GPU."""
    stretches: dict[str, list[float]] = {}
    for row in rows(data, "gavel_throughputs_pairs.csv"):
        if row["gpu"] == "k80" and row["feasible"] == "1" and row["num_gpus"] == "1":
            for side in ("1", "2"):
                norm = float(row[f"norm_{side}"])
                if norm > 0:
                    stretches.setdefault(row[f"model_{side}"], []).append(1 / norm - 1)
    return {model: round(statistics.median(values), 2) for model, values in sorted(stretches.items())}


def bandwidth_gap(data: Path) -> dict[str, float]:
    """DL2: model → bandwidth inside a node over that between nodes, minus 1, at least 0."""
    return {
        row["model"]: round(
            max(0.0, float(row["intra_node_bw_mb_per_s"]) / float(row["inter_node_bw_mb_per_s"]) - 1), 2
        )
        for row in rows(data, "speed_ps_dl2_models.csv")
    }


@dataclass(frozen=True, slots=True)
class Tensors:
    """Parameters of a network, MiB of its largest tensor in FP32, largest over mean shard on four servers."""

    parameters: int
    largest_mib: float
    imbalance: float


def tensors(data: Path) -> dict[str, Tensors]:
    """MXNet's networks, by ``network-layers``. Tensors above a million parameters are split evenly over the servers,
    as MXNet's key-value store does; the others go whole to the server with the least.
    """
    servers, big = 4, 10**6
    found = {}
    for row in rows(data, "model_param_tensors.csv"):
        sizes = [int(size) for size in row["tensor_params"].split(";")]
        loads = [sum(size for size in sizes if size > big) / servers] * servers
        for size in sorted((size for size in sizes if size <= big), reverse=True):
            loads[loads.index(min(loads))] += size
        name = "-".join(part for part in (row["network"], row["num_layers"]) if part)
        found[name] = Tensors(sum(sizes), round(max(sizes) * 4 / 2**20, 1), round(max(loads) * servers / sum(sizes), 2))
    return found


def _print(title: str, fits: dict[str, Fit]) -> None:
    print(f"\n{title}")
    for name, found in fits.items():
        values = ", ".join(f"{word}={value:g}" for word, value in found.coefficients.items() if value)
        print(f"  {name:24} {values}")
        print(f"  {'':24} error {found.mean_error:.1%} mean, {found.max_error:.1%} max, {found.points} points")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print all figures; returns the exit status (2 if the data is missing)."""
    parser = argparse.ArgumentParser(description="fit the catalogue of networks to measured data")
    parser.add_argument("--data", type=Path, default=default_data(), help="folder of the data (COPLACE_DATA)")
    data: Path = parser.parse_args(arguments).data
    if not data.is_dir():
        print(f"no data at {data}: set COPLACE_DATA or give --data", file=sys.stderr)
        return 2
    _print("synchronous parameter server (DL2)", dl2(data))
    _print("synchronous parameter server, Inception-v3 (TensorFlow tables)", inception_v3(data))
    _print("asynchronous parameter server (CM-DARE)", {" ".join(key): value for key, value in cmdare(data).items()})
    _print("asynchronous parameter server (transient)", {"resnet-32 v100": transient(data)})
    _print("all-reduce (Gavel)", {" ".join(key): value for key, value in gavel(data).items()})
    _print("all-reduce, A100 (ElasticFlow)", elasticflow(data))
    print("\nVGG-16 on one K80, seconds per sample:", vgg_compute(data))
    print("cost of each further GPU in a worker (TensorFlow tables):", gpus_per_worker_efficiency(data))
    print("V100 worker over P100 worker (CM-DARE):", single_worker_ratio(data))
    print("speed over a P100 (Gavel, ElasticFlow):", type_ratios(data))
    print("stretch by a neighbour on the same GPU (Gavel pairs, K80):", neighbour_cost(data))
    print("bandwidth inside over between nodes, minus 1 (DL2):", bandwidth_gap(data))
    print("slowdown by CPUs per GPU (Synergy):")
    for model, curve in cpu_curves(data).items():
        print(f"  {model:24} {curve}")
    print("tensors (MXNet):")
    for name, network in tensors(data).items():
        print(f"  {name:24} {network}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
