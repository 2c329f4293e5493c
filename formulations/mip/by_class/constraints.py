"""The constraint families of the class-level formulation, one method each; equations in docs/formulation.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from coplace.formulations.classes import INTENSITY, Amounts
from coplace.formulations.cuts import Cut
from coplace.formulations.mip.by_class.variables import Variables
from coplace.formulations.mip.rows import Rows
from coplace.formulations.mip.variables import Terms
from coplace.formulations.slots import slots
from coplace.instances.cluster import RESOURCES


class Constraints:
    """Adds the rows of one family after the other."""

    def __init__(self, variables: Variables, rows: Rows) -> None:
        self._v = variables
        self._rows = rows
        self._places = variables.places
        self._jobs = list(enumerate(variables.places.jobs))
        self._rules = variables.places.instance.rules

    def add_all(self) -> None:
        """All families."""
        self.choose()
        self.pinned()
        self.whole()
        self.tasks()
        self.use()
        self.fill()
        self.levels()
        self.span()
        self.tasks_per_node()
        self.nodes()
        self.distinct()
        self.stays()
        self.busy()
        self.capacity()
        self.pressure()
        self.slots()
        self.quota()
        self.move_budget()

    # --- one job ----------------------------------------------------------------------------------------------------

    def choose(self) -> None:
        """A job does at most one thing: Σ_k y[j,k] + Σ_ℓ z[j,ℓ] ≤ 1."""
        for j, job in self._jobs:
            columns = [(self._v.column[j, k], 1.0) for k in range(len(job.choices.columns))]
            self._rows.add(f"choose_{j}", columns + self._v.stay(j), "<=", 1)

    def pinned(self) -> None:
        """A pinned job that is not displaced stays: Σ_ℓ z[j,ℓ] = 1."""
        for j, job in self._jobs:
            if job.choices.must_keep:
                self._rows.add(f"pinned_{j}", self._v.stay(j), "==", 1)

    def whole(self) -> None:
        """All tasks of a column with span 1 are in one place: Σ_{c,ℓ} h[j,k,c,ℓ] = y[j,k]."""
        for j, job in self._jobs:
            for k, places in job.whole.items():
                held = [(self._v.whole[j, k, c, level], 1.0) for c, level in places]
                self._rows.add(f"whole_{j}_{k}", [*held, (self._v.column[j, k], -1.0)], "==", 0)

    def tasks(self) -> None:
        """Spread columns have their tasks of each kind: Σ_{c,ℓ} x[j,i,c,ℓ] = Σ_{k: m_k > 1} tasks[i,k] · y[j,k]."""
        for j, job in self._jobs:
            has = {k: job.kinds(k) for k in job.spread}
            for i, kind in enumerate(self._v.kinds[j]):
                placed = [(self._v.tasks[j, i, c, level], 1.0) for c, level in job.fits[kind]]
                wanted = [(self._v.column[j, k], -float(has[k][kind])) for k in job.spread if kind in has[k]]
                self._rows.add(f"tasks_{j}_{i}", placed + wanted, "==", 0)

    def use(self) -> None:
        """Tasks only on used nodes, as many as fit there: x[j,i,c,ℓ] ≤ fit[i,c,ℓ] · u[j,c,ℓ]."""
        for (j, i, c, level), x in self._v.tasks.items():
            fit = self._places.jobs[j].fits[self._v.kinds[j][i]][c, level]
            u = self._v.used.get((j, c, level))
            if u is None:
                continue
            self._rows.add(f"use_{j}_{i}_{c}_{level}", [(x, 1), (u, -fit)], "<=", 0)

    def fill(self) -> None:
        """A job's own tasks fit its used nodes: Σ_i amount[i,r] · x[j,i,c,ℓ] ≤ room[c,ℓ,r] · u[j,c,ℓ]; intensity alike.

        Left out where as many tasks as `use` allows fit.
        """
        for (j, c, level), u in self._v.used.items():
            room, tasks = self._places.room((c, level)), self._tasks_at(j, c, level)
            for r in self._places.fills(j, (c, level)):
                terms = [(x, int(amounts[r])) for x, amounts in tasks if amounts[r]]
                self._rows.add_amounts(f"fill_{j}_{c}_{level}_{r}", [*terms, (u, -room[r])], 0)

    def levels(self) -> None:
        """Tasks of columns that bear level ℓ at most are no higher: Σ_c Σ_{ℓ' ≥ ℓ} x ≤ Σ_{k: ℓ_k ≥ ℓ} tasks[i,k] · y.

        For whole numbers `span` implies it where nodes are counted; for parts of columns it does not.
        """
        for j, job in self._jobs:
            has = {k: job.kinds(k) for k in job.spread}
            for i, kind in enumerate(self._v.kinds[j]):
                for level in range(1, self._places.levels):
                    above = [(self._v.tasks[j, i, c, at], 1.0) for c, at in job.fits[kind] if at >= level]
                    bearing = [k for k in job.spread if kind in has[k] and job.choices.columns[k].level >= level]
                    allowed = [(self._v.column[j, k], -float(has[k][kind])) for k in bearing]
                    self._rows.add(f"levels_{j}_{i}_{level}", above + allowed, "<=", 0)

    def span(self) -> None:
        """Few nodes, at levels that the job bears: Σ_c Σ_{ℓ' ≥ ℓ} u[j,c,ℓ'] ≤ Σ_{k: m_k > 1, ℓ_k ≥ ℓ} m_k · y[j,k].

        Only where nodes are counted.
        """
        for j, job in self._jobs:
            for level in range(self._places.levels):
                used = [(self._v.used[j, c, at], 1.0) for c, at in job.places if at >= level]
                if used:
                    spans = [(k, job.choices.columns[k]) for k in job.spread if job.choices.columns[k].level >= level]
                    allowed = [(self._v.column[j, k], -float(column.span)) for k, column in spans]
                    self._rows.add(f"span_{j}_{level}", used + allowed, "<=", 0)

    def tasks_per_node(self) -> None:
        """Few tasks of a job on a node: Σ_i x[j,i,c,ℓ] ≤ q · u[j,c,ℓ]; whole columns of more than q have no place."""
        limit = self._rules.max_tasks_per_node
        for (j, c, level), u in self._v.used.items() if limit is not None else ():
            tasks = [(x, 1.0) for x, _ in self._tasks_at(j, c, level)]
            self._rows.add(f"tasks_per_node_{j}_{c}_{level}", [*tasks, (u, -float(limit or 0))], "<=", 0)

    # --- nodes ------------------------------------------------------------------------------------------------------

    def nodes(self) -> None:
        """Every node runs at a level: Σ_ℓ N[c,ℓ] = N_c."""
        for c, group in enumerate(self._places.classes):
            levels = [(self._v.nodes[c, level], 1.0) for level in range(self._places.levels)]
            self._rows.add(f"nodes_{c}", levels, "==", group.size)

    def distinct(self) -> None:
        """Pieces that ask for nothing need a node, too: h[j,k,c,ℓ] ≤ N[c,ℓ] and u[j,c,ℓ] ≤ N[c,ℓ].

        For all others `capacity` and `pressure` say so.
        """
        for (j, k, c, level), h in self._v.whole.items():
            if not any(self._places.jobs[j].piece[k]):
                row = [(h, 1.0), (self._v.nodes[c, level], -1.0)]
                self._rows.add(f"distinct_{j}_{k}_{c}_{level}", row, "<=", 0)
        for (j, c, level), u in self._v.used.items():
            if not all(any(amounts) for amounts in self._places.jobs[j].amounts.values()):
                row = [(u, 1.0), (self._v.nodes[c, level], -1.0)]
                self._rows.add(f"distinct_{j}_{c}_{level}", row, "<=", 0)

    def stays(self) -> None:
        """Kept tasks are on their nodes, at levels that the job then feels.

        Σ_ℓ s[j,n,ℓ] = Σ_ℓ z[j,ℓ] and Σ_{ℓ' ≤ ℓ} z[j,ℓ'] ≤ Σ_{ℓ' ≤ ℓ} s[j,n,ℓ'].
        """
        for j, job in self._jobs:
            for n in job.kept:
                for level in range(self._places.levels):
                    lower = [ell for ell in range(level + 1) if (j, n, ell) in self._v.stays]
                    at = [(self._v.stays[j, n, ell], -1.0) for ell in lower]
                    sense: Any = "==" if level == self._places.levels - 1 else "<="
                    self._rows.add(f"stays_{j}_{n}_{level}", self._v.stay(j, up_to=level) + at, sense, 0)

    def busy(self) -> None:
        """Jobs that stay on a node share its level, and its room at that level.

        Σ_j kept[j,n,r] · s[j,n,ℓ] ≤ room[n,ℓ,r] · L[n,ℓ], s[j,n,ℓ] ≤ L[n,ℓ] and Σ_{n in c} L[n,ℓ] ≤ N[c,ℓ].
        """
        on: dict[tuple[int, int], list[tuple[Any, Amounts]]] = defaultdict(list)
        for (j, n, level), s in self._v.stays.items():
            on[n, level].append((s, self._places.jobs[j].kept[n]))
            self._rows.add(f"busy_{j}_{n}_{level}", [(s, 1.0), (self._v.busy[n, level], -1.0)], "<=", 0)
        together: dict[tuple[int, int], Terms] = defaultdict(list)
        for (n, level), busy in self._v.busy.items():
            c = self._places.class_of[n]
            together[c, level].append((busy, 1.0))
            room = self._places.room((c, level))
            for r in range(4 if self._places.pressed else 3):
                shared = [(s, amounts[r]) for s, amounts in on[n, level] if amounts[r]]
                if sum(amount for _, amount in shared) > room[r]:
                    self._rows.add_amounts(f"shared_{n}_{level}_{r}", [*shared, (busy, -room[r])], 0)
        for (c, level), terms in together.items():
            row = [*terms, (self._v.nodes[c, level], -1.0)]
            self._rows.add(f"together_{c}_{level}", row, "<=", 0)

    # --- classes ----------------------------------------------------------------------------------------------------

    def capacity(self) -> None:
        """What all pieces at a place ask for: Σ amount[r] · (h, x, s) ≤ room[c,ℓ,r] · N[c,ℓ].

        Of classes whose nodes differ also Σ_ℓ Σ amount[r] · (h, x, s) ≤ Σ_{n in c} free[n,r].
        """
        for r, resource in enumerate(RESOURCES):
            for (c, level), terms in self._asked(r):
                room = self._places.room((c, level))[r]
                row = [*terms, (self._v.nodes[c, level], -room)]
                self._rows.add_amounts(f"capacity_{c}_{level}_{resource}", row, 0)
            for c, group in enumerate(self._places.classes):
                if group.mixed:
                    everywhere = [term for (at, _), terms in self._asked(r) if at == c for term in terms]
                    self._rows.add_amounts(f"supply_{c}_{resource}", everywhere, group.supply[r])

    def pressure(self) -> None:
        """The load at a level: Σ intensity · (h, x, s) ≤ cap[c,ℓ] · N[c,ℓ]."""
        if not self._places.pressed:
            return
        for (c, level), terms in self._asked(INTENSITY):
            room = self._places.room((c, level))[INTENSITY]
            self._rows.add_amounts(f"pressure_{c}_{level}", [*terms, (self._v.nodes[c, level], -room)], 0)

    def slots(self) -> None:
        """How many pieces fit on whole nodes: Σ f(amount[r]) · (h, x, s) ≤ f(room[c,ℓ,r]) · N[c,ℓ] for every slot f."""
        for r in range(4 if self._places.pressed else 3):
            for (c, level), terms in self._asked(r):
                room = self._places.room((c, level))[r]
                for number, slot in enumerate(slots((amount for _, amount in terms), room)):
                    taken = [(variable, f) for variable, amount in terms if (f := slot.of(amount))]
                    row = [*taken, (self._v.nodes[c, level], -slot.on_node)]
                    self._rows.add_amounts(f"slots_{c}_{level}_{r}_{number}", row, 0)

    def cut(self, cut: Cut, number: int) -> None:
        """What packing has shown: Σ weight · (h, x, s) ≤ on_node · N[c,ℓ]; see :mod:`coplace.formulations.cuts`."""
        terms = [(variable, f) for variable, amounts in self._v.at[cut.place] if (f := cut.of(amounts))]
        self._rows.add_amounts(f"cut_{number}", [*terms, (self._v.nodes[cut.place], -cut.on_node)], 0)

    # --- the cluster ------------------------------------------------------------------------------------------------

    def quota(self) -> None:
        """A tenant stays within its quota: Σ demand of column k in r · y[j,k] + kept demand · Σ_ℓ z[j,ℓ] ≤ quota[r]."""
        for number, (tenant, quota) in enumerate(self._rules.quotas.items()):
            for r, (resource, limit) in enumerate(zip(RESOURCES, quota.vector, strict=True)):
                if limit is None:
                    continue
                terms: list[tuple[Any, int]] = []
                for j, job in self._jobs:
                    if job.choices.job.tenant == tenant:
                        for k, column in enumerate(job.choices.columns):
                            terms.append((self._v.column[j, k], self._places.piece(job.choices, column)[r]))
                        kept = self._places.kept_total(j)[r]
                        terms += [(z, kept) for z, _ in self._v.stay(j)]
                self._rows.add_amounts(f"quota_{number}_{resource}", [term for term in terms if term[1]], limit)

    def move_budget(self) -> None:
        """Few running jobs change: Σ over running, not displaced jobs of (1 − Σ_ℓ z[j,ℓ]) ≤ budget."""
        if self._rules.move_budget is None:
            return
        running = [j for j, job in self._jobs if job.choices.counts_as_move]
        stay = [term for j in running for term in self._v.stay(j)]
        self._rows.add("move_budget", stay, ">=", len(running) - self._rules.move_budget)

    # --- amounts ----------------------------------------------------------------------------------------------------

    def _tasks_at(self, j: int, c: int, level: int) -> list[tuple[Any, Amounts]]:
        """x[j,i,c,ℓ] and what one task asks for, by kind."""
        amounts = self._places.jobs[j].amounts
        found = [(self._v.tasks.get((j, i, c, level)), amounts[kind]) for i, kind in enumerate(self._v.kinds[j])]
        return [(x, one) for x, one in found if x is not None]

    def _asked(self, r: int) -> Iterator[tuple[tuple[int, int], list[tuple[Any, int]]]]:
        """By place the variables that ask for something of r there, and how much."""
        for place, pieces in self._v.at.items():
            terms = [(variable, amounts[r]) for variable, amounts in pieces if amounts[r]]
            if terms:
                yield place, terms
