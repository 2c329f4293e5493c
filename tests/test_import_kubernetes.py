"""Importing what ``kubectl get -o json`` prints."""

import contextlib
import copy
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coplace.instances import InputError
from coplace.instances.importing import Imported, import_kubernetes


def node(name: str, *, gpus: int = 0, **spec: Any) -> dict[str, Any]:
    """A node with 64 cores and 256 GiB, of which the kubelet keeps a little."""
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "hall-1"}
    allocatable = {"cpu": "63920m", "ephemeral-storage": "95551679124", "memory": "263911144Ki", "pods": "110"}
    capacity = {"cpu": "64", "ephemeral-storage": "103680640Ki", "memory": "264041192Ki", "pods": "110"}
    if gpus:
        labels["nvidia.com/gpu.product"] = "NVIDIA-A100-SXM4-80GB"
        allocatable["nvidia.com/gpu"] = capacity["nvidia.com/gpu"] = str(gpus)
        spec = {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}], **spec}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "creationTimestamp": "2024-05-01T08:00:00Z"},
        "spec": {"podCIDR": "10.244.1.0/24", **spec},
        "status": {
            "allocatable": allocatable,
            "capacity": capacity,
            "conditions": [
                {"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory"},
                {"type": "Ready", "status": "True", "reason": "KubeletReady"},
            ],
        },
    }


def container(
    cpu: str | None = None, memory: str | None = None, gpus: str | None = None, **more: Any
) -> dict[str, Any]:
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value is not None}
    resources: dict[str, Any] = {"requests": requests} if requests else {}
    if gpus is not None:
        resources["limits"] = {"nvidia.com/gpu": gpus}
        resources.setdefault("requests", {})["nvidia.com/gpu"] = gpus
    return {"name": "main", "image": "registry.example/train:1", "resources": resources, **more}


def pod(name: str, *containers: dict[str, Any], on: str | None = None, phase: str = "", **spec: Any) -> dict[str, Any]:
    spec = {"containers": list(containers), "restartPolicy": "Never", **spec}
    if on is not None:
        spec["nodeName"] = on
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "vision", "creationTimestamp": "2024-05-01T12:00:00Z"},
        "spec": spec,
        "status": {"phase": phase or ("Running" if on else "Pending")},
    }


def listed(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}


def load(folder: Path, nodes: Any, pods: Any = None, **options: Any) -> Imported:
    (folder / "nodes.json").write_text(json.dumps(nodes if isinstance(nodes, dict) else listed(nodes)))
    if pods is None:
        return import_kubernetes(folder / "nodes.json", **options)
    (folder / "pods.json").write_text(json.dumps(pods if isinstance(pods, dict) else listed(pods)))
    return import_kubernetes(folder / "nodes.json", folder / "pods.json", **options)


def used(folder: Path, *pods: dict[str, Any]) -> tuple[int, int, int]:
    return load(folder, [node("n1", gpus=8)], list(pods)).instance.node["n1"].used.vector


def refusal(folder: Path, nodes: Any, pods: Any = None) -> str:
    with pytest.raises(InputError) as caught:
        load(folder, nodes, pods)
    return str(caught.value)


# --- nodes --------------------------------------------------------------------------------------------------------


def test_a_node_offers_what_is_allocatable_rounded_down(tmp_path):
    result = load(tmp_path, [node("gpu-1", gpus=8), node("cpu-1")])
    first, second = result.instance.nodes
    assert (first.name, first.gpu_type, *first.capacity) == ("gpu-1", "NVIDIA-A100-SXM4-80GB", 8, 63920, 257725)
    assert (second.name, second.gpu_type, *second.capacity) == ("cpu-1", "none", 0, 63920, 257725)
    assert first.labels["kubernetes.io/hostname"] == "gpu-1"
    assert dict(result.report) == {"nodes": 2, "nodes with less allocatable CPU or memory than capacity": 2}


@pytest.mark.parametrize(
    ("quantity", "milli"), [("3920m", 3920), ("1e1", 10000), ("16", 16000), (16, 16000), ("0.0005", 0), ("1k", 10**6)]
)
def test_quantities_of_every_notation(tmp_path, quantity, milli):
    machine = node("n")
    machine["status"]["allocatable"]["cpu"] = quantity
    assert load(tmp_path, [machine]).instance.nodes[0].cpu == milli


