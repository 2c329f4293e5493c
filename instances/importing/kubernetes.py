"""What ``kubectl get nodes -o json`` and ``kubectl get pods -A -o json`` print.

Field names are those of the Kubernetes core/v1 API (Node, Pod). What a pod asks for follows Kubernetes' own
scheduler, restartable init containers included (KEP-753, "Sidecar containers").
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from typing import Any

from coplace.instances.cluster import NO_GPU, Node, Resources, Vector
from coplace.instances.errors import InputError, Problem
from coplace.instances.importing.imported import Imported, PodSpeed, build, imported, pod_job
from coplace.instances.job import Job
from coplace.instances.quantities import parse_cpu, parse_memory, parse_quantity
from coplace.instances.reading import load_document, shown

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
"""Extended resources that count as GPUs, unless said otherwise."""

GPU_TYPE_LABEL = "nvidia.com/gpu.product"
"""Label with the GPU type, as NVIDIA's GPU feature discovery writes it."""

RACK_LABELS = ("topology.kubernetes.io/rack", "topology.kubernetes.io/zone")
"""Labels with the rack, the first one present."""

JOB_LABEL = "coplace.dev/job"
"""Label of the pods that run a job of coplace."""

Amounts = tuple[int, Fraction, Fraction]
"""Whole GPUs, cores, bytes: exact until all pods of a node are summed up."""

_NONE: Amounts = (0, Fraction(0), Fraction(0))


def import_kubernetes(
    nodes_json: str | os.PathLike[str],
    pods_json: str | os.PathLike[str] | None = None,
    *,
    gpu_resources: Collection[str] = GPU_RESOURCES,
    gpu_type_label: str = GPU_TYPE_LABEL,
    ignored_taints: Collection[str] | None = None,
    pending_as_jobs: bool = True,
    now: datetime | None = None,
) -> Imported:
    """Nodes and pods of a Kubernetes cluster as an instance.

    A node offers what is allocatable. It is cordoned if it is unschedulable or has a taint NoSchedule or NoExecute
    whose key is not in *ignored_taints*, and lost if its condition Ready is not True. What pods that are bound to a
    node ask for counts as used by others, also where they belong to a job of coplace; more than the node has is
    clipped and counted. Pending, unbound pods with GPUs become waiting jobs of one worker and of unknown length, at
    the same speed on every GPU type (see :mod:`coplace.instances.importing.imported`), with the pod's node selector
    and its namespace as tenant.

    Args:
        nodes_json: a List of nodes, or a bare list.
        pods_json: a List of pods, or a bare list; None: nothing runs.
        gpu_resources: extended resources that are GPUs.
        gpu_type_label: label of the nodes with their GPU type; a node with GPUs but without it has type ``gpu``.
        ignored_taints: keys of taints that keep only pods without GPUs away; None: *gpu_resources*.
        pending_as_jobs: False: pending pods are only counted.
        now: the time of the listing, for the age of pending pods; None: age 0.

    Raises:
        InputError: a file cannot be read or is no such list; names the place, e.g.
            ``items[3].status.allocatable.cpu``. Or *now* has no zone and cannot be a local time.
    """
    report: Counter[str] = Counter()
    gpu_resources = tuple(dict.fromkeys(gpu_resources))  # one that is named twice has no twice as many GPUs
    if now is not None:
        try:
            now = _aware(now)
        except (ValueError, OverflowError):  # no zone given, and beyond what local time knows
            raise InputError([Problem("now", "must be a time of our era, with its zone", str(now))]) from None
    ignored = gpu_resources if ignored_taints is None else ignored_taints
    machines = [_Machine.read(item, gpu_resources, gpu_type_label, ignored) for item in _items(nodes_json, "Node")]
    used: dict[str, Amounts] = {machine.name: _NONE for machine in machines}
    if len(used) < len(machines):
        twice = next(name for name, times in Counter(machine.name for machine in machines).items() if times > 1)
        raise InputError([Problem("items", "names of nodes must be unique", repr(twice))], os.fspath(nodes_json))
    waiting: list[_Item] = []
    for pod in _items(pods_json, "Pod") if pods_json is not None else ():
        bound = pod.child("spec").text("nodeName")
        phase = pod.child("status").text("phase")
        if phase in ("Succeeded", "Failed"):
            report["finished pods, left out"] += 1
        elif not bound:
            waiting.append(pod)
        elif bound not in used:
            report["pods on nodes that are not listed, left out"] += 1
        else:
            report["pods on nodes, counted as used"] += 1
            if JOB_LABEL in pod.child("metadata").child("labels").data:
                report["of them pods of coplace jobs"] += 1
            gpu, cores, size = used[bound]
            more = _request(pod, gpu_resources, report)
            used[bound] = (gpu + more[0], cores + more[1], size + more[2])
    nodes = [machine.node(used[machine.name], report) for machine in machines]
    speeds = PodSpeed(nodes)
    jobs = [job for pod in waiting for job in _job(pod, gpu_resources, speeds, pending_as_jobs, now, report)]
    return imported(nodes, jobs, "kubernetes", report, os.fspath(nodes_json if pods_json is None else pods_json))


