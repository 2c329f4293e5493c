"""What every import returns, and the jobs that stand for pods of which no speed is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from coplace.instances.cluster import NO_GPU, Node
from coplace.instances.errors import InputError, Problem
from coplace.instances.instance import Instance
from coplace.instances.job import Job, Profile, Requested, WorkerSpec
from coplace.instances.quantities import format_cpu, format_memory
from coplace.instances.reading import explain, shown
from coplace.instances.speed import SpeedPoint, TableSpeed

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Imported:
    """An imported instance, and what the import did that the instance does not show.

    Attributes:
        instance: what was imported.
        report: what was taken, rounded, clipped or left out, and how often; never a count of 0.
    """

    instance: Instance
    report: tuple[tuple[str, int], ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """The report as lines of text, counts first and aligned."""
        width = max((len(str(count)) for _, count in self.report), default=0)
        return tuple(f"{count:{width}d} {what}" for what, count in self.report)


def imported(nodes: Iterable[Node], jobs: Iterable[Job], name: str, report: Counter[str], source: str) -> Imported:
    """The instance of *nodes* and *jobs* with its report; contradictions are said of the file *source*.

    Jobs that fit no node, however empty, are kept and counted: they wait for ever, and the user should know.
    """
    nodes, jobs = tuple(nodes), tuple(jobs)
    try:
        instance = Instance(name=name, nodes=nodes, jobs=jobs)
    except InputError as error:
        raise error.located(source) from None
    classes: dict[tuple[str, tuple[int, ...]], list[Node]] = {}
    for node in nodes:
        classes.setdefault((node.gpu_type, node.capacity), []).append(node)
    hopeless = sum(not _fits(job, classes) for job in jobs)
    counts = {"nodes": len(nodes), "jobs": len(jobs), **report, "jobs that fit no node, kept": hopeless}
    return Imported(instance, tuple((what, count) for what, count in counts.items() if count))


def _fits(job: Job, classes: dict[tuple[str, tuple[int, ...]], list[Node]]) -> bool:
    profile = job.worker.profiles[0]
    demand = (job.worker.gpu, profile.cpu, profile.memory)
    return any(
        gpu_type in job.types
        and all(asked <= has for asked, has in zip(demand, capacity, strict=True))
        and any(node.matches(job.node_selector) for node in nodes)
        for (gpu_type, capacity), nodes in classes.items()
    )


class PodSpeed:
    """The speed of pods that run equally fast everywhere: 1 sample/s, so that remaining samples are seconds.

    Attributes:
        gpu: for pods with GPUs, None in a cluster without GPUs.
        cpu: for pods without GPUs, which may run on any node; None in a cluster without nodes.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        types = sorted({node.gpu_type for node in nodes})
        self.gpu = _constant([gpu_type for gpu_type in types if gpu_type != NO_GPU])
        self.cpu = _constant(types)

    def of(self, gpus: int) -> TableSpeed | None:
        """The speed of a pod with that many GPUs; None if the cluster has no node for it."""
        return self.gpu if gpus else self.cpu


def _constant(types: Iterable[str]) -> TableSpeed | None:
    points = tuple(SpeedPoint(gpu_type=gpu_type, workers=1, speed=1.0) for gpu_type in types)
    return TableSpeed(form="table", points=points) if points else None


def pod_job(place: str, source: str, name: str, speed: TableSpeed, demand: tuple[int, int, int], **more: Any) -> Job:
    """A pod as a job of one worker with that demand (GPUs, milli-cores, MiB)."""
    gpu, cpu, memory = demand
    # As quantities, since those have upper bounds.
    profile = build(Profile, place, source, cpu=format_cpu(cpu), memory=format_memory(memory))
    worker = build(WorkerSpec, place, source, gpu=gpu, profiles=(profile,))
    return build(
        Job, place, source, name=name, architecture="allreduce", worker=worker, speed=speed,
        requested=Requested(workers=1), **more,
    )  # fmt: skip


def build(model: type[Model], place: str, source: str, **fields: Any) -> Model:
    """A *model* of *fields*; what is wrong with them is said of *place* in the file *source*.

    Raises:
        InputError: a value is out of its range.
    """
    try:
        return model(**fields)
    except ValidationError as error:
        problems = []
        for details in error.errors(include_url=False):
            field = ".".join(str(step) for step in details["loc"])
            problems.append(Problem(f"{place}: {field}", explain(details), shown(details["input"])))
        raise InputError(problems, source) from None
