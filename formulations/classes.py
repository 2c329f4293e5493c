"""Classes of equal nodes, and where in them the choices of a job could go: what both class-level models share.

Nothing here knows of a solver. Amounts are vectors of GPUs, milli-cores, MiB and intensity.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from coplace.formulations.columns import Column, ColumnSet, JobColumns
from coplace.formulations.pressure import level_capacities, levels
from coplace.instances.demand import demand, task_demand
from coplace.instances.instance import Instance
from coplace.instances.plan import PS, ROLES, WORKER, Role

Amounts = tuple[int, int, int, int]
"""GPUs, milli-cores, MiB, intensity."""

Place = tuple[int, int]
"""A class c and a level ℓ."""

INTENSITY = 3
"""Position of the intensity in :data:`Amounts`."""

MOST_CLASSES = 64
"""Classes above which the nodes of a GPU type become one class."""

MOST_MEMORIES = 6
"""Memories of one server that a job's spread columns are told apart by; more count as the next smaller of these."""


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Nodes that no job can tell apart, or, where there are too many of these, that have only their GPU type in common.

    Attributes:
        gpu_type: index into the instance's ``gpu_types``.
        nodes: positions.
        rooms: by level, the most that any one node of it offers at that level.
        supply: free GPUs, milli-cores and MiB of all its nodes together.
        mixed: whether the nodes differ, so that ``supply`` is less than so many times ``rooms``.
    """

    gpu_type: int
    nodes: tuple[int, ...]
    rooms: tuple[Amounts, ...]
    supply: tuple[int, int, int]
    mixed: bool

    @property
    def size(self) -> int:
        """Number of nodes, N_c."""
        return len(self.nodes)


def node_classes(
    instance: Instance, alone: frozenset[int] = frozenset(), most: int = MOST_CLASSES
) -> tuple[NodeClass, ...]:
    """The classes of the nodes that are not lost.

    Equal are nodes of one GPU type with equal free amounts, level capacities and labels that a job selects. Cordoned
    nodes with our tasks, and those that *alone* names, are classes of their own; other cordoned ones get no task.

    Args:
        instance: the instance.
        alone: positions of nodes to be told apart from their equals.
        most: classes above which nodes are told apart by GPU type and cordon only.
    """
    types = {gpu_type: t for t, gpu_type in enumerate(instance.gpu_types)}
    selected = {label for job in instance.jobs for label in job.node_selector.items()}
    busy = {name for job in instance.jobs if job.current is not None for name in job.current.nodes}
    exact: dict[Hashable, list[int]] = defaultdict(list)
    coarse: dict[Hashable, list[int]] = defaultdict(list)
    for n, node in enumerate(instance.nodes):
        if not node.available or (node.cordoned and node.name not in busy):
            continue
        t, labels = types[node.gpu_type], frozenset(selected.intersection(node.labels.items()))
        single = n if n in alone or node.cordoned else None
        exact[t, node.free, level_capacities(instance, node), labels, single].append(n)
        coarse[t, node.cordoned].append(n)
    groups = exact if len(exact) <= most else coarse
    return tuple(_class(instance, types, tuple(nodes)) for nodes in groups.values())


def _class(instance: Instance, types: dict[str, int], nodes: tuple[int, ...]) -> NodeClass:
    members = [instance.nodes[n] for n in nodes]
    gpu, cpu, memory = (max(node.free[r] for node in members) for r in range(3))
    capacities = [max(caps) for caps in zip(*(level_capacities(instance, node) for node in members), strict=True)]
    supply = (sum(m.free[0] for m in members), sum(m.free[1] for m in members), sum(m.free[2] for m in members))
    differ = len({(node.free, level_capacities(instance, node)) for node in members}) > 1
    return NodeClass(
        types[members[0].gpu_type], nodes, tuple((gpu, cpu, memory, cap) for cap in capacities), supply, differ
    )


# --- jobs -----------------------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """Tasks of a job that its spread columns place one by one.

    Attributes:
        role, profile: of the tasks.
        memory: MiB of one server; 0 for workers, whose profile says it.
        gpu_type: that the tasks need; None for servers.
    """

    role: Role
    profile: int
    memory: int
    gpu_type: int | None


@dataclass(slots=True)
class JobPlaces:
    """Where the choices of one job could go.

    A column with span 1 is *whole*: all its tasks are one piece on one node. The others are *spread*.

    Attributes:
        choices: of the job.
        piece: what a whole column asks of its node, by column.
        whole: where that may be, by column.
        spread: the other columns.
        amounts: what one task asks for, by kind.
        fits: most tasks on one node of a class at a level, where there is room for one, by kind.
        kept: what the current tasks ask of a node, by node; empty if they cannot stay.
        counted: whether it matters how many nodes its spread columns use.
    """

    choices: JobColumns
    piece: dict[int, Amounts] = field(default_factory=dict)
    whole: dict[int, list[Place]] = field(default_factory=dict)
    spread: list[int] = field(default_factory=list)
    amounts: dict[Kind, Amounts] = field(default_factory=dict)
    fits: dict[Kind, dict[Place, int]] = field(default_factory=dict)
    kept: dict[int, Amounts] = field(default_factory=dict)
    counted: bool = False
    _most: dict[Kind, int] = field(default_factory=dict)

    def kinds(self, k: int) -> dict[Kind, int]:
        """The tasks of a spread column by kind."""
        column = self.choices.columns[k]
        tasks = {Kind(WORKER, column.worker_profile, 0, column.gpu_type): column.workers}
        if column.servers:
            memories = [kind.memory for kind in self.amounts if kind[:2] == (PS, column.ps_profile)]
            memory = max(memory for memory in memories if memory <= column.ps_memory)
            tasks[Kind(PS, column.ps_profile, memory, None)] = column.servers
        return tasks

    def most(self, kind: Kind) -> int:
        """Most tasks of a kind that any spread column has."""
        if kind not in self._most:
            self._most[kind] = max(self.kinds(k).get(kind, 0) for k in self.spread)
        return self._most[kind]

    @property
    def places(self) -> list[Place]:
        """Where spread columns use nodes that are to be counted, in order."""
        if not self.counted:
            return []
        return sorted({place for fits in self.fits.values() for place in fits})


class Places:
    """The classes of an instance and where the choices of its jobs could go.

    Attributes:
        columns: the choices.
        classes: the classes of nodes.
        levels: number of pressure levels, 1 without a ladder.
        pressed: whether there is a ladder.
        jobs: one entry per job.
        class_of: class by position of the node; lost nodes have none.
        position: of each node, by name.
        capacities: intensity that each level allows, by node.
        most: tasks of a job on a node; None = any number.
    """

    def __init__(
        self,
        columns: ColumnSet,
        classes: Iterable[NodeClass] | None = None,
        only: frozenset[Place] | None = None,
    ) -> None:
        """Refuse lines, which class-level models do not know.

        Args:
            columns: the choices.
            classes: of the nodes; by default :func:`node_classes`.
            only: places to which jobs that start or move may go; None = all. With fewer places a bound is none.

        Raises:
            ValueError: a job has lines.
        """
        if any(choices.lines for choices in columns.jobs):
            raise ValueError("class-level models take columns only: build them with column_set(counts='columns')")
        self.columns = columns
        self.only = only
        self.instance = columns.instance
        self.classes = tuple(node_classes(self.instance) if classes is None else classes)
        self.levels = len(levels(self.instance))
        self.pressed = bool(self.instance.pressure_levels)
        self.most = self.instance.rules.max_tasks_per_node
        self.capacities = [level_capacities(self.instance, node) for node in self.instance.nodes]
        self.class_of = {n: c for c, group in enumerate(self.classes) for n in group.nodes}
        self.position = {node.name: n for n, node in enumerate(self.instance.nodes)}
        self.jobs = [self._job(choices) for choices in columns.jobs]

    def room(self, place: Place) -> Amounts:
        """The most that one node of a class offers at a level."""
        return self.classes[place[0]].rooms[place[1]]

    def _open(self, place: Place) -> bool:
        return self.only is None or place in self.only

    # --- one job ----------------------------------------------------------------------------------------------------

    def _job(self, choices: JobColumns) -> JobPlaces:
        found = JobPlaces(choices)
        hosts = [c for c, group in enumerate(self.classes) if self._selects(choices, group)]
        for k, column in enumerate(choices.columns):
            if column.span > 1:
                found.spread.append(k)
                continue
            piece = found.piece[k] = self.piece(choices, column)
            calm = self._lowest_level(choices.columns, column)
            found.whole[k] = [
                (c, level)
                for c in hosts
                if self.classes[c].gpu_type == column.gpu_type and self._may_hold(choices, column, c)
                for level in range(calm, column.level + 1)
                if all(need <= room for need, room in zip(piece, self.room((c, level)), strict=True))
                and self._open((c, level))
            ]
        self._kinds(found, hosts)
        spread = [choices.columns[k] for k in found.spread]
        found.counted = (
            any(column.span < column.workers + column.servers for column in spread)
            or self.most is not None
            or not all(any(amounts) for amounts in found.amounts.values())
        )
        current = choices.job.current
        if choices.kept and current is not None:
            for name in current.nodes:
                found.kept[self.position[name]] = self._running(choices, name)
        return found

    def _selects(self, choices: JobColumns, group: NodeClass) -> bool:
        """Whether some node of the class carries the labels that the job selects."""
        return any(self.instance.nodes[n].matches(choices.job.node_selector) for n in group.nodes)

    def piece(self, choices: JobColumns, column: Column) -> Amounts:
        """What all tasks of a column ask for together."""
        job = choices.job
        worker = demand(job, WORKER, 1, 1, column.worker_profile)
        gpu, cpu, memory = (column.workers * amount for amount in worker)
        load = column.workers * job.worker.intensity
        if job.ps is not None:
            cpu += column.servers * job.ps.profiles[column.ps_profile].cpu
            memory += column.servers * column.ps_memory
            load += column.servers * job.ps.intensity
        return (gpu, cpu, memory, load if self.pressed else 0)

    def _lowest_level(self, columns: tuple[Column, ...], column: Column) -> int:
        """Levels below it are better used by a column with the same tasks that bears no more than them."""
        better = [
            other.level
            for other in columns
            if other[:5] == column[:5]
            and other.level < column.level
            and other.span >= column.span
            and other.value >= column.value
            and other.span == 1
        ]
        return max(better, default=-1) + 1

    def _may_hold(self, choices: JobColumns, column: Column, c: int) -> bool:
        """Whether rules of tasks per node and of cordoned nodes let all tasks of a column be on a node of class *c*."""
        if self.most is not None and column.workers + column.servers > self.most:
            return False
        workers = self._joining(choices, WORKER, column.worker_profile, c)
        servers = self._joining(choices, PS, column.ps_profile, c)
        return (workers is None or column.workers <= workers) and (servers is None or column.servers <= servers)

    def _joining(self, choices: JobColumns, role: Role, profile: int, c: int) -> int | None:
        """Most tasks of a role and profile on a cordoned class, those that are there; None if it is not cordoned."""
        nodes = [self.instance.nodes[n] for n in self.classes[c].nodes]
        if not nodes[0].cordoned:
            return None
        current = choices.job.current
        if current is None or current.profile(role) != profile:
            return 0
        return max(current.tasks.get(role, {}).get(node.name, 0) for node in nodes)

    def _kinds(self, found: JobPlaces, hosts: list[int]) -> None:
        """Kinds of the tasks of spread columns, and how many fit on a node."""
        choices, job = found.choices, found.choices.job
        highest: dict[Kind, int] = {}
        for b in {choices.columns[k].ps_profile for k in found.spread if choices.columns[k].servers}:
            memories = [choices.columns[k].ps_memory for k in found.spread if choices.columns[k].ps_profile == b]
            for memory in _thinned(sorted(set(memories))):
                assert job.ps is not None
                load = job.ps.intensity if self.pressed else 0
                found.amounts[Kind(PS, b, memory, None)] = (0, job.ps.profiles[b].cpu, memory, load)
        for k in found.spread:
            column = choices.columns[k]
            kind = Kind(WORKER, column.worker_profile, 0, column.gpu_type)
            load = job.worker.intensity if self.pressed else 0
            found.amounts[kind] = (*demand(job, WORKER, 1, 1, column.worker_profile), load)
            for kind in found.kinds(k):
                highest[kind] = max(highest.get(kind, 0), column.level)
        for kind in list(found.amounts):
            if kind not in highest:
                del found.amounts[kind]
                continue
            found.fits[kind] = {
                (c, level): most
                for c in hosts
                if kind.gpu_type in (None, self.classes[c].gpu_type)
                for level in range(highest[kind] + 1)
                if self._open((c, level)) and (most := self._fit(found, kind, (c, level))) > 0
            }

    def _fit(self, found: JobPlaces, kind: Kind, place: Place) -> int:
        spec = found.choices.job.role(kind.role)
        assert spec is not None
        joining = self._joining(found.choices, kind.role, kind.profile, place[0])
        limits = [spec.max, *(limit for limit in (self.most, joining) if limit is not None)]
        needs = zip(found.amounts[kind], self.room(place), strict=True)
        return min(*limits, *(room // need for need, room in needs if need), spec.max)

    def _running(self, choices: JobColumns, name: str) -> Amounts:
        """What the current tasks ask of a node."""
        job = choices.job
        assert job.current is not None
        total = [0, 0, 0, 0]
        for role in ROLES:
            spec, count = job.role(role), job.current.tasks.get(role, {}).get(name, 0)
            if spec is None or not count:
                continue
            load = spec.intensity if self.pressed else 0
            for r, amount in enumerate((*task_demand(job, role, job.current), load)):
                total[r] += count * amount
        return (total[0], total[1], total[2], total[3])

    def stay_levels(self, j: int, n: int) -> list[int]:
        """Levels at which node *n* holds the current tasks of a job."""
        kept, c = self.jobs[j].kept[n], self.class_of[n]
        rooms = [self.room((c, level)) for level in range(self.levels)]
        return [ell for ell, room in enumerate(rooms) if all(a <= b for a, b in zip(kept, room, strict=True))]

    def fills(self, j: int, place: Place) -> list[int]:
        """Resources that a job's tasks could exceed on one node, kinds together, where each kind alone fits."""
        job, room = self.jobs[j], self.room(place)
        most = {kind: min(fits[place], job.most(kind)) for kind, fits in job.fits.items() if place in fits}
        asked = [sum(count * job.amounts[kind][r] for kind, count in most.items()) for r in range(4)]
        return [r for r in range(4) if len(most) > 1 and asked[r] > room[r]]

    def kept_total(self, j: int) -> tuple[int, int, int]:
        """GPUs, milli-cores and MiB of all current tasks of a job that may stay."""
        kept = self.jobs[j].kept.values()
        return (sum(a[0] for a in kept), sum(a[1] for a in kept), sum(a[2] for a in kept))


def _thinned(memories: list[int]) -> list[int]:
    """At most :data:`MOST_MEMORIES` of them, the least among these."""
    if len(memories) <= MOST_MEMORIES:
        return memories
    return [memories[i * len(memories) // MOST_MEMORIES] for i in range(MOST_MEMORIES)]
