"""Generated instances have the properties that their families promise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coplace.instances import InputError, Instance, read_instance, write_instance
from coplace.instances.generation import FAMILIES, generate

SIZES = ((1, 1), (4, 8), (64, 128), (200, 400))
ALL = [(family, nodes, jobs) for family in FAMILIES for nodes, jobs in SIZES]


@pytest.mark.parametrize(("family", "nodes", "jobs"), ALL)
def test_every_job_says_what_baselines_need(family: str, nodes: int, jobs: int) -> None:
    instance = generate(family, nodes=nodes, jobs=jobs)
    assert len(instance.nodes) == nodes
    assert len(instance.jobs) == jobs
    assert sum(job.weight == 1 for job in instance.jobs) >= 0.8 * jobs
    if jobs >= 100:
        assert len({job.tenant for job in instance.jobs}) >= 3
    for job in instance.jobs:
        assert job.remaining
        assert job.requested is not None
        assert job.worker.min <= job.requested.workers <= job.worker.max
        assert job.age_seconds > 0


@pytest.mark.parametrize(("family", "nodes", "jobs"), ALL)
def test_running_jobs_keep_every_rule(family: str, nodes: int, jobs: int) -> None:
    """Capacity is checked by Instance itself; here the rest: counts, GPU type, free room, pressure, history."""
    instance = generate(family, nodes=nodes, jobs=jobs, seed=3)
    load = dict.fromkeys(instance.node, 0)
    for job in instance.jobs:
        if job.current is None:
            continue
        assert job.worker.min <= job.current.workers <= job.worker.max
        assert job.min_servers <= job.current.servers <= job.max_servers
        types = {instance.node[name].gpu_type for name in job.current.tasks["worker"]}
        assert len(types) == 1
        assert types <= set(job.types)
        assert job.attained_gpu_seconds > 0
        assert job.progress > 0
        for role, placed in job.current.tasks.items():
            spec = job.role(role)
            assert spec is not None
            for name, tasks in placed.items():
                load[name] += spec.intensity * tasks
    top = instance.pressure_levels[-1]
    assert all(load[node.name] <= int(top * node.pressure_capacity) for node in instance.nodes)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("nodes", "jobs"), [(64, 128), (200, 400)])
def test_shares_that_all_families_keep(family: str, nodes: int, jobs: int) -> None:
    instance = generate(family, nodes=nodes, jobs=jobs, seed=1)
    running = sum(job.running for job in instance.jobs) / jobs
    assert running >= (0.05 if family == "big-gangs" else 0.2)
    assert sum(node.used.vector != (0, 0, 0) for node in instance.nodes) >= 0.1 * nodes
    intense = sum(job.worker.intensity > 0 for job in instance.jobs)
    assert intense == jobs


@pytest.mark.parametrize(("nodes", "gpus"), [(64, 384), (200, 1200)])
def test_ps_mix(nodes: int, gpus: int) -> None:
    jobs = 2 * nodes
    instance = generate("ps-mix", nodes=nodes, jobs=jobs)
    assert sum(node.gpu for node in instance.nodes) == gpus
    assert len(instance.gpu_types) == 3
    for size, share in ((1, 0.5), (2, 0.2), (4, 0.2), (8, 0.1)):
        assert sum(job.worker.gpu == size for job in instance.jobs) / jobs == pytest.approx(share, abs=0.01)
    forms = [job.speed.form for job in instance.jobs]
    assert set(forms) == {"ps-sync", "ps-async"}
    assert forms.count("ps-sync") > forms.count("ps-async")
    assert 0 < sum(len(job.worker.profiles) == 2 for job in instance.jobs) <= 0.2 * jobs
    for job in instance.jobs:
        assert job.worker.max <= 16
        assert job.ps is not None
        assert job.ps.max <= 6
        assert job.ps.memory_model is not None
    wanted = sum(job.worker.gpu * job.requested.workers for job in instance.jobs if job.requested)
    assert 1.2 * gpus <= wanted <= 3 * gpus


def test_allreduce_mix_has_no_servers() -> None:
    instance = generate("allreduce-mix", nodes=64, jobs=128)
    assert all(job.ps is None and job.speed.form == "allreduce" for job in instance.jobs)


def test_cpu_bound_jobs_choose_their_cpus_where_cpus_are_scarce() -> None:
    instance = generate("cpu-bound", nodes=64, jobs=128)
    for job in instance.jobs:
        assert len(job.worker.profiles) == 4
        by_cpu = sorted(job.worker.profiles, key=lambda profile: profile.cpu)
        for gpu_type in job.types:
            slow = [profile.slowdown_on(gpu_type) for profile in by_cpu]
            assert slow == sorted(slow, reverse=True)
    assert sum(node.cpu for node in instance.nodes) < 4000 * sum(node.gpu for node in instance.nodes)
    starved = [max(job.worker.profiles, key=lambda p: p.slowdown_on("v100")) for job in instance.jobs]
    assert all(profile.slowdown_on("v100") > 2 for profile in starved)


def test_fragmented_nodes_have_odd_numbers_of_free_gpus() -> None:
    instance = generate("fragmented", nodes=64, jobs=128)
    assert sum(node.free[0] % 2 for node in instance.nodes) >= 0.65 * 64
    assert sum(job.worker.gpu > 1 for job in instance.jobs) >= 0.85 * 128


@pytest.mark.parametrize(("nodes", "jobs"), [(16, 8), (64, 128), (200, 400)])
def test_saturated_asks_for_three_clusters(nodes: int, jobs: int) -> None:
    instance = generate("saturated", nodes=nodes, jobs=jobs)
    gpus = sum(node.gpu for node in instance.nodes)
    assert sum(job.worker.gpu * job.worker.min for job in instance.jobs) == pytest.approx(3 * gpus, rel=0.03)


def test_big_gangs_are_big() -> None:
    instance = generate("big-gangs", nodes=64, jobs=128)
    assert all(12 <= job.worker.gpu * job.worker.min <= 48 for job in instance.jobs)


@pytest.mark.parametrize("family", FAMILIES)
def test_same_arguments_give_the_same_instance(family: str) -> None:
    again = [generate(family, nodes=16, jobs=40, seed=7) for _ in range(2)]
    assert again[0] == again[1]
    assert again[0] != generate(family, nodes=16, jobs=40, seed=8)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_round_trip(family: str, suffix: str, tmp_path: Path) -> None:
    instance = generate(family, nodes=12, jobs=24)
    write_instance(instance, tmp_path / f"instance.{suffix}")
    assert read_instance(tmp_path / f"instance.{suffix}") == instance


@pytest.mark.parametrize("family", FAMILIES)
def test_simpler_variants_differ_in_nothing_else(family: str) -> None:
    full = generate(family, nodes=16, jobs=40)
    calm = generate(family, nodes=16, jobs=40, pressure=False)
    assert calm.pressure_levels == ()
    assert all(job.worker.intensity == 0 and (job.ps is None or job.ps.intensity == 0) for job in calm.jobs)
    assert calm.current == full.current
    fresh = generate(family, nodes=16, jobs=40, moves=False)
    assert not any(job.running or job.restarts or job.progress for job in fresh.jobs)
    assert fresh.nodes == full.nodes
    assert [job.speed for job in fresh.jobs] == [job.speed for job in full.jobs]
    assert isinstance(generate(family, nodes=16, jobs=40, pressure=False, moves=False), Instance)


@pytest.mark.parametrize("family", [None, 7, ["ps-mix"], "x" * 10_000])
def test_what_is_no_family_is_refused(family: Any) -> None:
    with pytest.raises(InputError, match=r"^family: must be a family of generated instances; found .{1,62}; known: "):
        generate(family, nodes=4, jobs=4)


@pytest.mark.parametrize("option", ["pressure", "moves"])
@pytest.mark.parametrize("value", ["off", None, 0, "on"])
def test_a_switch_is_a_flag(option: str, value: Any) -> None:
    """``pressure="off"`` meant on."""
    with pytest.raises(InputError, match=rf"^{option}: must be True or False; found {value!r}$"):
        generate("ps-mix", nodes=4, jobs=4, **{option: value})


def test_unknown_family_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"family: .*'ps-mx'; did you mean ps-mix\?"):
        generate("ps-mx", nodes=4, jobs=4)


@pytest.mark.parametrize(
    ("option", "arguments"),
    [
        ("nodes", {"nodes": 0, "jobs": 4}),
        ("nodes", {"nodes": 10**9, "jobs": 4}),
        ("jobs", {"nodes": 4, "jobs": -1}),
        ("seed", {"nodes": 4, "jobs": 4, "seed": -1}),
    ],
)
def test_silly_numbers_are_refused_by_name(option: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=rf"^{option}: must be a whole number"):
        generate("ps-mix", **arguments)
