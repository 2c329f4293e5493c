"""Decision variables of the class-level formulation, made only where they can be above zero."""

from __future__ import annotations

from collections import defaultdict

from ortools.sat.python import cp_model

from coplace.formulations.classes import Amounts, Kind, Place, Places

Pieces = list[tuple[cp_model.IntVar, Amounts]]
"""Variables and what one unit of each asks for."""


class Variables:
    """Variables by the symbols of docs/formulation.md; keys are positions.

    Attributes:
        column: y by (job, column).
        kept: z by (job, level).
        whole: h by (job, column, class, level).
        tasks: x by (job, kind, class, level).
        used: u by (job, class, level).
        nodes: N by (class, level).
        stays: s by (job, node, level).
        busy: L by (node, level).
        kinds: kinds of tasks by job.
        at: pieces by place.
    """

    def __init__(self, model: cp_model.CpModel, places: Places) -> None:
        self.places = places
        self.column: dict[tuple[int, int], cp_model.IntVar] = {}
        self.kept: dict[tuple[int, int], cp_model.IntVar] = {}
        self.whole: dict[tuple[int, int, int, int], cp_model.IntVar] = {}
        self.tasks: dict[tuple[int, int, int, int], cp_model.IntVar] = {}
        self.used: dict[tuple[int, int, int], cp_model.IntVar] = {}
        self.nodes: dict[Place, cp_model.IntVar] = {}
        self.stays: dict[tuple[int, int, int], cp_model.IntVar] = {}
        self.busy: dict[tuple[int, int], cp_model.IntVar] = {}
        self.kinds: list[list[Kind]] = []
        self.at: dict[Place, Pieces] = defaultdict(list)
        for c, group in enumerate(places.classes):
            for ell in range(places.levels):
                self.nodes[c, ell] = model.new_int_var(0, group.size, f"nodes_{c}_{ell}")
        for j in range(len(places.jobs)):
            self._job(model, j)

    def _job(self, model: cp_model.CpModel, j: int) -> None:
        job = self.places.jobs[j]
        for k in range(len(job.choices.columns)):
            self.column[j, k] = model.new_bool_var(f"column_{j}_{k}")
        for k, places in job.whole.items():
            for c, ell in places:
                h = self.whole[j, k, c, ell] = model.new_bool_var(f"whole_{j}_{k}_{c}_{ell}")
                self.at[c, ell].append((h, job.piece[k]))
        self.kinds.append(list(job.amounts))
        for i, kind in enumerate(self.kinds[j]):
            for (c, ell), fit in job.fits[kind].items():
                most = min(job.most(kind), fit * self.places.classes[c].size)
                x = self.tasks[j, i, c, ell] = model.new_int_var(0, most, f"tasks_{j}_{i}_{c}_{ell}")
                self.at[c, ell].append((x, job.amounts[kind]))
        widest = max((job.choices.columns[k].span for k in job.spread), default=0)
        for c, ell in job.places:
            most = min(widest, self.places.classes[c].size)
            self.used[j, c, ell] = model.new_int_var(0, most, f"used_{j}_{c}_{ell}")
        for ell in range(len(job.choices.kept) if job.kept else 0):
            self.kept[j, ell] = model.new_bool_var(f"kept_{j}_{ell}")
        for n, amounts in job.kept.items():
            for ell in self.places.stay_levels(j, n):
                s = self.stays[j, n, ell] = model.new_bool_var(f"stays_{j}_{n}_{ell}")
                self.at[self.places.class_of[n], ell].append((s, amounts))
                if (n, ell) not in self.busy:
                    self.busy[n, ell] = model.new_bool_var(f"busy_{n}_{ell}")

    def kept_any(self, j: int, up_to: int | None = None) -> list[cp_model.IntVar]:
        """z of job *j* at every level, or at those ≤ *up_to*."""
        last = self.places.levels - 1 if up_to is None else up_to
        return [self.kept[j, ell] for ell in range(last + 1) if (j, ell) in self.kept]

    def tasks_at(self, j: int, c: int, ell: int) -> Pieces:
        """x of job *j* at a place, by kind."""
        amounts = self.places.jobs[j].amounts
        keys = [(j, i, c, ell) for i in range(len(self.kinds[j]))]
        return [(self.tasks[key], amounts[self.kinds[j][key[1]]]) for key in keys if key in self.tasks]