def _job(
    pod: _Item,
    gpu_resources: Collection[str],
    speeds: PodSpeed,
    pending_as_jobs: bool,
    now: datetime | None,
    report: Counter[str],
) -> Iterator[Job]:
    spec, metadata = pod.child("spec"), pod.child("metadata")
    demand = _request(pod, gpu_resources, report)
    if not demand[0]:
        report["pending pods without GPUs, left out"] += 1
    elif not pending_as_jobs:
        report["pending pods with GPUs, left out"] += 1
    elif spec.objects("schedulingGates"):
        report["pending pods behind a scheduling gate, left out"] += 1
    elif (speed := speeds.of(demand[0])) is None:
        report["pending pods with GPUs in a cluster without, left out"] += 1
    else:
        report["pending pods with GPUs, taken as jobs"] += 1
        if spec.child("affinity").data:
            report["of them with an affinity, which is not taken over"] += 1
        namespace = metadata.text("namespace") or "default"
        created = metadata.time("creationTimestamp")
        age = 0.0 if now is None or created is None else max(0.0, (now - created).total_seconds())
        name = _unique_name(namespace, metadata.required("name"))
        yield pod_job(
            pod.place, pod.source, name, speed, pod.vector(demand),
            tenant=namespace, node_selector=spec.texts("nodeSelector"), age_seconds=age,
        )  # fmt: skip


def _unique_name(namespace: str, pod: str) -> str:
    """``namespace/pod``, which is unique in a cluster, shortened where it would be longer than a name may be."""
    name = f"{namespace}/{pod}"
    return name if len(name) <= 253 else f"{name[:236]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _aware(time: datetime) -> datetime:
    return time if time.tzinfo else time.astimezone()


@dataclass(frozen=True, slots=True)
class _Machine:
    """A node of the list before it is known what uses it."""

    item: _Item
    name: str
    gpu_type: str
    allocatable: Vector
    reserved: bool
    fewer_gpus: bool
    labels: dict[str, str]
    cordoned: bool
    ready: bool

    @classmethod
    def read(
        cls, item: _Item, gpu_resources: Collection[str], gpu_type_label: str, ignored_taints: Collection[str]
    ) -> _Machine:
        metadata, spec, status = item.child("metadata"), item.child("spec"), item.child("status")
        labels = metadata.texts("labels")
        allocatable, capacity = status.child("allocatable"), status.child("capacity")
        has = (
            sum(allocatable.gpus(resource) for resource in gpu_resources),
            allocatable.cores("cpu"),
            allocatable.mebibytes("memory"),
        )
        installed = sum(capacity.gpus(resource) for resource in gpu_resources)
        taints = [
            taint.text("key")
            for taint in spec.objects("taints")
            if taint.text("effect") in ("NoSchedule", "NoExecute") and taint.text("key") not in ignored_taints
        ]
        conditions = [condition for condition in status.objects("conditions") if condition.text("type") == "Ready"]
        return cls(
            item=item,
            name=metadata.required("name"),
            gpu_type=(labels.get(gpu_type_label) or "gpu") if has[0] else NO_GPU,
            allocatable=has,
            reserved=any(
                key in capacity.data and capacity.quantity(key) > allocatable.quantity(key) for key in ("cpu", "memory")
            ),
            fewer_gpus=installed > has[0],
            labels=labels,
            cordoned=spec.flag("unschedulable") or bool(taints),
            ready=any(condition.text("status") == "True" for condition in conditions),
        )

    def node(self, used: Amounts, report: Counter[str]) -> Node:
        wanted = (used[0], math.ceil(used[1] * 1000), math.ceil(used[2] / 2**20))
        gpu, cpu, memory = (min(asked, has) for asked, has in zip(wanted, self.allocatable, strict=True))
        report["nodes with less allocatable CPU or memory than capacity"] += self.reserved
        report["nodes with fewer allocatable GPUs than capacity"] += self.fewer_gpus
        report["nodes without a label for their GPU type"] += self.gpu_type == "gpu"
        report["nodes cordoned or tainted"] += self.cordoned
        report["nodes not ready, taken as lost"] += not self.ready
        report["nodes whose pods ask for more than is allocatable, clipped"] += (gpu, cpu, memory) != wanted
        return build(
            Node, self.item.place, self.item.source, name=self.name, gpu_type=self.gpu_type, gpu=self.allocatable[0],
            cpu=self.allocatable[1], memory=self.allocatable[2], labels=self.labels,
            rack=next((self.labels[label] for label in RACK_LABELS if self.labels.get(label)), None),
            used=Resources(gpu=gpu, cpu=cpu, memory=memory), cordoned=self.cordoned,
            lost=Resources() if self.ready else "all",
        )  # fmt: skip


