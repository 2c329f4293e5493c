"""Sia: counts by an integer program that sees only GPUs, then placement by a rule.

Subramanya, Arfeen, Lin, Qiao, Jia, Ganger: Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling, SOSP
2023 (https://dl.acm.org/doi/10.1145/3600006.3613175), with what the authors' published code adds
(https://github.com/siasosp23/artifacts). What Sia does not know is decided by the plainest rule: a job gets the servers
and profiles that are fastest for its count, and runs at whatever pressure results. Sia also keeps a job from growing to
more than twice its GPUs in a round, since it learns speeds as it goes; here they are known.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.mesh import open_mesh
from coplace.formulations.scoring import Scoring
from coplace.formulations.speed import Configurations
from coplace.instances.instance import Instance
from coplace.instances.job import Job
from coplace.instances.plan import Plan
from coplace.solver.baselines.counts_ilp import CountsProgram, choose
from coplace.solver.packing import Packer
from coplace.solver.placement import Placement, Shape
from coplace.solver.state import State

POWER, NO_ALLOCATION = -0.5, 1.1
"""p and λ of the paper: what the authors evaluate Sia with."""

LEAST_SECONDS = 0.1
"""What the integer program gets however late it is; without any time it finds nothing."""


@dataclass(frozen=True, slots=True)
class Option:
    """A configuration that a job may get.

    Attributes:
        job: position of the job.
        shape: GPU type, counts, profiles.
        gpus: GPUs of all workers.
        speed: v on the fewest nodes at the lowest pressure level, in samples/s.
        stays: it is what the job runs now.
    """

    job: int
    shape: Shape
    gpus: int
    speed: float
    stays: bool


def sia(
    instance: Instance,
    scoring: Scoring | None = None,
    time_limit: float = 10.0,
    *,
    power: float = POWER,
    own_objective: bool = False,
) -> Plan:
    """The plan that Sia makes of *instance*; feasible.

    Args:
        instance: the instance.
        scoring: of it.
        time_limit: seconds until the integer program ends with the best counts so far; placing them comes after.
        power: p of the paper; 1 maximises the sum of normalised goodputs as it is.
        own_objective: let the integer program maximise the objective of the instance instead of Sia's, so that what
            remains of a difference is due to what Sia does not see.
    """
    deadline = time.monotonic() + time_limit
    state = State(scoring or Scoring(instance), Plan())
    options = sia_options(state)
    worth = own_worth(state.scoring, options) if own_objective else sia_worth(state.scoring, options, power)
    chosen = choose(sia_program(state, options, worth), max(LEAST_SECONDS, deadline - time.monotonic()))
    return _placed(state, options, [options[i] for i in chosen])


def sia_program(state: State, options: list[Option], worth: NDArray[np.float64]) -> CountsProgram:
    """The integer program: GPU counts are all that it knows of the cluster."""
    available, pinned = state.nodes.available, np.zeros(len(state.instance.jobs), dtype=bool)
    for j, (job, kept) in enumerate(zip(state.instance.jobs, state.kept_placements, strict=True)):
        pinned[j] = job.pinned and kept is not None
    types, gpus = state.nodes.gpu_type[available], state.nodes.free[available, 0]
    supply = np.bincount(types, gpus, minlength=len(state.instance.gpu_types)).astype(np.int64)
    return CountsProgram(
        job=np.array([option.job for option in options], dtype=np.int64),
        gpu_type=np.array([option.shape.gpu_type for option in options], dtype=np.int64),
        gpus=np.array([option.gpus for option in options], dtype=np.int64),
        worth=worth,
        stays=np.array([option.stays for option in options], dtype=bool),
        must=pinned,
        supply=supply,
        most_moves=state.moves_left,
    )


# --- configurations -------------------------------------------------------------------------------------------------


def sia_options(state: State) -> list[Option]:
    """The configurations of all jobs, those of a job by GPU type and rising count."""
    largest = np.zeros(len(state.instance.gpu_types), dtype=np.int64)
    np.maximum.at(largest, state.nodes.gpu_type, [node.gpu for node in state.instance.nodes])
    options: list[Option] = []
    for j, (job, kept) in enumerate(zip(state.instance.jobs, state.kept_placements, strict=True)):
        if kept is not None:
            speed = state.speed(j, kept.shape, kept.span, 0)
            options.append(Option(j, kept.shape, kept.shape.workers * job.worker.gpu, speed, stays=True))
        if state.scoring.weights[j] <= 0 or (kept is not None and job.pinned):
            continue
        for t, own_type in state.types_of(j).items():
            counts = _counts(job, int(largest[t]))
            if counts:
                options += _fastest(state, j, t, own_type, counts, int(largest[t]))
    return options


def _counts(job: Job, node_gpus: int) -> list[int]:
    """Worker counts whose GPUs are 1, 2, 4, … of one node or whole nodes (section 3.2 of the paper).

    The smallest count is one of them in any case, since a job may have no other.
    """
    each = job.worker.gpu
    if each > node_gpus:
        return []
    allowed = range(job.worker.min, job.worker.max + 1)
    if not each:
        return [job.worker.min]
    whole = {w for w in allowed if w * each % node_gpus == 0}
    parts = {w for w in allowed if w * each < node_gpus and (w * each).bit_count() == 1}
    return sorted({job.worker.min} | whole | parts)


def _fastest(state: State, j: int, t: int, own_type: int, counts: list[int], node_gpus: int) -> list[Option]:
    """One option for each of *counts*: with the servers and profiles that are fastest on the fewest nodes."""
    job, scoring = state.instance.jobs[j], state.scoring
    servers = range(job.min_servers, job.max_servers + 1)
    profiles = range(len(job.worker.profiles)), range(len(job.ps.profiles) if job.ps else 1)
    w, p, worker, server = open_mesh(counts, servers, *profiles)
    span = -(-w * job.worker.gpu // node_gpus) if node_gpus else np.ones_like(w)
    k = Configurations(own_type, w, p, np.maximum(span, 1), scoring.levels[0], worker, server)
    shape = (len(counts), len(servers), len(profiles[0]), len(profiles[1]))
    speeds = np.broadcast_to(scoring.model.predict(job, k).mean, shape).reshape(len(counts), -1)
    options = []
    for row, count in zip(speeds, counts, strict=True):
        at_p, at_worker, at_server = np.unravel_index(int(row.argmax()), shape[1:])
        if row.max() > 0:
            found = Shape(t, count, servers[int(at_p)], int(at_worker), int(at_server))
            options.append(Option(j, found, count * job.worker.gpu, float(row.max()), stays=False))
    return options


# --- objective ------------------------------------------------------------------------------------------------------


def sia_worth(scoring: Scoring, options: list[Option], power: float) -> NDArray[np.float64]:
    """What each option adds to Sia's objective (section 3.4 of the paper).

    Goodputs count in multiples of the job's least one, less what a restart costs where a job changes. With p < 0 Sia
    minimises Σ goodput^p plus λ for each job that gets nothing, so that an option is worth λ − goodput^p; with p > 0
    it is λ + goodput^p.
    """
    speed = np.array([option.speed for option in options])
    job = np.array([option.job for option in options], dtype=np.int64)
    least = np.full(len(scoring.instance.jobs), np.inf)
    np.minimum.at(least, job, speed)
    goodput = speed / least[job] * np.array([_restart_factor(scoring, option) for option in options])
    return np.asarray(NO_ALLOCATION + np.sign(power) * np.maximum(goodput, 1e-9) ** power)


def _restart_factor(scoring: Scoring, option: Option) -> float:
    """What is left of the speed if the job restarts for it, by the evaluator: H / (H + δ)."""
    return float(scoring.effective(option.job, option.speed, option.stays)) / option.speed


def own_worth(scoring: Scoring, options: list[Option]) -> NDArray[np.float64]:
    """What each option would be worth by the evaluator if the job ran alone."""
    return np.array([float(scoring.value(option.job, option.speed, option.stays)) for option in options])


# --- placement ------------------------------------------------------------------------------------------------------


def _placed(state: State, options: list[Option], chosen: list[Option]) -> Plan:
    """The plan with *chosen* placed: what stays where it is, then by falling GPUs, so whole nodes first (section 3.3).

    A job for which there is no room gets fewer servers, then the next smaller count on its GPU type, else it waits.
    """
    for option in chosen:
        kept = state.kept_placements[option.job]
        if option.stays and kept is not None:
            state.put(option.job, kept)
    packer = Packer(state)
    smaller: dict[tuple[int, int], list[Option]] = {}
    for option in options:
        if not option.stays:
            smaller.setdefault((option.job, option.shape.gpu_type), []).append(option)
    changing = [option for option in chosen if not option.stays]
    for option in sorted(changing, key=lambda option: -option.gpus):
        for each in reversed(smaller[option.job, option.shape.gpu_type]):
            placement = _place(packer, each) if each.gpus <= option.gpus else None
            if placement is not None:
                state.put(option.job, placement)
                break
    return state.plan()


def _place(packer: Packer, option: Option) -> Placement | None:
    """A placement at any pressure, on as few nodes as there are, with its servers or half of them, a quarter, …"""
    shape, top = option.shape, len(packer.state.scoring.levels) - 1
    fewest = packer.state.instance.jobs[option.job].min_servers
    while True:
        placement = packer.place(option.job, shape, top)
        if isinstance(placement, Placement):
            return placement
        if shape.servers <= fewest:
            return None
        shape = shape._replace(servers=max(fewest, shape.servers // 2))
