"""Candidates against a plain enumeration, and the safety of what is pruned."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from coplace.formulations.candidates import candidates
from coplace.formulations.scoring import Scoring
from coplace.formulations.speed import Configurations
from coplace.instances import PS, WORKER, Instance
from coplace.instances.demand import demand
from tests.oracle.tiny import tiny_instance

SEEDS = range(60)


def _columns(instance: Instance, *, prune: bool) -> dict[tuple[int, ...], tuple[float, float]]:
    found = candidates(instance, prune=prune)
    keys = zip(
        found.job, found.gpu_type, found.workers, found.servers, found.worker_profile, found.ps_profile, found.span,
        found.level, strict=True,
    )  # fmt: skip
    values = zip(found.speed, found.value, strict=True)
    return {tuple(int(part) for part in key): value for key, value in zip(keys, values, strict=True)}


def _demands(instance: Instance, column: tuple[int, ...]) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    j, _, w, p, worker_profile, ps_profile, _, _ = column
    job = instance.jobs[j]
    worker = demand(job, WORKER, w, p, worker_profile)
    return worker, demand(job, PS, w, p, ps_profile) if job.ps else (0, 0, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_unpruned_column_is_scored_like_a_single_configuration(seed: int) -> None:
    instance = tiny_instance(seed)
    scoring = Scoring(instance)
    for column, (speed, value) in _columns(instance, prune=False).items():
        j, t, w, p, worker_profile, ps_profile, span, level = column
        job = instance.jobs[j]
        k = Configurations(
            job.types.index(instance.gpu_types[t]), w, p, span, scoring.levels[level], worker_profile, ps_profile
        )
        assert speed == scoring.model.predict(job, k).mean
        assert value == scoring.value(j, speed, kept=False)
        assert speed > 0
        assert job.worker.min <= w <= job.worker.max
        assert job.min_servers <= p <= job.max_servers
        assert 1 <= span <= w + p


@pytest.mark.parametrize("seed", SEEDS)
def test_no_placeable_configuration_is_missing(seed: int) -> None:
    """Any configuration that fits an otherwise empty cluster, one task at a time, has a column."""
    instance = tiny_instance(seed)
    scoring = Scoring(instance)
    columns = _columns(instance, prune=False)
    for j, job in enumerate(instance.jobs):
        if scoring.weights[j] <= 0:
            continue
        hosts = [node for node in instance.nodes if node.available and node.matches(job.node_selector)]
        counts = itertools.product(
            range(job.worker.min, job.worker.max + 1), range(job.min_servers, job.max_servers + 1)
        )
        for w, p in counts:
            for worker_profile, ps_profile in itertools.product(
                range(len(job.worker.profiles)), range(len(job.ps.profiles) if job.ps else 1)
            ):
                for node in hosts:  # all on one node: the tightest that could be asked for
                    total = np.array(demand(job, WORKER, w, p, worker_profile)) * w
                    if job.ps:
                        total = total + np.array(demand(job, PS, w, p, ps_profile)) * p
                    quota = instance.rules.quotas.get(job.tenant)
                    limits = quota.vector if quota else (None, None, None)
                    most = instance.rules.max_tasks_per_node or 10**9
                    intensity = w * job.worker.intensity + p * (job.ps.intensity if job.ps else 0)
                    ladder = instance.pressure_levels
                    if (
                        node.gpu_type not in job.types
                        or any(total > node.free)
                        or any(limit is not None and used > limit for used, limit in zip(total, limits, strict=True))
                        or w + p > most
                        or (ladder and intensity > ladder[-1] * node.pressure_capacity)
                    ):
                        continue
                    t = instance.gpu_types.index(node.gpu_type)
                    top = len(scoring.levels) - 1
                    own = job.types.index(node.gpu_type)
                    k = Configurations(own, w, p, 1, scoring.levels[top], worker_profile, ps_profile)
                    if scoring.model.predict(job, k).mean > 0:
                        assert (j, t, w, p, worker_profile, ps_profile, 1, top) in columns


@pytest.mark.parametrize("seed", SEEDS)
def test_every_pruned_column_is_dominated_by_one_that_stays(seed: int) -> None:
    instance = tiny_instance(seed)
    everything, kept = _columns(instance, prune=False), _columns(instance, prune=True)
    assert kept.keys() <= everything.keys()
    by_kind: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for column in kept:
        by_kind.setdefault((column[0], column[1], column[4], column[5]), []).append(column)
    for column in everything.keys() - kept.keys():
        j, t, w, p, worker_profile, ps_profile, span, level = column
        need = _demands(instance, column)

        def dominates(other: tuple[int, ...]) -> bool:
            theirs = _demands(instance, other)
            return (
                other[2] <= w  # noqa: B023
                and other[3] <= p  # noqa: B023
                and all(a <= b for mine, his in zip(need, theirs, strict=True) for a, b in zip(his, mine, strict=True))  # noqa: B023
                # its own placement uses at most its own tasks' number of nodes
                and other[6] >= min(span, other[2] + other[3])  # noqa: B023
                and other[7] >= level  # noqa: B023
                and kept[other][0] >= everything[column][0]  # noqa: B023
            )

        assert any(dominates(other) for other in by_kind.get((j, t, worker_profile, ps_profile), [])), column