def test_the_rack_is_the_rack_label_or_else_the_zone(tmp_path):
    first, second = node("a"), node("b")
    first["metadata"]["labels"]["topology.kubernetes.io/rack"] = "r7"
    assert [n.rack for n in load(tmp_path, [first, second]).instance.nodes] == ["r7", "hall-1"]


def test_the_taint_of_gpu_nodes_does_not_cordon_them_but_others_do(tmp_path):
    other = [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]
    soft = [{"key": "dedicated", "value": "db", "effect": "PreferNoSchedule"}]
    evict = [{"key": "node.kubernetes.io/disk-pressure", "effect": "NoExecute"}]
    nodes = [
        node("usual", gpus=8),
        node("off", gpus=8, unschedulable=True),
        node("tainted", taints=other),
        node("soft", taints=soft),
        node("evicting", taints=evict),
    ]
    result = load(tmp_path, nodes)
    assert [n.cordoned for n in result.instance.nodes] == [False, True, True, False, True]
    assert dict(result.report)["nodes cordoned or tainted"] == 3
    lenient = load(tmp_path, nodes, ignored_taints=("nvidia.com/gpu", "dedicated"))
    assert [n.cordoned for n in lenient.instance.nodes] == [False, True, False, False, True]


@pytest.mark.parametrize(
    "conditions", [[], [{"type": "Ready", "status": "False"}], [{"type": "Ready", "status": "Unknown"}]]
)
def test_a_node_that_is_not_ready_is_lost(tmp_path, conditions):
    machine = node("n", gpus=8)
    machine["status"]["conditions"] = conditions
    result = load(tmp_path, [machine], [pod("p", container("1", "1Gi"), on="n")])
    assert result.instance.nodes[0].lost == "all"
    assert dict(result.report)["nodes not ready, taken as lost"] == 1


def test_gpu_resource_and_type_label_can_be_chosen(tmp_path):
    machine = node("n")
    machine["status"]["allocatable"]["example.com/tpu"] = 4
    machine["metadata"]["labels"]["kind"] = "tpu-v9"
    options = {"gpu_resources": ("example.com/tpu",), "gpu_type_label": "kind"}
    found = load(tmp_path, [machine], **options).instance.nodes[0]
    assert (found.gpu, found.gpu_type) == (4, "tpu-v9")


def test_a_gpu_resource_that_is_named_twice_counts_once(tmp_path):
    """It doubled the GPUs of every node and pod."""
    pending = pod("p", container(cpu="1", memory="1Gi", gpus="2"))
    one = load(tmp_path, [node("n", gpus=4)], [pending], gpu_resources=("nvidia.com/gpu",))
    two = load(tmp_path, [node("n", gpus=4)], [pending], gpu_resources=["nvidia.com/gpu", "nvidia.com/gpu"])
    assert two.instance == one.instance
    assert (two.instance.nodes[0].gpu, two.instance.jobs[0].worker.gpu) == (4, 2)


@pytest.mark.parametrize("now", [datetime.min, datetime.max])
def test_a_time_that_cannot_be_local_is_refused(tmp_path, now):
    """``--now 0001-01-01T00:00:00`` ended with a traceback; where it can be turned into local time, it is one."""
    with contextlib.suppress(InputError):
        load(tmp_path, [node("n", gpus=4)], [pod("p", container(gpus="2"))], now=now)


def test_gpus_without_a_label_are_of_type_gpu_and_missing_ones_are_reported(tmp_path):
    machine = node("n")
    machine["status"]["allocatable"]["amd.com/gpu"] = "7"
    machine["status"]["capacity"]["amd.com/gpu"] = "8"
    result = load(tmp_path, [machine])
    assert (result.instance.nodes[0].gpu_type, result.instance.nodes[0].gpu) == ("gpu", 7)
    assert dict(result.report)["nodes with fewer allocatable GPUs than capacity"] == 1
    assert dict(result.report)["nodes without a label for their GPU type"] == 1


# --- bound pods ---------------------------------------------------------------------------------------------------


def test_bound_pods_count_as_used_by_others(tmp_path):
    two = [pod("a", container("2", "4Gi", "2"), on="n1"), pod("b", container("500m", "100Mi"), on="n1")]
    assert used(tmp_path, *two) == (2, 2500, 4196)


def test_containers_add_up(tmp_path):
    assert used(tmp_path, pod("a", container("1", "1Gi"), container("250m", "1Gi"), on="n1")) == (0, 1250, 2048)


