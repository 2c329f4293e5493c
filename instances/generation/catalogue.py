"""Catalogue of networks: coefficients fitted to measured public data.

``python -m benchmarks.fit_catalogue`` fits them again and prints their errors; the mean relative error of the step
time is given beside each. Sources: DL2 (pengyanghua/DL2), CM-DARE and transient (cake-lab), TensorFlow's benchmark
tables and those of the e-bug collection, Gavel (stanford-futuredata), ElasticFlow (pkusys), Synergy (msr-fiddle),
Optimus' task requests, tensor sizes of MXNet's example networks. What is assumed rather than measured says so.
"""

from __future__ import annotations

from coplace.instances.generation.network import Coefficients, Network
from coplace.instances.speed import AllReduceCoefficients, PsCoefficients


def _ps(a: float, b: float = 0.0, c: float = 0.0, d: float = 0.0, e: float = 0.0) -> PsCoefficients:
    return PsCoefficients(a=a, b=b, c=c, d=d, e=e)


def _ring(a: float, b: float, latency: tuple[float, float], transfer: tuple[float, float]) -> AllReduceCoefficients:
    return AllReduceCoefficients(
        a=a,
        b=b,
        latency_intra=latency[0],
        latency_inter=latency[1],
        transfer_intra=transfer[0],
        transfer_inter=transfer[1],
    )


A100_OVER_V100 = 1.48
"""ResNet-50 on one GPU, 64 and 128 samples: ElasticFlow's A100 over Gavel's V100."""

# Speed of one GPU over a P100. Gavel, physical cluster, isolated: geometric mean over batches measured on both.
_GAVEL_RATIOS: dict[str, dict[str, float]] = {
    "resnet-18": {"k80": 0.17, "p100": 1.0, "v100": 1.62},
    "resnet-50": {"k80": 0.26, "p100": 1.0, "v100": 1.39},
    "transformer": {"k80": 0.42, "p100": 1.0, "v100": 1.16},
    "lm": {"k80": 0.30, "p100": 1.0, "v100": 1.33},
    "recommendation": {"k80": 0.32, "p100": 1.0, "v100": 1.53},
}

RELATIVE_SPEED: dict[str, dict[str, float]] = {
    name: ratios | {"a100": round(ratios["v100"] * A100_OVER_V100, 2)} for name, ratios in _GAVEL_RATIOS.items()
}
"""Network → GPU type → speed over a P100; the A100 stands to the V100 as with ResNet-50 for all (assumption)."""

CPU_SLOWDOWN: dict[str, dict[int, float]] = {
    # Synergy: best speed over the speed with so many CPUs per GPU, memory ample.
    "alexnet": {1: 9.8, 2: 4.45, 3: 2.94, 4: 2.35, 6: 1.68, 9: 1.47, 12: 1.0},
    "res18": {1: 6.49, 2: 3.33, 3: 2.4, 4: 1.85, 6: 1.37, 9: 1.0, 12: 1.0},
    "res50": {1: 2.87, 2: 1.55, 3: 1.15, 4: 1.0, 6: 1.0, 9: 1.0, 12: 1.0},
    "mobilenet": {1: 4.19, 2: 2.15, 3: 1.55, 4: 1.19, 6: 1.0, 9: 1.0, 12: 1.0},
    "deepspeech": {1: 3.33, 2: 1.52, 3: 1.0, 4: 1.0, 6: 1.0, 9: 1.0, 12: 1.0},
    "transformer": {1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0, 6: 1.0, 9: 1.0, 12: 1.0},
    "lstm": {1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0, 6: 1.0, 9: 1.0, 12: 1.0},
    "bert": {1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0, 6: 1.0, 9: 1.0, 12: 1.0},
}
"""Network → CPUs per GPU → slowdown."""

NEIGHBOUR = {"lm": 1.05, "recommendation": 0.9, "resnet-18": 0.85, "resnet-50": 0.8, "transformer": 0.95}
"""Median of 1/norm − 1 over Gavel's pairs on one K80."""

SHARED_OF_NODE = 0.5
"""Share of a neighbour's cost that stays when each has GPUs of its own and they share only the node (assumption)."""

MAX_SPREAD = 2.0
"""Cap on slopes of ψ from DL2's bandwidths, whose placements are not recorded (assumption)."""

PS_CORES = (3, 4)
"""Optimus' task requests: cores of a parameter server; ResNet-50 and ResNeXt-110, VGG-16."""

WORKER_CORES_PER_GPU = 2
"""Optimus' task requests: cores of a worker with one GPU."""

WORKER_MEMORY_GIB_PER_GPU = (8, 10)
"""Optimus' task requests: memory of a worker with one GPU."""

