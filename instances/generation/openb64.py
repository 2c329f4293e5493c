"""The example ``openb-64.yaml``: 64 nodes in the proportions of a production cluster, with parameter-server jobs.

``python -m coplace.instances.generation.openb64`` prints the file.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from typing import Any

from coplace.instances.cluster import NO_GPU, Node, Resources, expand
from coplace.instances.generation.catalogue import A100_OVER_V100, PS_NETWORKS, RELATIVE_SPEED
from coplace.instances.generation.family import PRESSURE_LEVELS
from coplace.instances.generation.jobs import make_jobs
from coplace.instances.generation.recipe import Recipe
from coplace.instances.generation.running import start_jobs
from coplace.instances.instance import VERSION, Instance
from coplace.instances.job import Job
from coplace.instances.quantities import format_cpu, format_memory
from coplace.instances.rules import Quota, SiteRules
from coplace.instances.writing import to_document

GROUPS: tuple[tuple[str, str, int, int, int, int], ...] = (
    # name, GPU type, GPUs, cores, GiB, nodes of 64. The openb cluster has 1,523 nodes in 26 shapes; those with less
    # than one node in 64 are merged with the next of their type, so that the totals by type keep their proportion.
    ("g2", "G2", 8, 96, 384, 23),  # 549 of 1,523 nodes
    ("t4", "T4", 2, 104, 512, 16),  # 387
    ("t4x4", "T4", 4, 96, 384, 1),  # 17
    ("p100", "P100", 2, 16, 120, 5),  # 112, those with 8 cores or one GPU included
    ("p100-fat", "P100", 2, 64, 256, 1),  # 22
    ("v16", "V100M16", 4, 32, 128, 2),  # 55 with 1, 4 and 8 GPUs
    ("v32", "V100M32", 8, 96, 768, 1),  # 30 with 4 and 8 GPUs
    ("g3", "G3", 8, 128, 768, 2),  # 39
    ("cpu-small", NO_GPU, 0, 32, 256, 7),  # 162, those with less memory included
    ("cpu-mid", NO_GPU, 0, 64, 512, 1),  # 34
    ("cpu-big", NO_GPU, 0, 96, 512, 5),  # 114, those with 104 cores included
)

SHARED: dict[str, tuple[int, Resources]] = {
    # How many nodes of a group others use a part of, and what (invented: the trace's tasks share GPUs).
    "g2": (4, Resources(gpu=3, cpu=30_000, memory=96 * 1024)),
    "t4": (3, Resources(gpu=1, cpu=24_000, memory=64 * 1024)),
    "cpu-big": (1, Resources(cpu=48_000, memory=128 * 1024)),
}


def _with_openb_types(ratios: dict[str, float]) -> dict[str, float]:
    """Assumptions on the GPU types of openb: G2 computes as a V100 and G3 as an A100, which openb does not disclose;
    a T4 as a P100 (about 217 samples/s on ImageNet with ElasticFlow, 208 of ResNet-50 on Gavel's P100).
    """
    v100 = ratios["v100"]
    own = {"P100": 1.0, "T4": 1.0, "V100M16": v100, "V100M32": v100, "G2": v100, "G3": round(v100 * A100_OVER_V100, 2)}
    return ratios | own


RECIPE = Recipe(
    shapes=(),
    networks=tuple(
        dataclasses.replace(network, batches=network.batches[:1])  # fewer different speeds: easier to read
        for network in PS_NETWORKS
        if network.name in ("resnet-50", "inception-v3", "cnn-text", "vgg-16", "resnet-32", "shakeshake-big")
    ),
    worker_gpus=((1, 0.5), (2, 0.25), (4, 0.15), (8, 0.1)),
    max_workers={1: (6, 8, 12), 2: (4, 8), 4: (2, 4), 8: (2, 3)},
    max_servers=(2, 4, 4),
    relative={name: _with_openb_types(ratios) for name, ratios in RELATIVE_SPEED.items()},
)

JOBS = 72
QUOTA_TENANT, QUOTA_GPUS = "vision", 64


def groups() -> tuple[Node, ...]:
    """The cluster as counted groups."""
    found = []
    for name, gpu_type, gpus, cores, gib, count in GROUPS:
        shared, used = SHARED.get(name, (0, Resources()))
        for suffix, number, use in (("", count - shared, Resources()), ("-shared", shared, used)):
            if number:
                found.append(
                    Node(
                        name=name + suffix,
                        count=number,
                        gpu_type=gpu_type,
                        gpu=gpus,
                        cpu=cores * 1000,
                        memory=gib * 1024,
                        pressure_capacity=200 if gpus in (0, 8) else 100,
                        used=use,
                    )
                )
    return tuple(found)


def openb64() -> Instance:
    """The instance."""
    rng = random.Random("openb-64")
    nodes = expand(groups())
    jobs = start_jobs(make_jobs(RECIPE, JOBS, nodes, rng), nodes, RECIPE.running, PRESSURE_LEVELS[-1], rng)
    return Instance(
        name="openb-64",
        nodes=nodes,
        jobs=tuple(jobs),
        rules=SiteRules(quotas={QUOTA_TENANT: Quota(gpu=QUOTA_GPUS)}),
        pressure_levels=PRESSURE_LEVELS,
    )


HEADER = """\
# 64 nodes in the proportions of a production GPU cluster, 72 parameter-server jobs of which 22 run.
#
# What to look at: demand is above capacity, so some jobs wait or get fewer workers than they could use; servers fit
# on nodes without GPUs; nodes named -shared are partly used by others; tenant vision may use 64 GPUs at most.
#
# Node shapes and proportions: openb, hkust-adsl/kubernetes-scheduler-simulator (1,523 nodes). Speeds: coefficients
# fitted to DL2, CM-DARE, TensorFlow's benchmark tables and Gavel, see coplace.instances.generation.catalogue.
# Assumptions: openb does not disclose G2 and G3; here G2 computes as fast as a V100 and G3 as fast as an A100. A T4
# computes as fast as a P100. The jobs are drawn at random; openb's own tasks are no parameter-server jobs.
# A speed is written out where it is first used (&name) and referred to afterwards (*name).
"""


def openb64_yaml() -> str:
    """The file, for reading by people; what it says is :func:`openb64`."""
    instance = openb64()
    lines = [HEADER + f"version: {VERSION}", f"name: {instance.name}"]
    lines += ["pressure_levels: " + _flow(list(instance.pressure_levels))]
    lines += ["rules:", f"  quotas: {{{QUOTA_TENANT}: {{gpu: {QUOTA_GPUS}}}}}", "", "nodes:"]
    lines += ["  - " + _flow(_node(node)) for node in groups()]
    lines += ["", "jobs:"]
    anchors: dict[str, str] = {}
    for job, document in zip(instance.jobs, to_document(instance)["jobs"], strict=True):
        lines += _job(job, document, anchors)
    return "\n".join(lines) + "\n"


def _node(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = {"name": node.name, "count": node.count}
    if node.gpu:
        found |= {"gpu_type": node.gpu_type, "gpu": node.gpu}
    found |= {"cpu": format_cpu(node.cpu), "memory": format_memory(node.memory)}
    if node.pressure_capacity != 100:
        found["pressure_capacity"] = node.pressure_capacity
    if node.used != Resources():
        used = {"gpu": node.used.gpu} if node.used.gpu else {}
        found["used"] = used | {"cpu": format_cpu(node.used.cpu), "memory": format_memory(node.used.memory)}
    return found


def _job(job: Job, document: dict[str, Any], anchors: dict[str, str]) -> Iterator[str]:
    """Lines of a job; *anchors* collects the speeds written so far."""
    for role in ("worker", "ps"):
        profiles = document[role]["profiles"]
        if len(profiles) == 1:  # a single profile is written directly
            document[role] = profiles[0] | {key: value for key, value in document[role].items() if key != "profiles"}
    document["worker"] = {"gpu": job.worker.gpu} | document["worker"]
    speed = document.pop("speed")
    speed = {key: speed.pop(key) for key in ("form", "batch")} | speed
    order = ["name", "architecture", "tenant", "weight", "gpu_types", "worker", "ps"]
    keys = [key for key in order if key in document] + [key for key in document if key not in order]
    for index, key in enumerate(keys):
        yield from _entry(key, document[key], "  - " if index == 0 else "    ")
        if key == "ps":
            anchor = f"{job.name.rsplit('-', 1)[0]}-{job.worker.gpu}gpu"
            text = _flow(speed)
            if anchor in anchors:
                assert anchors[anchor] == text, "one batch size per network"
                yield f"    speed: *{anchor}"
            else:
                anchors[anchor] = text
                yield f"    speed: &{anchor}"
                for name, value in speed.items():
                    yield from _entry(name, value, "      ")


def _entry(key: str, value: Any, indent: str) -> Iterator[str]:
    """``key: value`` on one line if it fits, else the members one below the other."""
    line = f"{indent}{key}: {_flow(value)}"
    if len(line) <= 118 or not isinstance(value, dict):
        yield line
        return
    yield f"{indent}{key}:"
    for name, member in value.items():
        yield from _entry(name, member, " " * (len(indent) + 2))


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(member)}" for key, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, float):
        if value.is_integer():
            return str(int(value))
        text = repr(value)
        return text if "." in text else text.replace("e", ".0e")  # YAML 1.1 reads 1e-05 as text
    return str(value)


if __name__ == "__main__":
    print(openb64_yaml(), end="")
