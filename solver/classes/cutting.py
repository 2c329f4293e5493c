"""Packing many pieces of few sizes: patterns of one node, so many nodes of each.

Most columns let every task sit on a node of its own, so that tasks of equal demand may change places between jobs, and
a class at a level is a cutting-stock problem with a dozen sizes. Patterns come from its linear relaxation (Gilmore and
Gomory, 1961), how many nodes take which from an integer program over them. What assigns every piece of every job to a
node of its own (:mod:`coplace.solver.classes.packing`) is exact and far slower.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from coplace.formulations.class_solution import ClassChoice, Counts
from coplace.formulations.classes import Amounts, Kind, Place, Places
from coplace.formulations.columns import Column
from coplace.instances.plan import PS, WORKER, Allocation, Plan, Role
from coplace.solver.classes.patterns import Knapsack, weigh

Ints = NDArray[np.int64]

VARIED = 40
"""Patterns beside those of the linear relaxation, by weights that are off by up to a third."""

LARGEST_WEIGHT = 10_000
"""Whole units of the largest weight of a piece."""


@dataclass(slots=True)
class Piece:
    """What has to be on one node.

    Attributes:
        job: whose it is.
        amounts: what it asks for.
        tasks: its tasks by role.
        node: where it is, if it stays.
    """

    job: int
    amounts: Amounts
    tasks: dict[Role, int]
    node: int | None = None


@dataclass(slots=True)
class Cutting:
    """Pieces of a solution of a class-level formulation, by place.

    Attributes:
        places: classes and choices.
        counts: the solution.
        seconds: most time for the integer program of one place.
        seed: of random draws.
    """

    places: Places
    counts: Counts
    seconds: float
    seed: int = 0
    pieces: dict[Place, list[Piece]] = field(default_factory=lambda: defaultdict(list))
    _given: set[int] = field(default_factory=set)

    def solve(self) -> tuple[Plan, tuple[int, ...]]:
        """A plan of the jobs whose pieces all have nodes, and the jobs that are left out."""
        for j, choice in enumerate(self.counts.jobs):
            if choice.column is not None:
                self._split(j, choice, self.places.jobs[j].choices.columns[choice.column])
        stays: dict[int, list[Amounts]] = defaultdict(list)
        for j, choice in enumerate(self.counts.jobs):
            for n, amounts in self.places.jobs[j].kept.items() if choice.kept is not None else ():
                stays[n].append(amounts)
        for n, several in stays.items():
            gpu, cpu, memory, load = (sum(amounts[r] for amounts in several) for r in range(4))
            place = (self.places.class_of[n], self.counts.busy[n])
            self.pieces[place].append(Piece(-1, (gpu, cpu, memory, load), {}, n))
        free: dict[tuple[Place, Amounts], list[int]] = {}
        for place, pieces in self.pieces.items():
            for amounts, nodes in self._nodes(place, pieces).items():
                free[place, amounts] = nodes
        return self._dealt(free)

    # --- pieces -----------------------------------------------------------------------------------------------------

    def _split(self, j: int, choice: ClassChoice, column: Column) -> None:
        """The pieces of a job: one, or one for each task, or where its span is less than that a few."""
        job = self.places.jobs[j]
        if choice.whole is not None and choice.column is not None:
            tasks: dict[Role, int] = {WORKER: column.workers} | ({PS: column.servers} if column.servers else {})
            self.pieces[choice.whole].append(Piece(j, job.piece[choice.column], tasks))
            return
        one = {kind: self._true(job.amounts[kind], kind, column) for kind, _ in choice.tasks}
        if column.span >= column.workers + column.servers:
            for (kind, place), count in choice.tasks.items():
                self.pieces[place] += [Piece(j, one[kind], {kind.role: 1}) for _ in range(count)]
            return
        for place, used in choice.used.items():
            here = {kind: count for (kind, at), count in choice.tasks.items() if at == place}
            self.pieces[place] += self._bundles(j, place, used, here, one)

    def _bundles(
        self, j: int, place: Place, used: int, tasks: Mapping[Kind, int], one: Mapping[Kind, Amounts]
    ) -> list[Piece]:
        """Tasks of one job dealt out to *used* nodes, the largest first, each to the one that is least full."""
        room = self.places.room(place)
        bundles = [Piece(j, (0, 0, 0, 0), {}) for _ in range(used)]
        order = [kind for kind, count in tasks.items() for _ in range(count)]
        order.sort(key=lambda kind: -_share(one[kind], room))
        for kind in order:
            least = min(bundles, key=lambda piece: _share(_sum(piece.amounts, one[kind]), room))
            least.amounts = _sum(least.amounts, one[kind])
            least.tasks[kind.role] = least.tasks.get(kind.role, 0) + 1
        return [piece for piece in bundles if piece.tasks]

    @staticmethod
    def _true(amounts: Amounts, kind: Kind, column: Column) -> Amounts:
        """Kinds of servers may stand for slightly larger ones."""
        return amounts if kind.role == WORKER else (0, amounts[1], column.ps_memory, amounts[3])

    # --- one place --------------------------------------------------------------------------------------------------

    def _nodes(self, place: Place, pieces: list[Piece]) -> dict[Amounts, list[int]]:
        """The nodes on which there is room for pieces of each size, as often as there is."""
        wanted = Counter(piece.amounts for piece in pieces)
        room, number = self.places.room(place), self.counts.nodes[place]
        kinds = [amounts for amounts in wanted if all(a <= b for a, b in zip(amounts, room, strict=True))]
        group = self.places.classes[place[0]]
        idle = [n for n in group.nodes if n not in self.counts.busy and n not in self._given]
        found: dict[Amounts, list[int]] = defaultdict(list)
        fixed = [piece for piece in pieces if piece.node is not None]
        for pattern in self._patterns(kinds, [wanted[kind] for kind in kinds], room, number):
            here = Counter({kinds[i]: int(count) for i, count in enumerate(pattern) if count})
            n = next((piece.node for piece in fixed if here[piece.amounts]), None)
            if n is not None:
                fixed = [piece for piece in fixed if piece.node != n]
            elif idle:
                n = idle.pop(0)
            else:
                continue
            self._given.add(n)
            for amounts, count in here.items():
                found[amounts] += [n] * count
        return found

    def _patterns(self, kinds: list[Amounts], wanted: list[int], room: Amounts, number: int) -> list[Ints]:
        """At most *number* patterns, with repeats, that cover most of what is wanted."""
        if not kinds or not number:
            return []
        knapsack = Knapsack(kinds, room)
        weights, patterns = weigh(knapsack, np.array(wanted, dtype=float))
        draw = random.Random(self.seed)
        for _ in range(VARIED):
            varied = np.array([weight * draw.uniform(2 / 3, 4 / 3) for weight in weights])
            patterns.append(knapsack.best(varied)[1])
        fitting = {tuple(p.tolist()): p for p in (_fitting(q, kinds, room) for q in patterns) if p.any()}
        return _choose(list(fitting.values()), wanted, weights, number, self.seconds, self.seed)

    # --- jobs -------------------------------------------------------------------------------------------------------

    def _dealt(self, free: dict[tuple[Place, Amounts], list[int]]) -> tuple[Plan, tuple[int, ...]]:
        """Nodes to the jobs that are worth most together; a job gets all that it needs or nothing."""
        needs: dict[int, list[tuple[Place, Piece]]] = defaultdict(list)
        for place, pieces in self.pieces.items():
            for piece in pieces:
                if piece.node is None:
                    needs[piece.job].append((place, piece))
        allocations, left = {}, []
        sizes = {j: Counter((place, piece.amounts) for place, piece in of_job) for j, of_job in needs.items()}
        served = self._served(sizes, {key: len(nodes) for key, nodes in free.items()})
        for j in needs:
            if j not in served:
                left.append(j)
                continue
            tasks: dict[Role, Counter[str]] = defaultdict(Counter)
            for place, piece in needs[j]:
                n = free[place, piece.amounts].pop()
                for role, count in piece.tasks.items():
                    tasks[role][self.places.instance.nodes[n].name] += count
            allocations[j] = self._allocation(j, tasks)
        most = self.places.most
        for j, allocation in list(allocations.items()):
            if most is not None and any(
                sum(on.get(name, 0) for on in allocation.tasks.values()) > most for name in allocation.nodes
            ):
                del allocations[j]
                left.append(j)
        for j, choice in enumerate(self.counts.jobs):
            current = self.places.jobs[j].choices.job.current
            if choice.kept is not None and current is not None:
                allocations[j] = current
        names = [job.choices.job.name for job in self.places.jobs]
        return Plan(allocations={names[j]: allocations[j] for j in sorted(allocations)}), tuple(left)

    def _served(
        self, needs: Mapping[int, Mapping[tuple[Place, Amounts], int]], room: Mapping[tuple[Place, Amounts], int]
    ) -> set[int]:
        """The jobs for which there is room, of the largest value: a knapsack with a dimension for each size."""
        model = cp_model.CpModel()
        served = {j: model.new_bool_var(f"served_{j}") for j in needs}
        wanted: dict[tuple[Place, Amounts], list[tuple[cp_model.IntVar, int]]] = defaultdict(list)
        for j, sizes in needs.items():
            for key, count in sizes.items():
                wanted[key].append((served[j], count))
        for key, terms in wanted.items():
            if sum(count for _, count in terms) > room.get(key, 0):
                model.add(sum(count * variable for variable, count in terms) <= room.get(key, 0))
        values = {}
        for j in needs:
            k = self.counts.jobs[j].column
            values[j] = 0.0 if k is None else self.places.jobs[j].choices.columns[k].value
        largest = max(values.values(), default=0.0) or 1.0
        units = [1 + int(values[j] / largest * LARGEST_WEIGHT) for j in needs]
        model.maximize(cp_model.LinearExpr.weighted_sum(list(served.values()), units))
        solver = _solver(self.seconds, self.seed)
        if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return set()
        return {j for j, variable in served.items() if solver.value(variable)}

    def _allocation(self, j: int, tasks: Mapping[Role, Counter[str]]) -> Allocation:
        k = self.counts.jobs[j].column
        assert k is not None
        column = self.places.jobs[j].choices.columns[k]
        profiles: dict[Role, int] = {WORKER: column.worker_profile} | (
            {PS: column.ps_profile} if column.servers else {}
        )
        return Allocation(tasks={role: dict(on) for role, on in tasks.items()}, profiles=profiles)


def _choose(
    patterns: list[Ints], wanted: list[int], weights: NDArray[np.float64], number: int, seconds: float, seed: int
) -> list[Ints]:
    """So many nodes of each pattern that the weight of the pieces without a node is least."""
    model = cp_model.CpModel()
    nodes = [model.new_int_var(0, number, f"pattern_{i}") for i in range(len(patterns))]
    model.add(sum(nodes) <= number)
    covered, units = [], []
    largest = max(float(weights.max()), 1e-9)
    for i, count in enumerate(wanted):
        cover = model.new_int_var(0, count, f"covered_{i}")
        held = [(nodes[p], int(pattern[i])) for p, pattern in enumerate(patterns) if pattern[i]]
        model.add(cover <= sum(amount * variable for variable, amount in held))
        covered.append(cover)
        units.append(1 + int(float(weights[i]) / largest * LARGEST_WEIGHT))
    model.maximize(cp_model.LinearExpr.weighted_sum(covered, units))
    solver = _solver(seconds, seed)
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return []
    return [pattern for pattern, count in zip(patterns, nodes, strict=True) for _ in range(solver.value(count))]


def _solver(seconds: float, seed: int) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    # This part of presolve cuts off optimal solutions and then proves the rest optimal (or-tools #5293).
    solver.parameters.presolve_inclusion_work_limit = 0
    return solver


def _fitting(pattern: Ints, kinds: list[Amounts], room: Amounts) -> Ints:
    """The pattern without what its node has no room for: patterns are of amounts that were rounded down."""
    pattern, left = pattern.copy(), list(room)
    for i in np.flatnonzero(pattern).tolist():
        fits = min((left[r] // kinds[i][r] for r in range(4) if kinds[i][r]), default=int(pattern[i]))
        pattern[i] = min(int(pattern[i]), fits)
        for r in range(4):
            left[r] -= int(pattern[i]) * kinds[i][r]
    return pattern


def _sum(first: Amounts, second: Amounts) -> Amounts:
    return (first[0] + second[0], first[1] + second[1], first[2] + second[2], first[3] + second[3])


def _share(amounts: Amounts, room: Amounts) -> float:
    """The largest share of a node that a piece takes."""
    return max(a / b if b else float(a > 0) for a, b in zip(amounts, room, strict=True))
