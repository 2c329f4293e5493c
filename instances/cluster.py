"""Nodes: what the cluster offers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from coplace.instances.base import Amount, Flag, Name, Record
from coplace.instances.quantities import CpuCapacity, CpuDemand, Gpus, MemoryCapacity, MemoryDemand

RESOURCES: tuple[str, str, str] = ("gpu", "cpu", "memory")
"""The resources of a node and a task: whole GPUs, milli-cores, MiB. Vectors of amounts follow this order."""

Vector = tuple[int, int, int]
"""Amounts of :data:`RESOURCES`."""

NO_GPU = "none"
"""The GPU type of a node without GPUs."""


class Resources(Record):
    """Amounts that are not ours to use: GPUs, milli-cores, MiB."""

    gpu: Gpus = 0
    cpu: CpuDemand = 0
    memory: MemoryDemand = 0

    @property
    def vector(self) -> Vector:
        """The amounts in the order of :data:`RESOURCES`."""
        return (self.gpu, self.cpu, self.memory)


class Node(Record):
    """A machine, or in a file a counted group of equal machines.

    Attributes:
        name: unique in the cluster.
        count: equal nodes that this entry stands for. An :class:`~coplace.instances.Instance` replaces an entry with
            ``count: 3`` by nodes ``name-0``, ``name-1``, ``name-2``.
        gpu_type: type of all its GPUs; ``none`` for a node without GPUs.
        gpu: GPUs.
        cpu: milli-cores.
        memory: MiB.
        pressure_capacity: what tasks share without reserving it (network card, memory bandwidth, caches), in the
            unit of the tasks' ``intensity``.
        rack: name of the rack, for reports.
        labels: what a job's ``node_selector`` is matched against.
        used: what others (not the jobs of the instance) use of it.
        lost: capacity that has failed, or ``all``. Running tasks may exceed what is left: the round then
            moves or stops them without counting that as a move.
        cordoned: keeps its tasks and gets no new ones.
    """

    name: Name
    count: Annotated[int, Field(strict=True, ge=1, le=100_000)] = 1
    gpu_type: Name = NO_GPU
    gpu: Gpus = 0
    cpu: CpuCapacity
    memory: MemoryCapacity
    pressure_capacity: Annotated[Amount, Field(ge=1)] = 100
    rack: Name | None = None
    labels: dict[str, str] = {}
    used: Resources = Resources()
    lost: Resources | Literal["all"] = Resources()
    cordoned: Flag = False

    @property
    def capacity(self) -> Vector:
        """What the machine has, in the order of :data:`RESOURCES`."""
        return (self.gpu, self.cpu, self.memory)

    @cached_property
    def free(self) -> Vector:
        """What the jobs of the instance may use: capacity less lost and used, at least 0."""
        if self.lost == "all":
            return (0, 0, 0)
        amounts = zip(self.capacity, self.lost.vector, self.used.vector, strict=True)
        gpu, cpu, memory = (max(0, has - lost - used) for has, lost, used in amounts)
        return (gpu, cpu, memory)

    @property
    def available(self) -> bool:
        """Whether anything of the machine is left."""
        return not isinstance(self.lost, str)  # comparing with "all" would ask pydantic

    def matches(self, selector: dict[str, str]) -> bool:
        """Whether every label of *selector* stands on the node with that value."""
        return all(self.labels.get(key) == value for key, value in selector.items())


def expand(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Nodes with every counted group replaced by its members, ``name-0`` first."""
    members: list[Node] = []
    for node in nodes:
        if node.count == 1:
            members.append(node)
        else:
            members += [node.model_copy(update={"name": f"{node.name}-{i}", "count": 1}) for i in range(node.count)]
    return tuple(members)
