"""Seeded generation of instances, with speeds fitted to measured public data (see :mod:`.catalogue`)."""

from __future__ import annotations

import random

from coplace.instances.consistency import nearest
from coplace.instances.errors import InputError, Problem, shorten
from coplace.instances.generation.allreduce_mix import allreduce_mix
from coplace.instances.generation.big_gangs import big_gangs
from coplace.instances.generation.cpu_bound import cpu_bound
from coplace.instances.generation.family import PRESSURE_LEVELS, Family
from coplace.instances.generation.fragmented import fragmented
from coplace.instances.generation.ps_mix import ps_mix
from coplace.instances.generation.saturated import saturated
from coplace.instances.instance import Instance
from coplace.instances.job import Job

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("ps-mix", "Parameter-server jobs of all sizes on three GPU types, some of them running.", ps_mix),
        Family("allreduce-mix", "All-reduce jobs on three GPU types, where packing into one node pays.", allreduce_mix),
        Family("cpu-bound", "Vision jobs that choose CPUs per worker on nodes with too few CPUs.", cpu_bound),
        Family("fragmented", "Nodes with odd numbers of free GPUs for workers of 2, 4 and 8 GPUs.", fragmented),
        Family("saturated", "The smallest gangs need three times the GPUs of the cluster.", saturated),
        Family("big-gangs", "Every job needs 16 to 48 GPUs at once or nothing.", big_gangs),
    )
}
"""Families by name."""

MAX_NODES = 100_000
MAX_JOBS = 1_000_000


def generate(
    family: str, *, nodes: int, jobs: int, seed: int = 0, pressure: bool = True, moves: bool = True
) -> Instance:
    """An instance of *family*; equal arguments give equal instances.

    Args:
        family: a key of :data:`FAMILIES`.
        nodes: nodes, at least 1.
        jobs: jobs, at least 1.
        seed: for the random draws, at least 0.
        pressure: False leaves out interference: an empty ladder and intensities of 0.
        moves: False leaves out what runs: the same jobs, none of them started yet.

    Raises:
        InputError: the family is unknown or a number is out of range; names the argument.
    """
    problems = []
    if not isinstance(family, str) or family not in FAMILIES:
        rule = "must be a family of generated instances"
        mend = nearest(family if isinstance(family, str) else "", FAMILIES)
        problems.append(Problem("family", rule, shorten(family), mend))
    for option, value, low, high in (
        ("nodes", nodes, 1, MAX_NODES),
        ("jobs", jobs, 1, MAX_JOBS),
        ("seed", seed, 0, None),
    ):
        if not isinstance(value, int) or isinstance(value, bool) or value < low or (high is not None and value > high):
            bounds = f"from {low} to {high}" if high is not None else f"of at least {low}"
            problems.append(Problem(option, f"must be a whole number {bounds}", shorten(value)))
    for option, switch in (("pressure", pressure), ("moves", moves)):
        if not isinstance(switch, bool):  # "off" would mean on
            problems.append(Problem(option, "must be True or False", shorten(switch)))
    if problems:
        raise InputError(problems)

    # Seeded by a text, so that families and sizes do not share a stream; Python hashes it with SHA-512, not hash().
    rng = random.Random(f"{family} {nodes} {jobs} {seed}")
    cluster, work = FAMILIES[family].build(nodes, jobs, rng)
    if not moves:
        work = [_not_started(job) for job in work]
    if not pressure:
        work = [_without_pressure(job) for job in work]
    return Instance(
        name=f"{family}-{nodes}x{jobs}-{seed}",
        nodes=tuple(cluster),
        jobs=tuple(work),
        pressure_levels=PRESSURE_LEVELS if pressure else (),
    )


def _not_started(job: Job) -> Job:
    fresh = {"current": None, "progress": 0.0, "attained_gpu_seconds": 0.0, "restarts": 0}
    return job.model_copy(update=fresh)


def _without_pressure(job: Job) -> Job:
    ps = None if job.ps is None else job.ps.model_copy(update={"intensity": 0})
    return job.model_copy(update={"worker": job.worker.model_copy(update={"intensity": 0}), "ps": ps})


__all__ = ["FAMILIES", "Family", "generate"]
