"""Solving by classes: counts per class and level by an integer program, then nodes; cuts where the two disagree.

Bound and plan meet from both sides. The linear relaxation is cut until fractions of patterns could hold its pieces, the
integer program over it gives counts, and packing turns these into a plan. Counts that cannot be packed are cut off, or
their class is split into nodes of their own, which in the end is the node-indexed formulation. So every bound holds for
all plans: cuts say only what is true of every packing, and columns that were left out have a shortfall.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from coplace.formulations.class_hint import counts_of
from coplace.formulations.class_solution import ClassSolution, Counts
from coplace.formulations.classes import Amounts, Place, Places, node_classes
from coplace.formulations.columns import ColumnSet
from coplace.formulations.cpsat.by_class import ClassCpsat
from coplace.formulations.cuts import Cut
from coplace.formulations.evaluate import evaluate
from coplace.formulations.mip.by_class import ClassMip
from coplace.formulations.relaxation import Prices, Relaxation
from coplace.instances.plan import Plan
from coplace.solver.check import check
from coplace.solver.classes.cutting import Cutting
from coplace.solver.classes.packing import Packed, Packing
from coplace.solver.classes.patterns import violated
from coplace.solver.classes.repair import completed, orders
from coplace.solver.exact.course import Course, threshold
from coplace.solver.exact.task import Ended, Event, Task
from coplace.solver.guided import guided

FEW_COLUMNS = 300
"""Columns up to which all are taken at once."""

COLUMNS_PER_JOB = (3, 12)
"""Mean number of columns per job in the stages before the last."""

TIME_SHARES = (0.85, 0.8)
"""Most of the time that is left, for each of these stages."""

RELAXATION_SHARE, RELAXATION_ROUNDS = 0.25, 6
"""Most of a stage's time, and most rounds, for cutting the linear relaxation."""

LEAST_NODES = 0.05
"""Nodes at a place from which on the relaxation counts as using it."""

LEAST_DROP = 2e-5
"""Share of the bound that a round of cuts has to gain for another one to follow."""

PACKING_SECONDS = 1.5
"""Most time for one packing."""

COMPLETIONS = 40
"""Orders in which jobs that a packing left out are tried."""

MOST_PAIRS = 2_000
"""Pairs of a job and a node up to which packing is exact; above, patterns are packed."""

COLUMNS_PER_SECOND = 200
"""Columns that building, presolving and the first relaxation get through in a second."""

LARGEST_SPLIT = 8
"""Nodes of a class above which it is not split."""

GAP_SHARE = 0.5
"""Share of the gap asked for that the integer program is given."""


def solve_by_class(task: Task, say: Callable[[Event], None]) -> Ended:
    """Solve *task* by classes of nodes; *say* is told plans and bounds as they come. Returns the last event.

    ``task.backend`` is ``cpsat`` or a MIP backend such as ``highs``. Jobs with lines are refused with a failure: build
    the columns with ``column_set(…, counts="columns")``.
    """
    if any(choices.lines for choices in task.columns.jobs):
        return Ended("failure", "class-level models take columns only, and some job has lines")
    return ByClass(task, say).run()


