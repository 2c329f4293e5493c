"""Importing the tables of the openb cluster."""

import re
from pathlib import Path

import pytest

from coplace.instances import InputError, TableSpeed
from coplace.instances.importing import import_openb
from tests.data import data_dir

NODES = """node,cpu_milli,memory_mib,num_gpus,gpu_model
big,64000,262144,4,A10
small,8000,32768,1,T4
plain,32000,131072,0,
"""
HEADER = "pod,submit_s,scheduled_s,deleted_s,duration_s,cpu_milli,memory_mib,num_gpus,gpu_milli,qos,phase\n"
PODS = (
    HEADER
    + """late,500,500,900,400,4000,8192,1,1000,LS,Running
share,100,110,300,190,2000,4096,1,460,BE,Running
four,50,60,1000,940,16000,65536,4,1000,LS,Running
cpu,0,0,2000,2000,3500,1000,0,0,LS,Running
queued,200,,700,,1000,1024,1,1000,BE,Pending
huge,10,10,20,10,1000,1024,8,1000,BE,Running
broken,5,6,7,1,1000,1024,1,1000,BE,Failed
done,5,6,7,1,1000,1024,1,1000,BE,Succeeded
"""
)


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text(NODES)
    pods.write_text(PODS)
    return nodes, pods


def test_nodes_keep_their_names_types_and_amounts(tables):
    result = import_openb(tables[0])
    assert [(n.name, n.gpu_type, *n.capacity) for n in result.instance.nodes] == [
        ("big", "A10", 4, 64000, 262144),
        ("small", "T4", 1, 8000, 32768),
        ("plain", "none", 0, 32000, 131072),
    ]
    assert result.instance.jobs == ()
    assert result.report == (("nodes", 3),)


def test_a_pod_becomes_a_waiting_job_of_one_worker_whose_samples_are_seconds(tables):
    job = import_openb(*tables).instance.job["four"]
    assert (job.architecture, job.worker.min, job.worker.max, job.current) == ("allreduce", 1, 1, None)
    assert (job.worker.gpu, job.worker.profiles[0].cpu, job.worker.profiles[0].memory) == (4, 16000, 65536)
    assert job.remaining == 940
    assert isinstance(job.speed, TableSpeed)
    assert {(point.workers, point.servers, point.speed) for point in job.speed.points} == {(1, 0, 1.0)}


def test_pods_with_gpus_run_on_every_gpu_type_and_the_others_on_every_node(tables):
    instance = import_openb(*tables).instance
    assert instance.job["late"].types == ("A10", "T4")
    assert instance.job["cpu"].types == ("A10", "T4", "none")
    assert instance.job["cpu"].worker.gpu == 0


def test_jobs_come_in_the_order_of_submission(tables):
    names = [job.name for job in import_openb(*tables).instance.jobs]
    assert names == ["cpu", "huge", "four", "share", "queued", "late"]


def test_what_is_rounded_left_out_or_hopeless_is_counted(tables):
    result = import_openb(*tables)
    assert result.instance.job["share"].worker.gpu == 1
    assert result.instance.job["queued"].remaining is None
    assert dict(result.report) == {
        "nodes": 3,
        "jobs": 6,
        "pods failed, left out": 1,
        "pods succeeded, left out": 1,
        "pods with a share of a GPU, rounded up to one": 1,
        "pods of unknown duration": 1,
        "jobs that fit no node, kept": 1,
    }
    assert result.lines[0] == "3 nodes"


def test_a_moment_selects_the_pods_that_were_there_and_gives_them_their_age(tables):
    result = import_openb(*tables, at_seconds=300)
    assert [(job.name, job.age_seconds) for job in result.instance.jobs] == [
        ("cpu", 300),
        ("four", 250),
        ("queued", 100),
    ]
    assert dict(result.report)["pods of another time, left out"] == 3


def test_the_first_pods_and_other_phases_can_be_chosen(tables):
    result = import_openb(*tables, max_jobs=2)
    assert [job.name for job in result.instance.jobs] == ["cpu", "huge"]
    assert dict(result.report)["pods after the first 2, left out"] == 4
    assert [job.name for job in import_openb(*tables, phases=("Failed",)).instance.jobs] == ["broken"]


