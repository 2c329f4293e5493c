"""Variables of the class-level formulation, created only where they can be above 0.

Indices: j job, k column, i kind of its tasks, c class, ℓ level, n node with tasks that may stay; all counted from 0.
"""

from __future__ import annotations

from typing import Any

from coplace.formulations.classes import Amounts, Kind, Place, Places
from coplace.formulations.mip.variables import Terms


class Variables:
    """The variables by their indices, as docs/formulation.md names them.

    Attributes:
        places: classes, and where the choices of jobs could go.
        column: y[j,k].
        kept: z[j,ℓ].
        whole: h[j,k,c,ℓ].
        tasks: x[j,i,c,ℓ].
        used: u[j,c,ℓ].
        nodes: N[c,ℓ].
        stays: s[j,n,ℓ].
        busy: L[n,ℓ].
        kinds: kinds of tasks by job.
        at: what is at a place: variable and what one unit of it asks for.
    """

    def __init__(self, places: Places, problem: Any) -> None:
        self.places = places
        self._problem = problem
        self.column: dict[tuple[int, int], Any] = {}
        self.kept: dict[tuple[int, int], Any] = {}
        self.whole: dict[tuple[int, int, int, int], Any] = {}
        self.tasks: dict[tuple[int, int, int, int], Any] = {}
        self.used: dict[tuple[int, int, int], Any] = {}
        self.nodes: dict[Place, Any] = {}
        self.stays: dict[tuple[int, int, int], Any] = {}
        self.busy: dict[tuple[int, int], Any] = {}
        self.kinds: list[list[Kind]] = [list(job.amounts) for job in places.jobs]
        self.at: dict[Place, list[tuple[Any, Amounts]]] = {}
        for c, group in enumerate(places.classes):
            for level in range(places.levels):
                self.nodes[c, level] = self._new(f"nodes_{c}_{level}", group.size)
                self.at[c, level] = []
        for j in range(len(places.jobs)):
            self._choices(j)
            self._spread(j)
            self._kept(j)

    def _new(self, name: str, most: int) -> Any:
        """A whole variable from 0 to *most*."""
        add = getattr(self._problem, "add_variable", None)
        if add is not None:
            return add(name, 0, most, "Integer")
        import pulp

        return pulp.LpVariable(name, 0, most, "Integer")  # before PuLP 3.3

    def _choices(self, j: int) -> None:
        job = self.places.jobs[j]
        for k in range(len(job.choices.columns)):
            self.column[j, k] = self._new(f"column_{j}_{k}", 1)
        for k, places in job.whole.items():
            for c, level in places:
                h = self.whole[j, k, c, level] = self._new(f"whole_{j}_{k}_{c}_{level}", 1)
                self.at[c, level].append((h, job.piece[k]))

    def _spread(self, j: int) -> None:
        job = self.places.jobs[j]
        for i, kind in enumerate(self.kinds[j]):
            most = job.most(kind)
            for (c, level), fit in job.fits[kind].items():
                name = f"tasks_{j}_{i}_{c}_{level}"
                x = self.tasks[j, i, c, level] = self._new(name, min(most, fit * self.places.classes[c].size))
                self.at[c, level].append((x, job.amounts[kind]))
        span = max((job.choices.columns[k].span for k in job.spread), default=0)
        for c, level in job.places:
            size = self.places.classes[c].size
            self.used[j, c, level] = self._new(f"used_{j}_{c}_{level}", min(span, size))

    def _kept(self, j: int) -> None:
        job = self.places.jobs[j]
        for level in range(len(job.choices.kept) if job.kept else 0):
            self.kept[j, level] = self._new(f"kept_{j}_{level}", 1)
        for n, amounts in job.kept.items():
            for level in self.places.stay_levels(j, n):
                s = self.stays[j, n, level] = self._new(f"stays_{j}_{n}_{level}", 1)
                self.at[self.places.class_of[n], level].append((s, amounts))
                if (n, level) not in self.busy:
                    self.busy[n, level] = self._new(f"busy_{n}_{level}", 1)

    # --- sums -------------------------------------------------------------------------------------------------------

    def stay(self, j: int, factor: float = 1.0, up_to: int | None = None) -> Terms:
        """factor · Σ_ℓ z[j,ℓ], of all levels or of those ≤ *up_to*."""
        found = [(level, self.kept[j, level]) for level in range(self.places.levels) if (j, level) in self.kept]
        return [(z, factor) for level, z in found if factor and (up_to is None or level <= up_to)]