class ByClass(Course):
    """One task, by classes.

    Attributes:
        alone: nodes that are classes of their own.
        cuts: what packings have shown, as long as the classes are the same.
    """

    def __init__(self, task: Task, say: Callable[[Event], None]) -> None:
        super().__init__(task, say)
        self.alone: frozenset[int] = frozenset()
        self.cuts: list[Cut] = []

    def run(self) -> Ended:
        """Solve; the last event."""
        columns = self.task.columns
        relaxation = Relaxation(columns)
        prices = relaxation.bound(relaxation.best_prices())
        self._bounded(prices.bound)
        self._found(guided(self.scoring, columns, prices, lambda: self._left() <= 0))
        if sum(len(choices.columns) for choices in columns.jobs) > FEW_COLUMNS:
            for per_job, share in zip(COLUMNS_PER_JOB, TIME_SHARES, strict=True):
                within = threshold(prices, per_job * len(columns.jobs))
                if within >= prices.bound - self.objective or self._done():
                    break
                # a plan with a column that was left out falls short of the bound by more than the within
                self._stage(self._within(prices, within), prices, share, prices.bound - within)
                if self._left() <= 0:
                    return Ended("done" if self._done() else "time")
        if self._done():
            return Ended("done")
        # columns that fall short by more cannot be in a better plan than the best so far
        least = self.objective
        exact = self._stage(self._within(prices, prices.bound - least), prices, 1.0, least)
        return Ended("done" if exact or self._done() else "time")

    # --- one stage --------------------------------------------------------------------------------------------------

    def _stage(self, columns: ColumnSet, prices: Prices, share: float, floor: float) -> bool:
        """Solve over *columns* for a share of the time; whether the best plan of them is found.

        Args:
            columns: those that may be chosen.
            prices: of all columns.
            share: of the time left.
            floor: bound on the plans with other columns.
        """
        until = time.monotonic() + share * self._left()
        number = sum(len(choices.columns) for choices in columns.jobs)
        while time.monotonic() + max(0, number - FEW_COLUMNS) / COLUMNS_PER_SECOND < until:
            places = Places(columns, node_classes(self.task.columns.instance, self.alone))
            model = ClassMip(places)
            for cut in self.cuts:
                model.add(cut)
            chosen, used = self._cut_relaxation(places, model, until, floor)
            if self._done():
                return True
            if number > FEW_COLUMNS:
                self._round(columns, chosen, used, prices, until)
                return False
            split = self._settle(places, model, prices, until, floor)
            if split is None:
                return True
            if not split:
                return False
            self.alone |= split
            self.cuts.clear()
        return False

    def _round(
        self,
        columns: ColumnSet,
        chosen: frozenset[tuple[int, int]],
        used: frozenset[Place],
        prices: Prices,
        until: float,
    ) -> None:
        """A plan from the columns and places that the relaxation chooses in part, and those of the best plan.

        They are so few that the integer program over them is soon solved (relaxation enforced neighbourhood search:
        Berthold, "RENS: the optimal rounding", 2014). Its bound is one of these columns only.
        """
        keep = [[(j, k) in chosen for k in range(len(of_job.columns))] for j, of_job in enumerate(columns.jobs)]
        few = self._with_plan(columns, keep)
        classes = node_classes(self.task.columns.instance, self.alone)
        now = counts_of(Places(few, classes), self.plan).nodes
        only = used | {place for place, count in now.items() if count}
        places = Places(few, classes, only)
        model = ClassMip(places)
        for cut in self.cuts:
            model.add(cut)
        self._settle(places, model, prices, until, float("inf"))

    def _cut_relaxation(
        self, places: Places, model: ClassMip, until: float, floor: float
    ) -> tuple[frozenset[tuple[int, int]], frozenset[Place]]:
        """Cut the linear relaxation, and take its bound; the columns and places that it has chosen on the way."""
        chosen: frozenset[tuple[int, int]] = frozenset()
        used: frozenset[Place] = frozenset()
        end = time.monotonic() + RELAXATION_SHARE * (until - time.monotonic())
        before = float("inf")
        for _ in range(RELAXATION_ROUNDS):
            relaxed = model.relaxed(time_limit=max(0.1, until - time.monotonic()), threads=self.task.threads)
            if relaxed is None:
                break
            chosen |= relaxed.chosen
            used |= {place for place, count in relaxed.nodes.items() if count > LEAST_NODES}
            self._bounded(max(relaxed.bound, floor))
            if self._done() or time.monotonic() > end or relaxed.bound > before * (1 - LEAST_DROP):
                break
            before = relaxed.bound
            if not self._cut(places, model, relaxed.pieces, relaxed.nodes):
                break
        return chosen, used

    def _cut(
        self,
        places: Places,
        model: ClassMip | ClassCpsat,
        pieces: Mapping[Place, Mapping[Amounts, float]],
        nodes: Mapping[Place, float],
    ) -> list[Cut]:
        """Add to *model* the cuts that these pieces break."""
        found = []
        for place, at in pieces.items():
            cut = violated(place, at, places.room(place), nodes[place])
            if cut is not None:
                model.add(cut)
                found.append(cut)
        self.cuts += found
        return found

    def _settle(
        self, places: Places, mip: ClassMip, prices: Prices, until: float, floor: float
    ) -> frozenset[int] | None:
        """Counts, packing and cuts until they agree.

        Returns:
            None if the best plan over these columns is found, nodes to be told apart if counts fail for no reason that
            a cut could tell, or no nodes if the time is over.
        """
        model: ClassMip | ClassCpsat = mip
        if self.task.backend == "cpsat":
            model = ClassCpsat(places)
            for cut in self.cuts:
                model.add(cut)
        while time.monotonic() < until:
            solution = self._solve(model, until)
            if solution.bound is not None and floor < float("inf"):
                self._bounded(max(solution.bound, floor))
            if solution.counts is None:
                return frozenset()
            packed = self._pack(places, solution.counts, prices, until)
            if self._done():
                return None
            if not packed.left:
                return None if solution.status == "optimal" else frozenset()
            if not self._cut(places, model, *_pieces(places, solution.counts)):
                return self._split(places, solution.counts, packed)
        return frozenset()

    def _solve(self, model: ClassMip | ClassCpsat, until: float) -> ClassSolution:
        task, seconds = self.task, max(0.05, until - time.monotonic() - 3 * PACKING_SECONDS * (self._left() > 8))
        gap = GAP_SHARE * task.gap
        if isinstance(model, ClassCpsat):
            return model.solve(time_limit=seconds, gap=gap, workers=task.threads, seed=task.seed, hint=self.plan)
        return model.solve(
            backend=task.backend, time_limit=seconds, gap=gap, threads=task.threads, seed=task.seed, hint=self.plan
        )

    def _pack(self, places: Places, counts: Counts, prices: Prices, until: float) -> Packed:
        """Give nodes to *counts*; jobs that find none take what is left."""
        seconds = min(PACKING_SECONDS, max(0.1, until - time.monotonic()))
        jobs = sum(choice.column is not None for choice in counts.jobs)
        if jobs * len(places.instance.nodes) <= MOST_PAIRS:
            packed = Packing(places, counts).solve(time_limit=seconds, workers=self.task.threads, seed=self.task.seed)
        else:
            plan, left = Cutting(places, counts, seconds / 3, self.task.seed).solve()
            packed = Packed(plan, left, complete=False)
        self._complete(packed, prices, until)
        return packed

    def _complete(self, packed: Packed, prices: Prices, until: float) -> None:
        """Let the jobs that were left out take what is left, in several orders."""
        self._found(packed.plan)
        tries = COMPLETIONS if len(packed.left) > 1 else 1
        for order, _ in zip(orders(self.task.columns, packed.left, self.task.seed), range(tries), strict=False):
            plan = completed(self.scoring, packed.plan, self.task.columns, prices, order, lambda: self._left() <= 0)
            self._found(plan)
            if time.monotonic() > until or self._done():
                return

    def _split(self, places: Places, counts: Counts, packed: Packed) -> frozenset[int]:
        """The nodes of the smallest class where jobs were left out, if it is proven that they have to be."""
        if not packed.complete:
            return frozenset()
        at = {counts.jobs[j].whole for j in packed.left}
        at |= {place for j in packed.left for _, place in counts.jobs[j].tasks}
        groups = [places.classes[place[0]] for place in at if place is not None]
        small = [group for group in groups if 1 < group.size <= LARGEST_SPLIT or group.mixed]
        return frozenset(min(small, key=lambda group: group.size).nodes) if small else frozenset()

    # --- columns, plans and bounds ----------------------------------------------------------------------------------

    def _within(self, prices: Prices, threshold: float) -> ColumnSet:
        """The columns whose shortfall is at most *threshold* (a hair more for rounding), and those of the best plan."""
        allowed = threshold + 1e-9 * abs(prices.bound)
        keep = [shortfall <= allowed for shortfall in prices.shortfall]
        return self._with_plan(self.task.columns, [np.asarray(mask).tolist() for mask in keep])

    def _with_plan(self, columns: ColumnSet, keep: list[list[bool]]) -> ColumnSet:
        """The columns that *keep* names, and of each job of the best plan the two that hold it most narrowly."""
        outcomes = evaluate(self.task.columns.instance, self.plan, self.scoring).jobs
        for j, choices in enumerate(columns.jobs):
            allocation = self.plan.get(choices.job.name)
            if allocation is None:
                continue
            shape, felt = columns.shape_of(allocation), outcomes[choices.job.name].level
            fitting = [
                (column.span, column.level, k)
                for k, column in enumerate(choices.columns)
                if column[:5] == shape and column.span >= allocation.span and column.level >= felt
            ]
            for _, _, k in sorted(fitting)[:2]:
                keep[j][k] = True
        return columns.restricted(keep)

    def _passes(self, plan: Plan) -> bool:
        return check(self.task.columns.instance, plan, self.scoring).feasible

    def _bounded(self, bound: float) -> None:
        super()._bounded(max(bound, self.objective))  # a plan that is known needs no proof that it exists


def _pieces(places: Places, counts: Counts) -> tuple[dict[Place, Counter[Amounts]], dict[Place, int]]:
    """How many pieces by what they ask for, and how many nodes, by place."""
    pieces: dict[Place, Counter[Amounts]] = {place: Counter() for place in counts.nodes}
    for j, choice in enumerate(counts.jobs):
        job = places.jobs[j]
        if choice.kept is not None:
            for n, amounts in job.kept.items():
                pieces[places.class_of[n], counts.busy[n]][amounts] += 1
        if choice.whole is not None and choice.column is not None:
            pieces[choice.whole][job.piece[choice.column]] += 1
        for (kind, place), count in choice.tasks.items():
            pieces[place][job.amounts[kind]] += count
    return pieces, counts.nodes
