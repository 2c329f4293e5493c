"""Jobs for generated instances: waiting ones; :mod:`.running` then starts some."""

from __future__ import annotations

import random
from collections.abc import Sequence

from coplace.instances.cluster import NO_GPU, Node
from coplace.instances.generation.catalogue import (
    CPU_SLOWDOWN,
    PS_CORES,
    WORKER_CORES_PER_GPU,
    WORKER_MEMORY_GIB_PER_GPU,
)
from coplace.instances.generation.drawing import lognormal, shuffled
from coplace.instances.generation.network import Network, cpu_slowdown
from coplace.instances.generation.recipe import Recipe
from coplace.instances.generation.speeds import FormSpeed, SpeedMaker, rough_speed, rough_times
from coplace.instances.job import Job, Profile, PsMemory, PsSpec, Requested, WorkerSpec

TENANTS: tuple[tuple[str, float], ...] = (("vision", 0.4), ("speech", 0.25), ("language", 0.2), ("ranking", 0.15))
"""Tenants and their shares of the jobs; unequal, as in every cluster with a published trace."""

WEIGHTS: tuple[tuple[float, float], ...] = ((1.0, 0.9), (2.0, 0.07), (0.5, 0.03))
"""Weights and their shares of the jobs."""

DURATION = (3600.0, 1.5)
"""Median (s) and σ of the logarithm of remaining run time at the requested counts. Jobs of the Philly trace: 1555 s and
1.86; what is active at one moment is longer than the mean job, hence more here, and the clipping keeps the tail."""

OPTIMISERS = (2.0, 3.0, 4.0)
"""Copies of the parameters on a server: with gradients alone, with momentum, with Adam's two moments."""


def make_jobs(recipe: Recipe, count: int, nodes: Sequence[Node], rng: random.Random) -> list[Job]:
    """*count* waiting jobs."""
    speeds = SpeedMaker({n.gpu_type for n in nodes if n.gpu_type != NO_GPU}, recipe.relative)
    equal = [(network, 1 / len(recipe.networks)) for network in recipe.networks]
    networks = shuffled(equal, count, rng)
    gpus = shuffled(recipe.worker_gpus, count, rng)
    tenants = shuffled(TENANTS, count, rng)
    weights = shuffled(WEIGHTS, count, rng)
    several = shuffled([(True, recipe.many_profiles), (False, 1 - recipe.many_profiles)], count, rng)
    gangs = _gangs(recipe, gpus, nodes, rng)
    jobs = []
    for i in range(count):
        low, high = gangs[i]
        jobs.append(
            _job(
                f"{networks[i].name}-{i:05}",
                recipe,
                networks[i],
                gpus[i],
                (low, high),
                several[i],
                speeds,
                tenants[i],
                weights[i],
                rng,
            )
        )
    return jobs