# --- what a pod asks for ------------------------------------------------------------------------------------------


def _request(pod: _Item, gpu_resources: Collection[str], report: Counter[str]) -> Amounts:
    """What the scheduler reserves for a pod: GPUs, cores, bytes.

    The containers together with all sidecars (init containers with restartPolicy Always), or any one init container
    with the sidecars before it, whichever is more, per resource; and the pod's overhead (KEP-753). A request at the
    level of the pod replaces that of its containers (KEP-2837).
    """
    spec = pod.child("spec")
    running, sidecars, peak = _NONE, _NONE, _NONE
    incomplete = False
    for container in spec.objects("initContainers"):
        asked, missing = _container(container, gpu_resources)
        incomplete |= missing
        if container.text("restartPolicy") == "Always":
            sidecars = _add(sidecars, asked)
            peak = _max(peak, sidecars)
        else:
            peak = _max(peak, _add(sidecars, asked))
    for container in spec.objects("containers"):
        asked, missing = _container(container, gpu_resources)
        incomplete |= missing
        running = _add(running, asked)
    gpu, cores, size = _max(_add(running, sidecars), peak)
    whole = spec.child("resources").child("requests")
    if "cpu" in whole.data:
        cores = whole.quantity("cpu")
    if "memory" in whole.data:
        size = whole.quantity("memory")
    if incomplete and not {"cpu", "memory"} <= whole.data.keys():
        report["pods with a container that requests no CPU or no memory, taken as 0"] += 1
    overhead = spec.child("overhead")
    return _add((gpu, cores, size), (0, overhead.quantity("cpu"), overhead.quantity("memory")))


def _container(container: _Item, gpu_resources: Collection[str]) -> tuple[Amounts, bool]:
    """What one container asks for, and whether neither a request nor a limit of CPU or of memory is given."""
    resources = container.child("resources")
    requests, limits = resources.child("requests"), resources.child("limits")
    given = [requests if key in requests.data else limits for key in ("cpu", "memory")]
    # Kubernetes wants limits of extended resources, and requests, where given, equal to them.
    gpu = sum((limits if name in limits.data else requests).gpus(name) for name in gpu_resources)
    missing = any(key not in part.data for key, part in zip(("cpu", "memory"), given, strict=True))
    return (gpu, given[0].quantity("cpu"), given[1].quantity("memory")), missing


def _add(one: Amounts, other: Amounts) -> Amounts:
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2])


def _max(one: Amounts, other: Amounts) -> Amounts:
    return (max(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2]))


# --- reading JSON with places ---------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _value(text: str) -> Fraction:
    return parse_quantity(text)