PS_NETWORKS: tuple[Network, ...] = (
    # DL2: synchronous, GPU type not recorded and taken as P100 (assumption). Spread: inside over between bandwidth.
    # Batches are larger than measured, as users with several GPUs would choose: a·B is linear in B (assumption).
    Network(
        name="resnet-50", form="ps-sync", batches=(128, 256, 512), relative="resnet-50", cpu="res50",
        measured={"p100": _ps(a=0.00394, b=0.4178, c=0.4213, d=0.007373)},  # 8.8 %
        parameters_mib=98, tensor_mib=9,  # MXNet: 25,549,486 parameters
        spread=MAX_SPREAD, neighbour=NEIGHBOUR["resnet-50"],  # 2.34 measured
    ),
    Network(
        name="inception-bn", form="ps-sync", batches=(128, 256, 512), relative="resnet-50", cpu="mobilenet",
        measured={"p100": _ps(a=0.003105, b=0.1541, c=0.1664, d=0.01941, e=0.002813)},  # 4.8 %
        parameters_mib=44, tensor_mib=4,  # MXNet: 11,295,240 parameters
        spread=MAX_SPREAD, neighbour=NEIGHBOUR["resnet-50"],  # 6.42 measured
    ),
    Network(
        name="cnn-text", form="ps-sync", batches=(50, 100, 200), relative="lm", cpu="lstm",
        measured={"p100": _ps(a=0.007464, b=0.3445, c=0.02375, d=0.01694)},  # 3.0 %
        parameters_mib=23, tensor_mib=20,  # DL2: 24.0 MB, nearly all of it one embedding (assumption)
        spread=1.63, neighbour=NEIGHBOUR["lm"],
    ),
    Network(
        name="dssm", form="ps-sync", batches=(256, 512, 1024), relative="recommendation", cpu="lstm",
        measured={"p100": _ps(a=0.00155, b=0.1177, d=0.0073, e=0.0002253)},  # 4.9 %
        parameters_mib=6, tensor_mib=3,  # DL2: 6.0 MB
        spread=0.0, neighbour=NEIGHBOUR["recommendation"],
    ),
    # TensorFlow tables (e-bug): synchronous, P100 on Piz Daint and K80 on p2.xlarge, up to 32 workers of one GPU.
    # Every worker was a node of its own, so the coefficients are those of a spread job already: slope 0.
    Network(
        name="inception-v3", form="ps-sync", batches=(128, 256, 512), relative="resnet-50", cpu="res50",
        measured={
            "k80": _ps(a=0.03136, c=0.1502, d=0.01031),  # 1.3 %
            "p100": _ps(a=0.00713, c=0.009678, e=0.004362),  # 0.7 %
        },
        parameters_mib=91, tensor_mib=8,  # MXNet: 23,834,568 parameters
        neighbour=NEIGHBOUR["resnet-50"],
    ),
    # VGG-16: computation from TensorFlow's tables (K80, one GPU, 32 samples, median). No measured runs over several
    # nodes: communication is ResNet-50's of DL2 times the ratio of the parameters, 531.5 to 102.2 MB (assumption).
    Network(
        name="vgg-16", form="ps-sync", batches=(256, 512), relative="resnet-50", cpu="alexnet",
        measured={"k80": _ps(a=0.02874, c=2.191, d=0.03834)},
        parameters_mib=507, tensor_mib=392,  # MXNet: 132,863,336 parameters
        spread=MAX_SPREAD, neighbour=NEIGHBOUR["resnet-50"],
    ),
    # CM-DARE: asynchronous, 128 samples per worker and step. V100: P100's computation over the ratio of single
    # workers (1.11, 1.08, 1.28), except ResNet-32, of which the transient runs are fitted. CIFAR images need few
    # CPUs. Workers were virtual machines of one GPU, so the coefficients are those of a spread job already: slope 0.
    Network(
        name="resnet-15", form="ps-async", batches=(128,), relative="resnet-18", cpu="lstm",
        measured={
            "k80": _ps(a=0.0008035, c=0.0005167),  # 1.4 %
            "p100": _ps(a=0.0002733, c=0.003933),  # 7.8 %
            "v100": _ps(a=0.0002462, c=0.003933),
        },
        parameters_mib=3, tensor_mib=1,  # CM-DARE: 693,818 parameters
        neighbour=NEIGHBOUR["resnet-18"],
    ),
    Network(
        name="resnet-32", form="ps-async", batches=(128,), relative="resnet-18", cpu="lstm",
        measured={
            "k80": _ps(a=0.001723, c=0.0002221),  # 0.3 %
            "p100": _ps(a=0.0004881, c=0.01031),  # 9.5 %
            "v100": _ps(a=0.0003133, c=0.01534),  # 5.3 %, transient
        },
        parameters_mib=8, tensor_mib=1,  # CM-DARE: 1,857,722 parameters
        neighbour=NEIGHBOUR["resnet-18"],
    ),
    Network(
        name="shakeshake-big", form="ps-async", batches=(128,), relative="resnet-50", cpu="lstm",
        measured={
            "k80": _ps(a=0.01119, c=0.02018),  # 1.5 %
            "p100": _ps(a=0.00227, c=0.03008, d=0.08605),  # 9.3 %
            "v100": _ps(a=0.002102, c=0.03008, d=0.08605),
        },
        parameters_mib=100, tensor_mib=6,  # CM-DARE: 26,204,362 parameters
        neighbour=NEIGHBOUR["resnet-50"],
    ),
    Network(
        name="shakeshake-small", form="ps-async", batches=(128,), relative="resnet-18", cpu="lstm",
        measured={
            "k80": _ps(a=0.003052, c=0.001382),  # 0.3 %
            "p100": _ps(a=0.0008587, c=0.01259, d=0.004919, e=0.001107),  # 7.1 %
            "v100": _ps(a=0.0006709, c=0.01259, d=0.004919, e=0.001107),
        },
        parameters_mib=12, tensor_mib=1,  # CM-DARE: 2,926,986 parameters
        neighbour=NEIGHBOUR["resnet-18"],
    ),
)  # fmt: skip
"""Networks of parameter-server jobs."""

