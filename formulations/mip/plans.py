"""From plans to values of the variables and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from coplace.formulations.columns import Column
from coplace.formulations.lines import Line
from coplace.formulations.mip.symmetry import Symmetry
from coplace.formulations.mip.variables import GIB, Variables
from coplace.formulations.pressure import level_of
from coplace.instances.demand import ps_memory
from coplace.instances.job import Job
from coplace.instances.plan import PS, WORKER, Allocation, Plan, Role


@dataclass(frozen=True, slots=True)
class Choice:
    """What one job does: keep its tasks at a level, or run the tasks of a column or a line; nothing if all are None.

    Attributes:
        kept: level ℓ of z[j,ℓ].
        column, line: k of y[j,k], l of y[j,l].
        workers, servers: tasks by node, if it runs a column or a line.
    """

    kept: int | None = None
    column: int | None = None
    line: int | None = None
    workers: dict[int, int] = field(default_factory=dict)
    servers: dict[int, int] = field(default_factory=dict)


NOTHING = Choice()


class Values:
    """Reads, sets and checks the values of all variables as a whole."""

    def __init__(self, variables: Variables) -> None:
        self._v = variables
        v = variables
        groups: list[dict[Any, Any]] = [v.column, v.kept, v.workers, v.servers, v.used, v.level, v.tolerant]
        groups += [v.extra_memory, v.holds, v.extra, v.line, v.line_memory]
        self._all = [variable for group in groups for variable in group.values()]
        self._all += [variable for encoded in v.encoded.values() for variable, _ in encoded.assignment(None)]

    def clear(self) -> None:
        """Forget all values."""
        for variable in self._all:
            variable.varValue = None

    def read(self) -> list[Choice] | None:
        """What the solver's values say, rounded; None if they say nothing or two things of one job."""
        v = self._v
        if self._all and all(variable.varValue is None for variable in self._all):
            return None
        choices = []
        for j, view in enumerate(v.jobs):
            columns = [k for k in range(len(view.choices.columns)) if _whole(v.column[j, k])]
            lines = [number for number in range(len(view.choices.lines)) if _whole(v.line[j, number])]
            kept = [level for level in range(len(view.choices.kept)) if _whole(v.kept[j, level])]
            if len(columns) + len(lines) + len(kept) > 1:
                return None
            level, k, number = ((found[0] if found else None) for found in (kept, columns, lines))
            choices.append(Choice(kept=level, column=k, line=number))
        ways = [self._way(j, choice) for j, choice in enumerate(choices)]
        for (j, a, n), variable in v.workers.items():
            way = ways[j]
            if way is not None and way.worker_profile == a and (count := _whole(variable)):
                choices[j].workers[n] = count
        for (j, b, n), variable in v.servers.items():
            way = ways[j]
            if way is not None and way.ps_profile == b and (count := _whole(variable)):
                choices[j].servers[n] = count
        return choices

    def _way(self, j: int, choice: Choice) -> Column | Line | None:
        """The column or the line of a choice."""
        choices = self._v.jobs[j].choices
        if choice.column is not None:
            return choices.columns[choice.column]
        return None if choice.line is None else choices.lines[choice.line]

    def set(self, choices: Sequence[Choice]) -> bool:
        """Give every variable the value that *choices* imply; False where a variable for it does not exist."""
        v = self._v
        for variable in self._all:
            variable.varValue = 0
        load = [0] * len(v.nodes)
        for j, choice in enumerate(choices):
            if choice.kept is not None:
                v.kept[j, choice.kept].varValue = 1
                for n, amounts in v.jobs[j].kept_tasks.items():
                    load[n] += amounts[3]
            else:
                way = self._way(j, choice)
                if way is not None and not self._set_way(j, choice, way, load):
                    return False
        if not v.capacities:
            return True
        for n, amount in enumerate(load):
            if (n, 0) in v.level:
                level = level_of(amount, v.capacities[n])
                if level == v.levels:
                    return False
                v.level[n, level].varValue = 1
        return True

    def _set_way(self, j: int, choice: Choice, way: Column | Line, load: list[int]) -> bool:
        v, view = self._v, self._v.jobs[j]
        job = view.choices.job
        if isinstance(way, Line):
            w = sum(choice.workers.values())
            if not way.least_workers <= w <= way.most_workers:
                return False
            assert choice.line is not None
            v.line[j, choice.line].varValue = 1
            for variable, amount in v.encoded[j, choice.line].assignment(w):
                variable.varValue = amount
            server = way.ps_memory(w)
            if j in v.line_memory:
                v.line_memory[j].varValue = way.servers * server / GIB
        else:
            assert choice.column is not None
            v.column[j, choice.column].varValue = 1
            server = way.ps_memory
        ps_intensity = job.ps.intensity if job.ps is not None else 0
        for tasks, variables, profile, intensity in (
            (choice.workers, v.workers, way.worker_profile, job.worker.intensity),
            (choice.servers, v.servers, way.ps_profile, ps_intensity),
        ):
            for n, count in tasks.items():
                variable = variables.get((j, profile, n))
                if variable is None or count > variable.upBound:
                    return False
                variable.varValue = count
                load[n] += count * intensity
                if (j, n) in v.used:
                    v.used[j, n].varValue = 1
        for level in range(min(way.level, v.levels - 1)):
            if (j, level) in v.tolerant:
                v.tolerant[j, level].varValue = 1
        if j in v.extra_memory and way.servers:
            above = (server - view.least_memory[way.ps_profile]) / GIB
            v.extra_memory[j].varValue = above
            for n, count in choice.servers.items():
                for i in range(1, count + 1):
                    v.holds[j, n, i].varValue = 1
                    v.extra[j, n, i].varValue = above
        return True

    def objective(self, choices: Sequence[Choice]) -> float:
        """Σ of what the jobs' choices are worth."""
        return math.fsum(self._value(j, choice) for j, choice in enumerate(choices))

    def _value(self, j: int, choice: Choice) -> float:
        if choice.kept is not None:
            return self._v.jobs[j].choices.kept[choice.kept]
        way = self._way(j, choice)
        if isinstance(way, Line):
            return float(way.curve(sum(choice.workers.values())))
        return 0.0 if way is None else way.value

    def plan(self, choices: Sequence[Choice]) -> Plan:
        """The tasks by name."""
        names = [node.name for node in self._v.nodes]
        allocations: dict[str, Allocation] = {}
        for j, (view, choice) in enumerate(zip(self._v.jobs, choices, strict=True)):
            job, way = view.choices.job, self._way(j, choice)
            if choice.kept is not None and job.current is not None:
                allocations[job.name] = job.current
            elif way is not None:
                tasks: dict[Role, dict[str, int]] = {WORKER: {names[n]: x for n, x in choice.workers.items()}}
                profiles: dict[Role, int] = {WORKER: way.worker_profile}
                if job.ps is not None:
                    tasks[PS] = {names[n]: s for n, s in choice.servers.items()}
                    profiles[PS] = way.ps_profile
                allocations[job.name] = Allocation(tasks=tasks, profiles=profiles)
        return Plan(allocations=allocations)

    # --- hints ------------------------------------------------------------------------------------------------------

    def choices_of(self, plan: Plan, symmetry: Symmetry | None) -> list[Choice]:
        """What *plan* says, as far as there are variables for it, in the order that symmetry asks for."""
        level = self._levels(plan)
        choices = [self._choice(j, plan.get(view.choices.job.name), level) for j, view in enumerate(self._v.jobs)]
        if symmetry is None:
            return choices
        for members in symmetry.jobs:
            best_first = sorted((choices[j] for j in members), key=lambda choice: -self._value(members[0], choice))
            for j, choice in zip(members, best_first, strict=True):
                choices[j] = choice
        place = {n: n for n in range(len(self._v.nodes))}
        for members in symmetry.nodes:
            taken = dict.fromkeys(members, 0)
            for view, choice in zip(self._v.jobs, choices, strict=True):
                for n, count in choice.workers.items():
                    if n in taken:
                        taken[n] += count * view.choices.job.worker.gpu
            fullest_first = sorted(members, key=lambda n, taken=taken: -taken[n])  # type: ignore[misc]
            place.update(zip(fullest_first, members, strict=True))
        return [
            replace(
                choice,
                workers={place[n]: count for n, count in choice.workers.items()},
                servers={place[n]: count for n, count in choice.servers.items()},
            )
            for choice in choices
        ]

    def _levels(self, plan: Plan) -> dict[int, int]:
        """Level of each node that *plan* uses."""
        load: dict[int, int] = {}
        for view in self._v.jobs:
            allocation = plan.get(view.choices.job.name)
            for role, placed in allocation.tasks.items() if allocation is not None else ():
                spec = view.choices.job.role(role)
                for name, count in placed.items():
                    n = self._v.node_index.get(name)
                    if n is not None and spec is not None:
                        load[n] = load.get(n, 0) + count * spec.intensity
        if not self._v.capacities:
            return dict.fromkeys(load, 0)
        return {n: level_of(amount, self._v.capacities[n]) for n, amount in load.items()}

    def _choice(self, j: int, allocation: Allocation | None, level: dict[int, int]) -> Choice:
        choices = self._v.jobs[j].choices
        if allocation is None or not all(name in self._v.node_index for name in allocation.nodes):
            return NOTHING
        highest = max(level.get(self._v.node_index[name], 0) for name in allocation.nodes)
        if choices.kept and allocation.same_as(choices.job.current):
            return Choice(kept=highest) if highest < self._v.levels else NOTHING
        if not allocation.workers or (choices.job.ps is not None) != bool(allocation.servers):
            return NOTHING
        choice, workers = self._best_way(j, allocation, highest)
        way = self._way(j, choice)
        if way is None:
            return NOTHING
        on = self._first(allocation.tasks[WORKER], workers)
        return replace(choice, workers=on, servers=self._first(allocation.tasks.get(PS, {}), way.servers))

    def _best_way(self, j: int, allocation: Allocation, level: int) -> tuple[Choice, int]:
        """The best column or line that *allocation* satisfies as it is or with some tasks left out, and its workers."""
        choices = self._v.jobs[j].choices
        first = next(iter(allocation.tasks[WORKER]))
        t, memory = self._v.gpu_type(self._v.node_index[first]), _server_memory(choices.job, allocation)

        def fits(way: Column | Line) -> bool:
            return (
                way.gpu_type == t
                and way.worker_profile == allocation.profile(WORKER)
                and (not way.servers or way.ps_profile == allocation.profile(PS))
                and way.servers <= allocation.servers
                and way.span >= allocation.span
                and way.level >= level
            )

        best, found = 0.0, (NOTHING, 0)
        for k, column in enumerate(choices.columns):
            few = column.workers <= allocation.workers and column.ps_memory <= memory
            if column.value > best and few and fits(column):
                best, found = column.value, (Choice(column=k), column.workers)
        for number, line in enumerate(choices.lines):
            if max(line.curve.vs) > best and fits(line):
                most = min(line.most_workers, allocation.workers)
                for w in range(line.least_workers, most + 1):
                    value = line.curve(w)
                    if value > best and line.ps_memory(w) <= memory:
                        best, found = value, (Choice(line=number), w)
        return found

    def _first(self, placed: dict[str, int], number: int) -> dict[int, int]:
        tasks: dict[int, int] = {}
        for name, count in placed.items():
            taken = min(count, number)
            if taken:
                tasks[self._v.node_index[name]] = taken
            number -= taken
        return tasks


def _whole(variable: Any) -> int:
    value = variable.varValue
    return 0 if value is None else round(value)


def _server_memory(job: Job, allocation: Allocation) -> int:
    if job.ps is None or allocation.profile(PS) >= len(job.ps.profiles):
        return 0
    return ps_memory(job, allocation.workers, allocation.servers, allocation.profile(PS))
