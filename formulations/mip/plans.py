"""From plans to values of the variables and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from coplace.formulations.mip.symmetry import Symmetry
from coplace.formulations.mip.variables import GIB, Variables
from coplace.formulations.pressure import level_of
from coplace.instances.demand import ps_memory
from coplace.instances.job import Job
from coplace.instances.plan import PS, WORKER, Allocation, Plan, Role


@dataclass(frozen=True, slots=True)
class Choice:
    """What one job does: keep its tasks at a level, or run a column's tasks; nothing if both are None.

    Attributes:
        kept: level ℓ of z[j,ℓ].
        column: k of y[j,k].
        workers, servers: tasks by node, if it runs a column.
    """

    kept: int | None = None
    column: int | None = None
    workers: dict[int, int] = field(default_factory=dict)
    servers: dict[int, int] = field(default_factory=dict)


NOTHING = Choice()


class Values:
    """Reads, sets and checks the values of all variables as a whole."""

    def __init__(self, variables: Variables) -> None:
        self._v = variables
        v = variables
        groups: list[dict[Any, Any]] = [v.column, v.kept, v.workers, v.servers, v.used, v.level, v.tolerant]
        groups += [v.extra_memory, v.holds, v.extra]
        self._all = [variable for group in groups for variable in group.values()]

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
            kept = [level for level in range(len(view.choices.kept)) if _whole(v.kept[j, level])]
            if len(columns) + len(kept) > 1:
                return None
            choices.append(Choice(kept=kept[0] if kept else None, column=columns[0] if columns else None))
        for (j, a, n), variable in v.workers.items():
            k = choices[j].column
            if k is not None and v.jobs[j].choices.columns[k].worker_profile == a and (count := _whole(variable)):
                choices[j].workers[n] = count
        for (j, b, n), variable in v.servers.items():
            k = choices[j].column
            if k is not None and v.jobs[j].choices.columns[k].ps_profile == b and (count := _whole(variable)):
                choices[j].servers[n] = count
        return choices

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
            elif choice.column is not None and not self._set_column(j, choice, load):
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

    def _set_column(self, j: int, choice: Choice, load: list[int]) -> bool:
        v, view = self._v, self._v.jobs[j]
        assert choice.column is not None
        column, job = view.choices.columns[choice.column], view.choices.job
        v.column[j, choice.column].varValue = 1
        ps_intensity = job.ps.intensity if job.ps is not None else 0
        for tasks, variables, profile, intensity in (
            (choice.workers, v.workers, column.worker_profile, job.worker.intensity),
            (choice.servers, v.servers, column.ps_profile, ps_intensity),
        ):
            for n, count in tasks.items():
                variable = variables.get((j, profile, n))
                if variable is None or count > variable.upBound:
                    return False
                variable.varValue = count
                load[n] += count * intensity
                if (j, n) in v.used:
                    v.used[j, n].varValue = 1
        for level in range(min(column.level, v.levels - 1)):
            if (j, level) in v.tolerant:
                v.tolerant[j, level].varValue = 1
        if j in v.extra_memory and column.servers:
            above = (column.ps_memory - view.least_memory[column.ps_profile]) / GIB
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
        choices = self._v.jobs[j].choices
        if choice.kept is not None:
            return choices.kept[choice.kept]
        return 0.0 if choice.column is None else choices.columns[choice.column].value

    def plan(self, choices: Sequence[Choice]) -> Plan:
        """The tasks by name."""
        names = [node.name for node in self._v.nodes]
        allocations: dict[str, Allocation] = {}
        for view, choice in zip(self._v.jobs, choices, strict=True):
            job = view.choices.job
            if choice.kept is not None and job.current is not None:
                allocations[job.name] = job.current
            elif choice.column is not None:
                column = view.choices.columns[choice.column]
                tasks: dict[Role, dict[str, int]] = {WORKER: {names[n]: x for n, x in choice.workers.items()}}
                profiles: dict[Role, int] = {WORKER: column.worker_profile}
                if job.ps is not None:
                    tasks[PS] = {names[n]: s for n, s in choice.servers.items()}
                    profiles[PS] = column.ps_profile
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
        k = self._best_column(j, allocation, highest)
        if k is None:
            return NOTHING
        column = choices.columns[k]
        workers = self._first(allocation.tasks[WORKER], column.workers)
        return Choice(column=k, workers=workers, servers=self._first(allocation.tasks.get(PS, {}), column.servers))

    def _best_column(self, j: int, allocation: Allocation, level: int) -> int | None:
        """The best column that *allocation* satisfies as it is or with some of its tasks left out."""
        choices = self._v.jobs[j].choices
        first = next(iter(allocation.tasks[WORKER]))
        t, memory = self._v.gpu_type(self._v.node_index[first]), _server_memory(choices.job, allocation)
        best, found = 0.0, None
        for k, column in enumerate(choices.columns):
            if (
                column.value > best
                and column.gpu_type == t
                and column.worker_profile == allocation.profile(WORKER)
                and (not column.servers or column.ps_profile == allocation.profile(PS))
                and column.workers <= allocation.workers
                and column.servers <= allocation.servers
                and column.span >= allocation.span
                and column.level >= level
                and column.ps_memory <= memory
            ):
                best, found = column.value, k
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