def test_a_cluster_without_gpus_takes_only_pods_without(tables):
    tables[0].write_text("node,cpu_milli,memory_mib,num_gpus,gpu_model\nplain,32000,131072,0,\n")
    result = import_openb(*tables)
    assert [job.name for job in result.instance.jobs] == ["cpu"]
    assert dict(result.report)["pods with GPUs in a cluster without, left out"] == 5


@pytest.mark.parametrize("option", [{"max_jobs": -1}, {"at_seconds": float("nan")}])
def test_senseless_options_are_refused(tables, option):
    with pytest.raises(ValueError, match=next(iter(option))):
        import_openb(*tables, **option)


@pytest.mark.parametrize(
    ("nodes", "pods", "says"),
    [
        (NODES.replace("num_gpus", "gpus"), PODS, "nodes.csv: line 1: column num_gpus is missing"),
        (NODES, PODS.replace("phase", "state"), "pods.csv: line 1: column phase is missing"),
        ("", PODS, "nodes.csv: line 1: column node is missing; found an empty file"),
        (NODES.replace("8000", "8 cores"), PODS, "nodes.csv: line 3.cpu_milli: must be a whole number"),
        (NODES.replace("8000", "-8000"), PODS, "nodes.csv: line 3.cpu_milli: must be a whole number"),
        (NODES.replace("8000", "80000000000"), PODS, "nodes.csv: line 3: cpu: more than 10000 cores"),
        (NODES.replace("small", "big"), PODS, "nodes.csv: line 3.node: must be unique, but stands on line 2"),
        (NODES.replace("small", ""), PODS, "nodes.csv: line 3: name: must not be empty"),
        (NODES, PODS.replace("late,500", "late,nan"), "pods.csv: line 2.submit_s: must be a number of seconds"),
        (NODES, PODS.replace("late,500", "late,"), "pods.csv: line 2.submit_s: is missing"),
        (NODES, PODS.replace("940", "long"), "pods.csv: line 4.duration_s: must be a number of seconds"),
        (NODES, PODS.replace("940", "-1"), "pods.csv: line 4.duration_s: must be a number of seconds"),
        (NODES, PODS.replace(",460,", ",,"), "pods.csv: line 3.gpu_milli: must be a whole number"),
        (NODES, PODS.replace("huge,10", "late,10"), "pods.csv: line 7.pod: must be unique, but stands on line 2"),
        (NODES, PODS + "short,1,2\n", "pods.csv: line 10: must have 11 cells"),
    ],
)
def test_a_bad_table_is_refused_with_line_and_column(tables, nodes, pods, says):
    tables[0].write_text(nodes)
    tables[1].write_text(pods)
    with pytest.raises(InputError, match=re.escape(says)):
        import_openb(*tables)


def test_a_file_that_is_no_table_is_refused(tables, tmp_path):
    tables[1].write_bytes(b"\xff\xfe\x00pod")
    with pytest.raises(InputError, match=r"pods\.csv: cannot be read as CSV"):
        import_openb(*tables)
    with pytest.raises(InputError, match=r"missing\.csv: cannot be read"):
        import_openb(tmp_path / "missing.csv")


def test_the_whole_cluster_imports():
    folder = data_dir()
    result = import_openb(folder / "openb_nodes.csv", folder / "openb_pods.csv")
    assert len(result.instance.nodes) == 1523
    assert len(result.instance.jobs) == 6090
    assert result.instance.gpu_types == ("A10", "G2", "G3", "P100", "T4", "V100M16", "V100M32", "none")
    assert dict(result.report)["pods failed, left out"] == 1870
    assert "jobs that fit no node, kept" not in dict(result.report)


def test_a_moment_of_the_real_cluster():
    folder = data_dir()
    result = import_openb(folder / "openb_nodes.csv", folder / "openb_pods.csv", at_seconds=12_000_000, max_jobs=20)
    assert len(result.instance.jobs) == 20
    assert all(job.age_seconds >= 0 for job in result.instance.jobs)