def test_the_largest_init_container_counts_where_it_asks_for_more(tmp_path):
    init = [container("4", "1Gi"), container("1", "8Gi")]
    assert used(tmp_path, pod("a", container("2", "2Gi"), initContainers=init, on="n1")) == (0, 4000, 8192)


def test_sidecars_add_to_the_containers_and_to_later_init_containers(tmp_path):
    sidecar = container("1", "1Gi", restartPolicy="Always")
    late = [sidecar, container("4", "1Gi")]
    assert used(tmp_path, pod("a", container("2", "2Gi"), initContainers=late, on="n1")) == (0, 5000, 3072)
    early = [container("4", "1Gi"), sidecar]
    assert used(tmp_path, pod("a", container("2", "2Gi"), initContainers=early, on="n1")) == (0, 4000, 3072)


def test_overhead_comes_on_top(tmp_path):
    overhead = {"cpu": "250m", "memory": "120Mi"}
    asked = pod("a", container("2", "2Gi"), initContainers=[container("3", "1Gi")], overhead=overhead, on="n1")
    assert used(tmp_path, asked) == (0, 3250, 2168)


def test_a_request_of_the_whole_pod_replaces_those_of_its_containers(tmp_path):
    whole = {"requests": {"cpu": "6"}}
    assert used(tmp_path, pod("a", container("2", "2Gi"), resources=whole, on="n1")) == (0, 6000, 2048)


def test_limits_stand_in_for_missing_requests_and_nothing_for_missing_limits(tmp_path):
    limited = {"name": "main", "resources": {"limits": {"cpu": "3", "memory": "3Gi"}}}
    result = load(tmp_path, [node("n1")], [pod("a", limited, on="n1"), pod("b", {"name": "main"}, on="n1")])
    assert result.instance.nodes[0].used.vector == (0, 3000, 3072)
    assert dict(result.report)["pods with a container that requests no CPU or no memory, taken as 0"] == 1


def test_small_requests_are_summed_up_exactly_before_rounding(tmp_path):
    assert used(tmp_path, *(pod(f"p{i}", container("100u", "100Ki"), on="n1") for i in range(25))) == (0, 3, 3)


def test_finished_pods_use_nothing(tmp_path):
    pods = [pod("a", container("1", "1Gi"), on="n1", phase=phase) for phase in ("Succeeded", "Failed", "Unknown")]
    result = load(tmp_path, [node("n1")], pods)
    assert result.instance.nodes[0].used.vector == (0, 1000, 1024)
    assert dict(result.report)["finished pods, left out"] == 2
    assert dict(result.report)["pods on nodes, counted as used"] == 1


def test_pods_that_ask_for_more_than_there_is_are_clipped(tmp_path):
    result = load(tmp_path, [node("n1", gpus=2)], [pod("a", container("900", "1Gi", "3"), on="n1")])
    assert result.instance.nodes[0].used.vector == (2, 63920, 1024)
    assert result.instance.nodes[0].free[:2] == (0, 0)
    assert dict(result.report)["nodes whose pods ask for more than is allocatable, clipped"] == 1


def test_pods_elsewhere_and_pods_of_coplace_jobs_are_counted(tmp_path):
    ours = pod("a", container("1", "1Gi"), on="n1")
    ours["metadata"]["labels"] = {"coplace.dev/job": "resnet"}
    result = load(tmp_path, [node("n1")], [ours, pod("b", container("1", "1Gi"), on="gone")])
    assert dict(result.report)["of them pods of coplace jobs"] == 1
    assert dict(result.report)["pods on nodes that are not listed, left out"] == 1


# --- waiting pods -------------------------------------------------------------------------------------------------


def test_a_pending_pod_with_gpus_becomes_a_job(tmp_path):
    waiting = pod("train-0", container("1500m", "1000Ki", "2"), nodeSelector={"topology.kubernetes.io/zone": "hall-1"})
    now = datetime(2024, 5, 1, 12, 10, tzinfo=UTC)
    result = load(tmp_path, [node("n1", gpus=8), node("n2")], [waiting], now=now)
    (job,) = result.instance.jobs
    assert (job.name, job.tenant, job.age_seconds, job.remaining) == ("vision/train-0", "vision", 600, None)
    assert (job.worker.gpu, job.worker.profiles[0].cpu, job.worker.profiles[0].memory) == (2, 1500, 1)
    assert job.types == ("NVIDIA-A100-SXM4-80GB",)
    assert job.node_selector == {"topology.kubernetes.io/zone": "hall-1"}
    assert dict(result.report)["pending pods with GPUs, taken as jobs"] == 1


