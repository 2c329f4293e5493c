"""Candidates against a plain enumeration, and the safety of what is pruned."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from coplace.formulations.candidates import candidates
from coplace.formulations.scoring import Scoring
from coplace.formulations.speed import Configurations
from coplace.instances import PS, WORKER, Instance
from coplace.instances.demand import demand
from tests import building
from tests.oracle.enumerate import Option, options
from tests.oracle.scoring import Oracle, caps
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


def _felt(instance: Instance, option: Option) -> int:
    """The level that a job alone feels: that of its worst node."""
    ladders = [(caps(instance, instance.nodes[take[0]]), take[4]) for take in option.takes]
    return max(next(level for level, cap in enumerate(ladder or (load,)) if load <= cap) for ladder, load in ladders)


@pytest.mark.parametrize("chunk", range(10))
def test_a_column_that_is_left_out_has_no_placement(chunk: int) -> None:
    """Brute force over all placements of a lone job: each has columns of its span and level, and of higher ones."""
    for seed in range(chunk * 20, chunk * 20 + 20):
        instance = tiny_instance(seed)
        oracle, scoring = Oracle(instance), Scoring(instance)
        columns = _columns(instance, prune=False)
        for j, job in enumerate(instance.jobs):
            total_nodes = sum(node.available and node.matches(job.node_selector) for node in instance.nodes)
            for option in options(oracle, job):
                if option.allocation is None or scoring.weights[j] <= 0:
                    continue
                workers = option.allocation.tasks[WORKER]
                t = instance.gpu_types.index(instance.node[next(iter(workers))].gpu_type)
                w, p = option.allocation.workers, option.allocation.servers
                profiles = option.allocation.profile(WORKER), option.allocation.profile(PS)
                for span in range(option.allocation.span, min(w + p, total_nodes) + 1):
                    for level in range(_felt(instance, option), len(scoring.levels)):
                        assert (j, t, w, p, *profiles, span, level) in columns, (seed, option)


@pytest.mark.parametrize(
    ("nodes", "changes", "least"),
    [
        ({"cpu": 10}, {}, 1),
        ({"cpu": 9}, {}, 2),  # four workers of 2 cores leave room for one server
        ({"gpu": 2}, {}, 2),
        ({"gpu": 1, "cpu": 2}, {}, 5),  # both servers on the fifth
        ({"gpu": 1, "cpu": 2, "memory": "9Gi"}, {"max_tasks_per_node": 1}, 6),
        ({"gpu": 3}, {"max_tasks_per_node": 2}, 3),
        ({"memory": "34Gi"}, {}, 2),
        ({"pressure_capacity": 50}, {"pressure_levels": [0.5, 1]}, 2),
    ],
)
def test_the_smallest_span_is_what_all_resources_need(
    nodes: dict[str, Any], changes: dict[str, Any], least: int
) -> None:
    """Four workers and two servers on equal nodes."""
    job = building.ps_job(
        worker={"gpu": 1, "cpu": 2, "memory": "8Gi", "max": 4, "intensity": 10},
        ps={"cpu": 1, "memory": "2Gi", "max": 2, "intensity": 10},
    )
    ladder = {key: changes[key] for key in changes if key == "pressure_levels"}
    rules = {"rules": {key: changes[key] for key in changes if key != "pressure_levels"}}
    case = building.instance([building.node(f"n{i}", **nodes) for i in range(8)], [job], **ladder, **rules)
    spans = [column[6] for column in _columns(case, prune=False) if column[2:4] == (4, 2)]
    assert min(spans) == least
    if ladder:
        calm = [column[6] for column in _columns(case, prune=False) if column[2:4] == (4, 2) and column[7] == 0]
        assert min(calm) == 3


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