ALLREDUCE_NETWORKS: tuple[Network, ...] = (
    # Gavel: 1–8 workers of one GPU, packed (intra) and spread (inter). ElasticFlow: A100, strong scaling over 64 GPUs.
    Network(
        name="resnet-18", form="allreduce", batches=(128, 256, 512), relative="resnet-18", cpu="res18",
        measured={
            "p100": _ring(0.0004129, 0.01883, (0.003317, 0.003943), (0.001837, 0.02385)),  # 7.0 %
            "v100": _ring(0.0002829, 0.01885, (0.0, 0.006425), (0.0, 0.02559)),  # 14.5 %
        },
        neighbour=NEIGHBOUR["resnet-18"],
    ),
    Network(
        name="resnet-50", form="allreduce", batches=(64, 128, 256), relative="resnet-50", cpu="res50",
        measured={
            "p100": _ring(0.00487, 0.03679, (0.008561, 0.01009), (0.0, 0.02951)),  # 5.8 %
            "v100": _ring(0.002813, 0.04158, (0.01666, 0.01666), (0.04599, 0.06849)),  # 6.8 %
            "a100": _ring(0.002078, 0.008072, (0.0001646, 0.0001646), (0.01071, 0.01344)),  # 2.5 %, ElasticFlow
        },
        neighbour=NEIGHBOUR["resnet-50"],
    ),
    Network(
        name="transformer", form="allreduce", batches=(128, 256, 512), relative="transformer", cpu="transformer",
        measured={
            "p100": _ring(0.002323, 0.05743, (0.01808, 0.01808), (0.0287, 0.1089)),  # 5.8 %
            "v100": _ring(0.00145, 0.04701, (0.0, 0.01489), (0.03014, 0.1436)),  # 18.5 %
        },
        neighbour=NEIGHBOUR["transformer"],
    ),
    Network(
        name="lm", form="allreduce", batches=(80, 160, 320), relative="lm", cpu="lstm",
        measured={
            "p100": _ring(0.0005235, 0.007768, (0.003944, 0.003944), (0.01019, 0.03921)),  # 7.3 %
            "v100": _ring(0.0003634, 0.007723, (0.0, 0.005088), (0.001875, 0.04756)),  # 14.5 %
        },
        neighbour=NEIGHBOUR["lm"],
    ),
    Network(
        name="bert", form="allreduce", batches=(64, 128, 256), relative="transformer", cpu="bert",
        measured={"a100": _ring(0.001697, 0.05633, (0.0004624, 0.0004624), (0.007804, 0.009612))},  # 2.1 %
        neighbour=NEIGHBOUR["transformer"],
    ),
    Network(
        name="gpt2", form="allreduce", batches=(128, 256), relative="transformer", cpu="bert",
        measured={"a100": _ring(0.0008492, 0.02566, (0.0003336, 0.0003336), (0.005369, 0.006454))},  # 2.2 %
        neighbour=NEIGHBOUR["transformer"],
    ),
    Network(
        name="deepspeech2", form="allreduce", batches=(32, 64, 128), relative="lm", cpu="deepspeech",
        measured={"a100": _ring(0.009042, 0.03657, (0.0, 0.0), (0.01347, 0.01347))},  # 3.1 %
        neighbour=NEIGHBOUR["lm"],
    ),
    Network(
        name="inception-v3", form="allreduce", batches=(64, 128, 256), relative="resnet-50", cpu="res50",
        measured={"a100": _ring(0.002729, 0.02766, (0.0002854, 0.0002854), (0.0109, 0.01511))},  # 2.6 %
        neighbour=NEIGHBOUR["resnet-50"],
    ),
    Network(
        name="vgg-16", form="allreduce", batches=(64, 128, 256), relative="resnet-50", cpu="alexnet",
        measured={"a100": _ring(0.003033, 0.0, (0.00007042, 0.00007042), (0.01427, 0.01427))},  # 3.4 %
        neighbour=NEIGHBOUR["resnet-50"],
    ),
)  # fmt: skip
"""Networks of all-reduce jobs."""

__all__ = [
    "A100_OVER_V100", "ALLREDUCE_NETWORKS", "CPU_SLOWDOWN", "MAX_SPREAD", "NEIGHBOUR", "PS_CORES", "PS_NETWORKS",
    "RELATIVE_SPEED", "SHARED_OF_NODE", "WORKER_CORES_PER_GPU", "WORKER_MEMORY_GIB_PER_GPU", "Coefficients", "Network",
]  # fmt: skip
