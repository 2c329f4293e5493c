"""Lines against the candidates of the same job: nothing that a candidate offers is missing, and no line lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from coplace.formulations.candidates import Candidates, candidates
from coplace.formulations.hosts import NodeArrays
from coplace.formulations.lines import JobLines, job_lines
from coplace.formulations.scoring import Scoring
from coplace.formulations.speed import Configurations
from coplace.instances import Instance
from coplace.instances.demand import ps_memory
from tests.building import A100, instance, node, ps_job, ring_job
from tests.oracle.tiny import tiny_instance, wide_instance

Case = tuple[Instance, float]


def check(case: Instance, tolerance: float) -> list[JobLines]:
    """The lines of every job, after holding each against every configuration that some node can host."""
    scoring = Scoring(case)
    nodes = NodeArrays(case)
    everything = candidates(case, scoring, prune=False)
    found = [job_lines(scoring, nodes, j, tolerance) for j in range(len(case.jobs))]
    for j, job in enumerate(found):
        of_job = everything.of(j)
        best = float(everything.value[of_job].max(initial=0.0))
        assert 0 <= job.error <= (tolerance + 1e-11) * best
        assert 0 <= job.excess <= (tolerance + 1e-11) * best
        nothing_is_missing(job, everything, of_job)
        no_line_lies(scoring, j, job, everything, of_job)
    return found


def nothing_is_missing(job: JobLines, everything: Candidates, of_job: slice) -> None:
    """For each configuration a line with a value up to the error at least as good, which the same placement fits.

    The placement may lose tasks on the way, but not grow any; a line's span may be larger, its level higher.
    """
    w, p = everything.workers[of_job], everything.servers[of_job]
    covered = everything.value[of_job] <= job.error + 1e-12
    for line in job.lines:
        alike = (
            (everything.gpu_type[of_job] == line.gpu_type)
            & (everything.worker_profile[of_job] == line.worker_profile)
            & (everything.ps_profile[of_job] == line.ps_profile)
            & (p >= line.servers)
            & (everything.level[of_job] <= line.level)
            & (w >= line.least_workers)
        )
        counts = np.arange(line.least_workers, line.most_workers + 1)
        best = np.maximum.accumulate(line.curve(counts))
        fewer = np.clip(w, line.least_workers, line.most_workers)
        memory = np.array([line.ps_memory(int(count)) for count in counts])[fewer - line.least_workers]
        alike &= memory <= everything.ps_memory[of_job]
        alike &= everything.span[of_job] <= line.span
        reached = best[fewer - line.least_workers] + job.error >= everything.value[of_job] * (1 - 1e-12)
        covered = covered | (alike & reached)
    assert covered.all(), [
        [getattr(everything, name)[of_job][i].item() for name in Candidates.__slots__]
        for i in np.flatnonzero(~covered)[:3]
    ]


def no_line_lies(scoring: Scoring, j: int, job: JobLines, everything: Candidates, of_job: slice) -> None:
    """Each worker count of a line is a configuration that some node can host, with its value and memory."""
    spec = scoring.instance.jobs[j]
    names = ("gpu_type", "worker_profile", "ps_profile", "servers", "level", "workers")
    columns = zip(*(getattr(everything, name)[of_job].tolist() for name in names), strict=True)
    least_span: dict[tuple[int, ...], int] = {}
    for key, span in zip(columns, everything.span[of_job].tolist(), strict=True):
        least_span[key] = min(span, least_span.get(key, span))
    assert len({line[:6] + line.curve.xs for line in job.lines}) == len(job.lines)
    for line in job.lines:
        counts: NDArray[np.int64] = np.arange(line.least_workers, line.most_workers + 1)
        own = spec.types.index(scoring.instance.gpu_types[line.gpu_type])
        k = Configurations(
            own, counts, line.servers, line.span, scoring.levels[line.level], line.worker_profile, line.ps_profile
        )
        exact = scoring.value(j, np.asarray(scoring.model.predict(spec, k).mean), kept=False)
        gap = exact - line.curve(counts)
        slack = 1e-12 * float(exact.max())
        assert gap.max() <= min(job.error, line.curve.error_below) + slack
        assert -gap.min() <= min(job.excess, line.curve.error_above) + slack
        for w in counts.tolist():
            key = (line.gpu_type, line.worker_profile, line.ps_profile, line.servers, line.level, w)
            assert least_span[key] <= line.span
            if spec.ps is not None:
                assert line.ps_memory(w) == ps_memory(spec, w, line.servers, line.ps_profile)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("tolerance", [0.0, 0.05])
def test_lines_of_tiny_instances_cover_their_candidates(seed: int, tolerance: float) -> None:
    check(tiny_instance(seed), tolerance)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("tolerance", [0.001, 0.2])
def test_lines_of_wide_instances_cover_their_candidates(seed: int, tolerance: float) -> None:
    check(wide_instance(seed), tolerance)


def cluster() -> list[dict[str, Any]]:
    """512 GPUs on 16 nodes of two sizes."""
    big = [node(f"big{i}", gpu=48, cpu=256, memory="2Ti", pressure_capacity=480) for i in range(8)]
    small = [node(f"small{i}", gpu=16, cpu=96, memory="512Gi", pressure_capacity=160) for i in range(8)]
    return big + small


WIDE = {"gpu": 1, "cpu": 2, "memory": "8Gi", "max": 512}
SYNC = {"form": "ps-sync", "batch": 8192, "types": {"a100": A100 | {"c": 0.003, "d": 1e-5}}}
RING = {"a": 0.001, "b": 0.01, "latency_inter": 1e-4, "transfer_intra": 0.002, "transfer_inter": 0.02}
SPREAD = {"spread": {"slope": 0.5}}
JOBS = {
    "ps-sync": ps_job(worker=WIDE, ps={"cpu": 1, "memory": "2Gi", "max": 4}, speed=SYNC),
    "ps-sync spread": ps_job(worker=WIDE, ps={"cpu": 1, "memory": "2Gi", "max": 4}, speed=SYNC | SPREAD),
    "ps-sync memory": ps_job(
        worker=WIDE | {"min": 3, "intensity": 8},
        ps={
            "profiles": [{"cpu": 1, "memory": "4Gi", "slowdown": 1.3}, {"cpu": 4, "memory": "1Gi"}],
            "max": 4,
            "memory_model": {"model": "6Gi", "receive_buffer": "40Mi", "base": "1Gi"},
        },
        speed=SYNC | SPREAD | {"interference": {"slope": 0.7, "onset": 0.2}},
    ),
    "ps-async": ps_job(
        worker=WIDE, ps={"cpu": 1, "max": 3}, speed=SYNC | {"form": "ps-async", "batch": 64, "staleness_cost": 0.004}
    ),
    "allreduce": ring_job(worker=WIDE, speed={"form": "allreduce", "batch": 8192, "types": {"a100": RING}} | SPREAD),
    "table": ring_job(
        worker=WIDE,
        speed={
            "form": "table",
            "points": [
                {"gpu_type": "a100", "workers": 2**i, "speed": 100 * 1.8**i * (1 + 0.1 * (i % 3))} for i in range(10)
            ],
            "communication_share": 0.4,
        }
        | SPREAD,
    ),
}


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("goal", ["throughput", "fairness"])
def test_lines_of_512_counts_cover_their_candidates(name: str, goal: str) -> None:
    case = instance(cluster(), [JOBS[name]], goal=goal, pressure_levels=[0.3, 0.6, 1.0])
    for tolerance, most in ((1e-2, 16), (1e-3, 50)):
        (job,) = check(case, tolerance)
        assert max(len(line.curve.xs) for line in job.lines) <= most
        assert job.error > 0


def test_a_job_without_span_and_level_effects_has_one_line_per_server_count() -> None:
    case = instance(cluster(), [JOBS["ps-sync"]], pressure_levels=[0.3, 0.6, 1.0])
    (job,) = check(case, 1e-3)
    assert sorted(line.servers for line in job.lines) == [1, 2, 3, 4]
    assert {(line.span, line.level) for line in job.lines} == {(16, 2)}
    assert all(line.curve.concave for line in job.lines)


def test_a_coarser_tolerance_takes_fewer_spans() -> None:
    case = instance(cluster(), [JOBS["ps-sync spread"]])
    spans = [{line.span for line in check(case, tolerance)[0].lines} for tolerance in (0.3, 0.03, 0.003)]
    assert len(spans[0]) < len(spans[1]) < len(spans[2])


def test_lines_stop_where_more_workers_slow_the_job_down() -> None:
    slow = SYNC | {"types": {"a100": A100 | {"d": 0.01}}}
    case = instance(cluster(), [ps_job(worker=WIDE, speed=slow)])
    (job,) = check(case, 1e-3)
    assert max(line.most_workers for line in job.lines) < 100
    assert all(line.curve.vs[-1] == max(line.curve.vs) for line in job.lines)


def test_a_line_is_split_where_a_table_says_nothing() -> None:
    points = [(1, 1, 10.0), (10, 1, 90.0), (1, 3, 20.0), (3, 3, 50.0), (6, 4, 110.0), (10, 4, 190.0)]
    speed = {
        "form": "table",
        "points": [{"gpu_type": "a100", "workers": w, "servers": p, "speed": v} for w, p, v in points],
    }
    case = instance(cluster(), [ps_job(worker=WIDE | {"max": 10}, ps={"cpu": 1, "max": 4}, speed=speed)])
    (job,) = check(case, 0.0)
    assert [line.curve.xs for line in job.lines if line.servers == 2] == [(1, 3), (6, 10)]


def test_a_job_that_no_node_can_host_has_no_lines() -> None:
    huge = ring_job("huge", worker=WIDE | {"gpu": 64})
    foreign = ring_job("foreign", node_selector={"zone": "moon"})
    assert check(instance(cluster(), [huge, foreign]), 0.01) == [JobLines((), 0.0, 0.0)] * 2


def test_quotas_shorten_lines() -> None:
    case = instance(cluster(), [JOBS["ps-sync"]], rules={"quotas": {"default": {"gpu": 77}}})
    (job,) = check(case, 1e-3)
    assert max(line.most_workers for line in job.lines) == 77