@dataclass(frozen=True, slots=True)
class _Item:
    """A JSON object that knows where it stands; absent and null fields are the same, as in the API."""

    data: Mapping[str, Any]
    place: str
    source: str

    def error(self, key: str, rule: str, found: object = None) -> InputError:
        where = f"{self.place}.{key}" if key.replace("_", "").isalnum() else f"{self.place}[{shown(key)}]"
        return InputError([Problem(where, rule, "" if found is None else shown(found))], self.source)

    def _get(self, key: str, kind: type, rule: str) -> Any:
        value = self.data.get(key)
        if value is not None and not isinstance(value, kind):
            raise self.error(key, rule, value)
        return value

    def child(self, key: str) -> _Item:
        value = self._get(key, dict, "must be a mapping") or {}
        present = {name: below for name, below in value.items() if below is not None}
        return _Item(present, f"{self.place}.{key}", self.source)

    def objects(self, key: str) -> list[_Item]:
        place = f"{self.place}.{key}"
        return _mappings(self._get(key, list, "must be a list") or [], place, self.source)

    def text(self, key: str) -> str:
        return self._get(key, str, "must be text") or ""

    def required(self, key: str) -> str:
        text = self.text(key)
        if not text:
            raise self.error(key, "is missing")
        return text

    def flag(self, key: str) -> bool:
        return bool(self._get(key, bool, "must be true or false"))

    def texts(self, key: str) -> dict[str, str]:
        child = self.child(key)
        return {name: child.text(name) for name in child.data}

    def time(self, key: str) -> datetime | None:
        text = self.text(key)
        try:
            return _aware(datetime.fromisoformat(text)) if text else None
        except (ValueError, OverflowError):
            raise self.error(key, "must be a time such as 2024-05-01T12:00:00Z", text) from None

    def quantity(self, key: str) -> Fraction:
        """A quantity in its base unit, 0 where absent."""
        value = self.data.get(key, 0)
        rule = "must be a Kubernetes quantity such as 500m, 4 or 16Gi"
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self.error(key, rule, value)
        try:
            amount = _value(str(value))
        except ValueError:
            raise self.error(key, rule, value) from None
        if amount < 0:
            raise self.error(key, "must not be negative", value)
        if amount > 10**30:
            raise self.error(key, "is too large", value)
        return amount

    def gpus(self, key: str) -> int:
        amount = self.quantity(key)
        if amount.denominator != 1:
            raise self.error(key, "must be a whole number of GPUs", self.data[key])
        return int(amount)

    def cores(self, key: str) -> int:
        """Milli-cores that a node offers, rounded down."""
        return self._capacity(key, parse_cpu)

    def mebibytes(self, key: str) -> int:
        """MiB that a node offers, rounded down."""
        return self._capacity(key, parse_memory)

    def _capacity(self, key: str, parse: Any) -> int:
        if key not in self.data:
            raise self.error(key, "is missing")
        self.quantity(key)
        try:
            return int(parse(str(self.data[key]), up=False))
        except ValueError as error:
            raise self.error(key, str(error), self.data[key]) from None

    def vector(self, amounts: Amounts) -> Vector:
        """Whole GPUs, milli-cores and MiB of a demand, rounded up."""
        return (amounts[0], math.ceil(amounts[1] * 1000), math.ceil(amounts[2] / 2**20))


def _items(path: str | os.PathLike[str], kind: str) -> list[_Item]:
    """The objects of a List, or of a bare list, all of them of *kind*."""
    source = os.fspath(path)
    document = load_document(source)
    if isinstance(document, dict) and document.get("kind") == kind:
        document = [document]  # one object, as kubectl prints it when asked by name
    elif isinstance(document, dict):
        document = document.get("items")
    if not isinstance(document, list):
        command = "kubectl get nodes -o json" if kind == "Node" else "kubectl get pods -A -o json"
        raise InputError([Problem("", "must be a List with items", mend=f"give what `{command}` prints")], source)
    items = _mappings(document, "items", source)
    for item in items:
        if item.text("kind") not in ("", kind):
            raise item.error("kind", f"must be {kind}", item.data["kind"])
    return items


def _mappings(values: list[Any], place: str, source: str) -> list[_Item]:
    for index, value in enumerate(values):
        if not isinstance(value, dict):
            raise InputError([Problem(f"{place}[{index}]", "must be a mapping", shown(value))], source)
    return [_Item(value, f"{place}[{index}]", source) for index, value in enumerate(values)]