def test_pending_pods_that_are_not_taken_are_counted(tmp_path):
    pods = [
        pod("cpu", container("1", "1Gi")),
        pod("gated", container("1", "1Gi", "1"), schedulingGates=[{"name": "example.com/quota"}]),
        pod("gpu", container("1", "1Gi", "1"), affinity={"nodeAffinity": {}}),
    ]
    report = dict(load(tmp_path, [node("n1", gpus=8)], pods).report)
    assert report["jobs"] == 1
    assert report["pending pods without GPUs, left out"] == 1
    assert report["pending pods behind a scheduling gate, left out"] == 1
    assert report["of them with an affinity, which is not taken over"] == 1
    report = dict(load(tmp_path, [node("n1", gpus=8)], pods, pending_as_jobs=False).report)
    assert "jobs" not in report
    assert report["pending pods with GPUs, left out"] == 2
    report = dict(load(tmp_path, [node("n1")], pods).report)
    assert report["pending pods with GPUs in a cluster without, left out"] == 1


def test_jobs_that_fit_no_node_are_kept_and_counted(tmp_path):
    large = pod("large", container("1", "1Gi", "16"))
    elsewhere = pod("elsewhere", container("1", "1Gi", "1"), nodeSelector={"topology.kubernetes.io/zone": "hall-2"})
    result = load(tmp_path, [node("n1", gpus=8)], [large, elsewhere, pod("fits", container("1", "1Gi", "8"))])
    assert len(result.instance.jobs) == 3
    assert dict(result.report)["jobs that fit no node, kept"] == 2


def test_names_longer_than_a_name_may_be_stay_apart(tmp_path):
    pods = [pod("x" * 250 + end, container("1", "1Gi", "1")) for end in "ab"]
    names = {job.name for job in load(tmp_path, [node("n1", gpus=8)], pods).instance.jobs}
    assert len(names) == 2
    assert max(map(len, names)) <= 253


# --- shapes and errors ----------------------------------------------------------------------------------------------


