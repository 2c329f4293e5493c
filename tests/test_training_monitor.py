"""The monitor of a node: rates, smoothing, what is free within a grant, and the document it becomes."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coplace.instances.errors import InputError
from coplace.training.nodes.monitor import CoreGrant, HostCounters, NodeMonitor, NodeSample


class Host:
    """A host whose clock and counters are set by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cpu = self.idle = self.sent = self.received = 0.0

    def counters(self) -> HostCounters:
        return HostCounters(self.cpu, self.idle, self.sent, self.received)

    def pass_by(self, seconds: float, busy: float, sent: float = 0.0) -> None:
        """*seconds* with *busy* of all cores busy."""
        cores = os.cpu_count() or 1
        self.now += seconds
        self.cpu += cores * seconds
        self.idle += (cores - busy) * seconds
        self.sent += sent


def monitor(host: Host, grant: float = 1e9, smoothing: float = 5.0) -> NodeMonitor:
    return NodeMonitor(smoothing, clock=lambda: host.now, counters=host.counters, grant=lambda: grant)


def test_the_first_sample_has_no_rates():
    sample = monitor(Host()).sample({"me": os.getpid()})
    assert sample.seconds == 0
    assert (sample.busy_cores, sample.free_cores, sample.sent_mib_s, sample.smooth_busy_cores) == (None,) * 4
    assert sample.processes["me"].cores is None
    assert sample.processes["me"].rss_mib > 1
    assert sample.processes["me"].threads >= 1
    assert 0 < sample.memory_available_mib <= sample.memory_total_mib


def test_rates_and_their_smoothing_by_elapsed_time():
    host = Host()
    node = monitor(host)
    node.sample({})
    host.pass_by(2.0, busy=1.0, sent=6.0)
    first = node.sample({})
    assert first.busy_cores == pytest.approx(1.0)
    assert first.sent_mib_s == pytest.approx(3.0)
    assert first.smooth_sent_mib_s == pytest.approx(3.0)
    host.pass_by(5.0, busy=0.0)
    assert node.sample({}).smooth_busy_cores == pytest.approx(0.3679, abs=1e-3)  # 1/e after one time constant


def test_smoothing_does_not_depend_on_how_often_samples_are_taken():
    ends = []
    for pieces in (1, 10):
        host = Host()
        node = monitor(host)
        node.sample({})
        host.pass_by(1.0, busy=1.0)
        node.sample({})
        for _ in range(pieces):
            host.pass_by(3.0 / pieces, busy=0.0)
            sample = node.sample({})
        ends.append(sample.smooth_busy_cores)
    assert ends[0] == pytest.approx(ends[1])


def test_free_cores_are_idle_ones_and_those_of_the_own_tasks_within_the_grant():
    cores = os.cpu_count() or 1
    host = Host()
    node, bounded = monitor(host), monitor(host, grant=0.25)
    node.sample({})
    bounded.sample({})
    host.pass_by(1.0, busy=0.5)
    assert node.sample({}).free_cores == pytest.approx(cores - 0.5)
    assert bounded.sample({}).free_cores == pytest.approx(0.25)
    pids = {"me": os.getpid()}
    node.sample(pids)
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    host.pass_by(1.0, busy=cores)
    sample = node.sample(pids)
    assert sample.processes["me"].cores is not None
    assert sample.processes["me"].cores == pytest.approx(0.2, abs=0.1)
    assert sample.free_cores == pytest.approx(sample.processes["me"].cores)


def test_a_host_that_counts_nothing_frees_the_grant():
    host = Host()
    node = monitor(host, grant=2.0)
    node.sample({})
    host.now += 1
    sample = node.sample({})
    assert sample.busy_cores is None
    assert sample.free_cores == 2.0


def test_processes_that_are_gone_are_left_out():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        node = NodeMonitor()
        pids = {"child": child.pid, "me": os.getpid()}
        assert set(node.sample(pids).processes) == {"child", "me"}
        child.kill()
        deadline = time.monotonic() + 10
        while "child" in node.sample(pids).processes and time.monotonic() < deadline:  # until it is a zombie
            time.sleep(0.01)
        assert set(node.sample(pids).processes) == {"me"}
    finally:
        child.kill()
        child.communicate()
    assert set(node.sample(pids).processes) == {"me"}


def test_another_process_under_the_same_name_starts_without_rates():
    host = Host()
    node = monitor(host)
    node.sample({"task": os.getpid()})
    host.pass_by(1.0, busy=0.0)
    assert node.sample({"task": os.getpid()}).processes["task"].cores is not None
    host.pass_by(1.0, busy=0.0)
    assert node.sample({"task": os.getppid()}).processes["task"].cores is None


def test_the_real_host_gives_figures_that_make_sense():
    node = NodeMonitor()
    node.sample({})
    time.sleep(0.1)
    sample = node.sample({})
    assert 0 < sample.grant_cores <= sample.cpu_count
    assert sample.free_cores is not None
    assert 0 <= sample.free_cores <= sample.grant_cores
    assert sample.busy_cores is None or 0 <= sample.busy_cores <= sample.cpu_count


def lay_out(root: Path, files: dict[str, str]) -> CoreGrant:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="ascii")
    return CoreGrant(root)


def test_quotas_of_control_groups_version_2_from_the_own_group_up(tmp_path):
    files = {
        "proc/self/cgroup": "0::/jobs/one\n",
        "sys/fs/cgroup/jobs/one/cpu.max": "max 100000\n",
        "sys/fs/cgroup/jobs/cpu.max": "50000 100000\n",
    }
    assert lay_out(tmp_path, files).cores() == 0.5


def test_quotas_of_version_1_where_the_container_sees_only_the_root(tmp_path):
    files = {
        "proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/docker/abc\n0::/\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "25000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    }
    assert lay_out(tmp_path, files).cores() == 0.25


def test_no_quota_leaves_the_affinity(tmp_path):
    everything = CoreGrant(tmp_path).cores()
    assert everything >= 1
    files = {
        "proc/self/cgroup": "4:cpu:/\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    }
    assert lay_out(tmp_path, files).cores() == everything


def test_the_document_reads_back():
    node = NodeMonitor()
    for sample in (node.sample({"me": os.getpid()}), node.sample({"me": os.getpid()})):
        document = json.loads(json.dumps(sample.to_document()))
        assert NodeSample.from_document(document) == sample


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cpu_count": 1.5}, "cpu_count: must be a whole number; found 1.5"),
        ({"busy_cores": "all"}, "busy_cores: must be a number; found 'all'"),
        ({"memory_total_mib": None}, "memory_total_mib: must be a number; found None"),
        ({"load_average": [1, 2]}, "load_average: must be three numbers; found [1, 2]"),
        ({"extra": 1}, "extra: is not known"),
        ({"processes": {"w": {"pid": 1}}}, "processes.w.rss_mib: is missing"),
        ({"processes": []}, "processes: must be a mapping; found []"),
    ],
)
def test_a_wrong_document_is_refused(change, message):
    document = NodeMonitor().sample({}).to_document() | change
    with pytest.raises(InputError) as caught:
        NodeSample.from_document(document)
    assert message in str(caught.value).splitlines()