def _gangs(recipe: Recipe, gpus: Sequence[int], nodes: Sequence[Node], rng: random.Random) -> list[tuple[int, int]]:
    """Smallest and largest worker count of every job."""
    low = [rng.choice(recipe.min_workers) for _ in gpus]
    high = [max(rng.choice(recipe.max_workers[g]), low[i]) for i, g in enumerate(gpus)]
    if recipe.gang_gpus is not None:
        largest = max(sum(node.free[0] for node in nodes if node.gpu_type == t) for t in {n.gpu_type for n in nodes})
        bounds = [min(size, max(4, largest // 2)) for size in recipe.gang_gpus]  # a gang must have a chance to fit
        low = [max(1, rng.randint(*bounds) // g) for g in gpus]
        high = [max(count + count // 2, count) for count in low]
    if recipe.demand is not None:
        low = _scaled(recipe.demand * sum(node.gpu for node in nodes), gpus, low)
        high = [max(most, least) for most, least in zip(high, low, strict=True)]
    return list(zip(low, high, strict=True))


def _scaled(target: float, gpus: Sequence[int], low: Sequence[int]) -> list[int]:
    """Smallest counts whose GPUs sum to about *target*, in the proportions of *low* and at least 1 each.

    Carrying the rounding over keeps the sum within one worker of the target wherever it can be reached.
    """
    factor = target / max(1, sum(g * count for g, count in zip(gpus, low, strict=True)))
    scaled, owed = [], 0.0
    for g, count in zip(gpus, low, strict=True):
        owed += g * count * factor
        workers = max(1, round(owed / g))
        owed -= workers * g
        scaled.append(workers)
    return scaled


def _job(
    name: str,
    recipe: Recipe,
    network: Network,
    gpus: int,
    counts: tuple[int, int],
    several: bool,
    speeds: SpeedMaker,
    tenant: str,
    weight: float,
    rng: random.Random,
) -> Job:
    low, high = counts
    speed = speeds(network, gpus, rng.choice(network.batches))
    types = tuple(sorted(speed.types))
    if len(types) > 1 and rng.random() < 0.15:
        allowed: tuple[str, ...] | None = tuple(sorted(rng.sample(types, len(types) - 1)))
    else:
        allowed = None
    usable = allowed or types
    workers = min(high, low + rng.randint(0, max(1, (high - low) // 3)))
    is_ps = network.form != "allreduce"
    max_servers = rng.choice(recipe.max_servers) if is_ps else 0
    servers = min(max_servers, max(1, (workers + 1) // 2)) if is_ps else 0
    worker_pressure, server_pressure = intensities(speed, usable[0])
    fastest = max(rough_speed(speed, gpu_type, workers, servers) for gpu_type in usable)
    seconds = lognormal(rng, *DURATION, 300.0, 10 * 86400.0)
    restarts = rng.choice((0, 0, 0, 1)) if seconds > 1800 else 0
    progress = float(round(fastest * seconds * rng.uniform(0.05, 0.8))) if restarts else 0.0
    return Job(
        name=name,
        architecture="ps" if is_ps else "allreduce",
        worker=WorkerSpec(
            gpu=gpus,
            profiles=worker_profiles(network, gpus, recipe if several else None, types, rng),
            intensity=worker_pressure,
            min=low,
            max=high,
        ),
        ps=parameter_servers(network, max_servers, server_pressure, rng) if is_ps else None,
        gpu_types=allowed,
        speed=speed,
        remaining=float(max(1, round(fastest * seconds))),
        progress=progress,
        requested=Requested(
            workers=workers, servers=servers, gpu_type=rng.choice(usable) if rng.random() < 0.3 else None
        ),
        attained_gpu_seconds=float(round(progress / fastest * workers * gpus)),
        age_seconds=float(round(progress / fastest + lognormal(rng, 600.0, 1.0, 1.0, 86400.0))),
        restarts=restarts,
        weight=weight,
        tenant=tenant,
        restart_seconds=float(rng.choice((30, 60, 120))),
        deadline_seconds=float(round(seconds * rng.uniform(1.5, 4.0))) if rng.random() < 0.25 else None,
    )


def worker_profiles(
    network: Network, gpus: int, recipe: Recipe | None, gpu_types: Sequence[str], rng: random.Random
) -> tuple[Profile, ...]:
    """Request profiles of a worker: one as users ask for, or those of *recipe*.

    The slowdown stands per GPU type, since a faster GPU needs more CPUs to be fed.
    """
    memory = rng.choice(WORKER_MEMORY_GIB_PER_GPU) * gpus * 1024
    if recipe is None:
        return (Profile(cpu=WORKER_CORES_PER_GPU * gpus * 1000, memory=memory),)
    profiles = []
    for cpus in recipe.cpus_per_gpu:
        slow = {t: cpu_slowdown(network, t, cpus, recipe.relative, CPU_SLOWDOWN) for t in gpu_types}
        slow = {t: factor for t, factor in slow.items() if factor > 1}
        profiles.append(Profile(cpu=round(cpus * gpus * 1000), memory=memory, slowdown=slow or 1.0))
    return tuple(profiles)


def parameter_servers(network: Network, most: int, intensity: int, rng: random.Random) -> PsSpec:
    """Servers whose memory follows from the size of the network (see :class:`~coplace.instances.job.PsMemory`)."""
    return PsSpec(
        profiles=(Profile(cpu=rng.choice(PS_CORES) * 1000, memory=1024),),
        intensity=intensity,
        min=1,
        max=most,
        memory_model=PsMemory(
            model=network.parameters_mib,
            copies=rng.choice(OPTIMISERS),
            base=512,  # MiB of an idle process with its framework (assumption)
            receive_buffer=network.tensor_mib,  # one tensor in flight per worker
            imbalance=1.05,  # MXNet's tensors over four servers: 1.00 to 1.02, big ones split
        ),
    )


def intensities(speed: FormSpeed, gpu_type: str) -> tuple[int, int]:
    """What a worker and a server add to the pressure of their node, in percent of a small node.

    A worker that communicated all the time would take a sixth of what the node shares, a server of a job with two
    workers twice as much (assumption); the share of the step that is communication is the catalogue's.
    """
    servers = 0 if speed.form == "allreduce" else 2
    computing, communicating = rough_times(speed, gpu_type, 4, servers)
    share = communicating / (computing + communicating)
    return 2 + round(14 * share), 4 + round(28 * share)