def test_a_list_of_nodes_may_be_bare_or_typed_or_a_single_node(tmp_path):
    (tmp_path / "bare.json").write_text(json.dumps([node("a"), node("b")]))
    assert len(import_kubernetes(tmp_path / "bare.json").instance.nodes) == 2
    assert len(load(tmp_path, listed([node("a")]) | {"kind": "NodeList"}).instance.nodes) == 1
    assert len(load(tmp_path, node("a")).instance.nodes) == 1


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    document = copy.deepcopy(document)
    *steps, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    here: Any = document
    for step in steps:
        here = here[step]
    here[last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("metadata/name", None, "items[1].metadata.name: is missing"),
        ("metadata/name", 7, "items[1].metadata.name: must be text; found 7"),
        ("metadata/name", "a b\nc", "items[1]: name: must be printable"),
        ("metadata/name", "first", "items: names of nodes must be unique; found 'first'"),
        ("metadata/labels", ["a"], "items[1].metadata.labels: must be a mapping"),
        ("metadata/labels", {"a.b/c": 1}, "items[1].metadata.labels['a.b/c']: must be text; found 1"),
        ("status", None, "items[1].status.allocatable.cpu: is missing"),
        ("status/allocatable/cpu", None, "items[1].status.allocatable.cpu: is missing"),
        ("status/allocatable/cpu", "many", "items[1].status.allocatable.cpu: must be a Kubernetes quantity"),
        ("status/allocatable/cpu", "-1", "items[1].status.allocatable.cpu: must not be negative"),
        ("status/allocatable/cpu", True, "items[1].status.allocatable.cpu: must be a Kubernetes quantity"),
        ("status/allocatable/cpu", "64000", "items[1].status.allocatable.cpu: more than 10000 cores"),
        ("status/allocatable/memory", "12", "items[1].status.allocatable.memory: less than 1 MiB"),
        ("status/allocatable/memory", "1e99", "items[1].status.allocatable.memory: is too large"),
        (
            "status/allocatable/nvidia.com~gpu",
            "1500m",
            "items[1].status.allocatable['nvidia.com/gpu']: must be a whole",
        ),
        ("status/conditions", {}, "items[1].status.conditions: must be a list"),
        ("spec/unschedulable", "yes", "items[1].spec.unschedulable: must be true or false; found 'yes'"),
        ("spec/taints/0", "x", "items[1].spec.taints[0]: must be a mapping"),
        ("kind", "Pod", "items[1].kind: must be Node; found 'Pod'"),
    ],
)
def test_a_bad_node_is_refused_with_its_place(tmp_path, path, value, says):
    machine = node("second", gpus=8)
    if "~" in path:
        machine["status"]["allocatable"][path.rpartition("/")[2].replace("~", "/")] = value
    else:
        machine = changed(machine, path, value)
    assert f"nodes.json: {says}" in refusal(tmp_path, [node("first"), machine])


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (
            "spec/containers/0/resources/requests/cpu",
            "2 cores",
            "items[0].spec.containers[0].resources.requests.cpu: must",
        ),
        ("spec/containers/0/resources/limits/gpu", "0.5", ""),
        ("spec/containers/0/resources", [], "items[0].spec.containers[0].resources: must be a mapping"),
        ("spec/containers", "main", "items[0].spec.containers: must be a list"),
        ("spec/initContainers", [1], "items[0].spec.initContainers[0]: must be a mapping"),
        ("spec/overhead", {"cpu": "-1"}, "items[0].spec.overhead.cpu: must not be negative"),
        ("spec/nodeName", 3, "items[0].spec.nodeName: must be text"),
        ("spec/nodeSelector", {"zone": 1}, "items[0].spec.nodeSelector.zone: must be text"),
        ("metadata/name", None, "items[0].metadata.name: is missing"),
        ("metadata/namespace", "a\nb", "items[0]: name: must be printable"),
        ("metadata/creationTimestamp", "noon", "items[0].metadata.creationTimestamp: must be a time such as"),
        ("spec/containers/0/resources/requests/cpu", "20000", "items[0]: cpu: more than 10000 cores"),
        ("status/phase", [], "items[0].status.phase: must be text"),
    ],
)
def test_a_bad_pod_is_refused_with_its_place(tmp_path, path, value, says):
    waiting = pod("p", container("1", "1Gi", "1"))
    if not says:
        waiting["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = value
        place = "items[0].spec.containers[0].resources.limits['nvidia.com/gpu']"
        says = f"{place}: must be a whole number of GPUs; found '0.5'"
    else:
        waiting = changed(waiting, path, value)
    assert f"pods.json: {says}" in refusal(tmp_path, [node("n1", gpus=8)], [waiting])


@pytest.mark.parametrize("document", [{}, {"items": 3}, {"apiVersion": "v1", "kind": "Status", "status": "Failure"}])
def test_what_is_no_list_is_refused_with_the_command_to_use(tmp_path, document):
    assert "must be a List with items; give what `kubectl get nodes -o json` prints" in refusal(tmp_path, document)


def test_truncated_output_is_refused_with_the_line(tmp_path):
    (tmp_path / "nodes.json").write_text(json.dumps(listed([node("a")]), indent=2)[:-20])
    with pytest.raises(InputError, match=re.escape("nodes.json: line ")):
        import_kubernetes(tmp_path / "nodes.json")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["1", "2Gi", "True"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for step, inner in below for place in places(inner, (*path, step)))]


CLUSTER = {
    "nodes.json": listed([node("n1", gpus=8), node("n2", taints=[{"key": "a", "effect": "NoExecute"}])]),
    "pods.json": listed(
        [
            pod("bound", container("1", "1Gi", "1"), on="n1", initContainers=[container("1", restartPolicy="Always")]),
            pod("waiting", container("1", "1Gi", "1"), nodeSelector={"a": "b"}, overhead={"cpu": "1"}),
        ]
    ),
}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_document_makes_it_fail_otherwise(tmp_path, data):
    cluster = copy.deepcopy(CLUSTER)
    name = data.draw(st.sampled_from(sorted(cluster)))
    *steps, last = data.draw(st.sampled_from(places(cluster[name])[1:]))
    here: Any = cluster[name]
    for step in steps:
        here = here[step]
    here[last] = data.draw(JSON)
    with contextlib.suppress(InputError):
        load(tmp_path, cluster["nodes.json"], cluster["pods.json"])
