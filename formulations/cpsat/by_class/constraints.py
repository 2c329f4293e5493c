"""Constraint families of the class-level formulation, one method each; equations in docs/formulation.md."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

from ortools.sat.python import cp_model

from coplace.formulations.classes import INTENSITY, Place
from coplace.formulations.cpsat.by_class.variables import Pieces, Variables
from coplace.formulations.cuts import Cut
from coplace.formulations.slots import slots

Term = tuple[cp_model.IntVar, int]


class Constraints:
    """Adds the families to a model."""

    def __init__(self, model: cp_model.CpModel, variables: Variables) -> None:
        self.model = model
        self.v = variables
        self.places = variables.places
        self.jobs = variables.places.jobs
        self.rules = variables.places.instance.rules
        self.resources = range(4 if variables.places.pressed else 3)

    def add_all(self) -> None:
        """Every family."""
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

    # --- one job --------------------------------------------------------------------------------------------------

    def choose(self) -> None:
        """At most one way to run a job: Σ_k y[j,k] + Σ_ℓ z[j,ℓ] ≤ 1."""
        for j, job in enumerate(self.jobs):
            ways = [self.v.column[j, k] for k in range(len(job.choices.columns))]
            self.model.add_at_most_one([*ways, *self.v.kept_any(j)])

    def pinned(self) -> None:
        """A pinned job that is not displaced is kept: Σ_ℓ z[j,ℓ] = 1."""
        for j, job in enumerate(self.jobs):
            if job.choices.must_keep:
                self.model.add_exactly_one(self.v.kept_any(j))

    def whole(self) -> None:
        """Span 1 means one place: Σ_{c,ℓ} h[j,k,c,ℓ] = y[j,k]."""
        for j, job in enumerate(self.jobs):
            for k, places in job.whole.items():
                self._add([*((self.v.whole[j, k, *place], 1) for place in places), (self.v.column[j, k], -1)], 0, 0)

    def tasks(self) -> None:
        """Σ_{c,ℓ} x[j,i,c,ℓ] = Σ_{k: m_k > 1} tasks[i,k] · y[j,k]."""
        for j, i, has in self._kinds():
            placed = [(self.v.tasks[j, i, *place], 1) for place in self.jobs[j].fits[self.v.kinds[j][i]]]
            self._add([*placed, *((self.v.column[j, k], -count) for k, count in has.items())], 0, 0)

    def use(self) -> None:
        """x[j,i,c,ℓ] ≤ fit[i,c,ℓ] · u[j,c,ℓ]."""
        for (j, i, c, ell), x in self.v.tasks.items():
            fit = self.jobs[j].fits[self.v.kinds[j][i]][c, ell]
            if (j, c, ell) in self.v.used:
                self._add([(x, 1), (self.v.used[j, c, ell], -fit)], None, 0)

    def fill(self) -> None:
        """Σ_i amount[i,r] · x[j,i,c,ℓ] ≤ room[c,ℓ,r] · u[j,c,ℓ], where `use` does not imply it."""
        for (j, c, ell), u in self.v.used.items():
            room, tasks = self.places.room((c, ell)), self.v.tasks_at(j, c, ell)
            for r in self.places.fills(j, (c, ell)):
                self._add([*_amounts(tasks, r), (u, -room[r])], None, 0)

    def levels(self) -> None:
        """Σ_c Σ_{ℓ' ≥ ℓ} x[j,i,c,ℓ'] ≤ Σ_{k: m_k > 1, ℓ_k ≥ ℓ} tasks[i,k] · y[j,k]; tightens the relaxation."""
        for j, i, has in self._kinds():
            columns, fits = self.jobs[j].choices.columns, self.jobs[j].fits[self.v.kinds[j][i]]
            for ell in range(1, self.places.levels):
                above = [(self.v.tasks[j, i, c, at], 1) for c, at in fits if at >= ell]
                bearing = [(self.v.column[j, k], -count) for k, count in has.items() if columns[k].level >= ell]
                if above:
                    self._add([*above, *bearing], None, 0)

    def span(self) -> None:
        """Σ_c Σ_{ℓ' ≥ ℓ} u[j,c,ℓ'] ≤ Σ_{k: m_k > 1, ℓ_k ≥ ℓ} m_k · y[j,k] for every level ℓ."""
        for j, job in enumerate(self.jobs):
            columns = job.choices.columns
            for ell in range(self.places.levels):
                used = [(self.v.used[j, c, at], 1) for c, at in job.places if at >= ell]
                bearing = [(self.v.column[j, k], -columns[k].span) for k in job.spread if columns[k].level >= ell]
                if used:
                    self._add([*used, *bearing], None, 0)

    def tasks_per_node(self) -> None:
        """Σ_i x[j,i,c,ℓ] ≤ q · u[j,c,ℓ]."""
        if self.rules.max_tasks_per_node is None:
            return
        for (j, c, ell), u in self.v.used.items():
            tasks = [(x, 1) for x, _ in self.v.tasks_at(j, c, ell)]
            self._add([*tasks, (u, -self.rules.max_tasks_per_node)], None, 0)

    # --- nodes ----------------------------------------------------------------------------------------------------

    def nodes(self) -> None:
        """Σ_ℓ N[c,ℓ] = N_c."""
        for c, group in enumerate(self.places.classes):
            self._add([(self.v.nodes[c, ell], 1) for ell in range(self.places.levels)], group.size, group.size)

    def distinct(self) -> None:
        """h[j,k,c,ℓ] ≤ N[c,ℓ] and u[j,c,ℓ] ≤ N[c,ℓ] of pieces that ask for nothing; others have `capacity`."""
        for (j, k, *place), h in self.v.whole.items():
            if not any(self.jobs[j].piece[k]):
                self.model.add(h <= self.v.nodes[place[0], place[1]])
        for (j, *place), u in self.v.used.items():
            if not all(any(amounts) for amounts in self.jobs[j].amounts.values()):
                self.model.add(u <= self.v.nodes[place[0], place[1]])

    def stays(self) -> None:
        """Σ_ℓ s[j,n,ℓ] = Σ_ℓ z[j,ℓ] and Σ_{ℓ' ≤ ℓ} z[j,ℓ'] ≤ Σ_{ℓ' ≤ ℓ} s[j,n,ℓ']."""
        last = self.places.levels - 1
        for j, job in enumerate(self.jobs):
            for n in job.kept:
                for ell in range(self.places.levels):
                    at = [(self.v.stays[j, n, at], -1) for at in range(ell + 1) if (j, n, at) in self.v.stays]
                    kept = [(z, 1) for z in self.v.kept_any(j, ell)]
                    self._add([*kept, *at], 0 if ell == last else None, 0)

    def busy(self) -> None:
        """Σ_j kept[j,n,r] · s ≤ room[n,ℓ,r] · L[n,ℓ], s[j,n,ℓ] ≤ L[n,ℓ] and Σ_{n in c} L[n,ℓ] ≤ N[c,ℓ]."""
        on: dict[tuple[int, int], Pieces] = defaultdict(list)
        for (j, n, ell), s in self.v.stays.items():
            self.model.add_implication(s, self.v.busy[n, ell])
            on[n, ell].append((s, self.jobs[j].kept[n]))
        together: dict[Place, list[Term]] = defaultdict(list)
        for (n, ell), busy in self.v.busy.items():
            place = (self.places.class_of[n], ell)
            together[place].append((busy, 1))
            for r in self.resources:
                shared, room = _amounts(on[n, ell], r), self.places.room(place)[r]
                if sum(amount for _, amount in shared) > room:
                    self._add([*shared, (busy, -room)], None, 0)
        for place, terms in together.items():
            self._add([*terms, (self.v.nodes[place], -1)], None, 0)

    # --- classes --------------------------------------------------------------------------------------------------

    def capacity(self) -> None:
        """Σ amount[r] · (h, x, s) ≤ room[c,ℓ,r] · N[c,ℓ]; where nodes differ also ≤ Σ_{n in c} free[n,r] over all ℓ."""
        for r in range(3):
            for place, terms in self._asked(r):
                self._add([*terms, (self.v.nodes[place], -self.places.room(place)[r])], None, 0)
            for c, group in enumerate(self.places.classes):
                if group.mixed:
                    of_class = [terms for (at, _), terms in self._asked(r) if at == c]
                    self._add([term for terms in of_class for term in terms], None, group.supply[r])

    def pressure(self) -> None:
        """Σ intensity · (h, x, s) ≤ cap[c,ℓ] · N[c,ℓ]."""
        if self.places.pressed:
            for place, terms in self._asked(INTENSITY):
                self._add([*terms, (self.v.nodes[place], -self.places.room(place)[INTENSITY])], None, 0)

    def slots(self) -> None:
        """Σ f(amount[r]) · (h, x, s) ≤ f(room[c,ℓ,r]) · N[c,ℓ] for every slot f."""
        for r in self.resources:
            for place, terms in self._asked(r):
                for slot in slots((amount for _, amount in terms), self.places.room(place)[r]):
                    taken = [(variable, slot.of(amount)) for variable, amount in terms]
                    self._add([*taken, (self.v.nodes[place], -slot.on_node)], None, 0)

    def cut(self, cut: Cut) -> None:
        """Σ weight · (h, x, s) ≤ on_node · N[c,ℓ]: what packing has shown, see :mod:`coplace.formulations.cuts`."""
        pieces = [(variable, cut.of(amounts)) for variable, amounts in self.v.at[cut.place]]
        self._add([*pieces, (self.v.nodes[cut.place], -cut.on_node)], None, 0)

    # --- the cluster ----------------------------------------------------------------------------------------------

    def quota(self) -> None:
        """Σ demand of column k in r · y[j,k] + kept demand · Σ_ℓ z[j,ℓ] ≤ quota[r], over a tenant's jobs."""
        for tenant, quota in self.rules.quotas.items():
            for r, limit in enumerate(quota.vector):
                terms: list[Term] = []
                for j, job in enumerate(self.jobs):
                    if job.choices.job.tenant == tenant:
                        pieces = [self.places.piece(job.choices, column) for column in job.choices.columns]
                        terms += [(self.v.column[j, k], piece[r]) for k, piece in enumerate(pieces)]
                        terms += [(z, self.places.kept_total(j)[r]) for z in self.v.kept_any(j)]
                if limit is not None:
                    self._add(terms, None, limit)

    def move_budget(self) -> None:
        """Σ over running, not displaced jobs of (1 − Σ_ℓ z[j,ℓ]) ≤ budget."""
        if self.rules.move_budget is not None:
            counted = [j for j, job in enumerate(self.jobs) if job.choices.counts_as_move]
            stay = [(z, 1) for j in counted for z in self.v.kept_any(j)]
            self._add(stay, len(counted) - self.rules.move_budget, None)

    # --- amounts --------------------------------------------------------------------------------------------------

    def _kinds(self) -> Iterator[tuple[int, int, dict[int, int]]]:
        """Job, kind, and how many tasks of it each spread column has."""
        for j, job in enumerate(self.jobs):
            has = {k: job.kinds(k) for k in job.spread}
            for i, kind in enumerate(self.v.kinds[j]):
                yield j, i, {k: tasks[kind] for k, tasks in has.items() if kind in tasks}

    def _asked(self, r: int) -> Iterator[tuple[Place, list[Term]]]:
        for place, pieces in self.v.at.items():
            if terms := _amounts(pieces, r):
                yield place, terms

    def _add(self, terms: Iterable[Term], low: int | None, high: int | None) -> None:
        """low ≤ Σ coefficient · variable ≤ high, divided by the common divisor of all numbers.

        Small coefficients keep sums below 2³¹, where presolve of some CP-SAT versions has overflowed (or-tools #5293).
        """
        used = [(variable, coefficient) for variable, coefficient in terms if coefficient]
        divisor = math.gcd(*(abs(coefficient) for _, coefficient in used)) or 1
        variables = [variable for variable, _ in used]
        expression = cp_model.LinearExpr.weighted_sum(variables, [amount // divisor for _, amount in used])
        if low is not None and low == high:
            self.model.add(expression == low // divisor)
            return
        if low is not None:
            self.model.add(expression >= -(-low // divisor))
        if high is not None:
            self.model.add(expression <= high // divisor)


def _amounts(pieces: Pieces, r: int) -> list[Term]:
    return [(variable, amounts[r]) for variable, amounts in pieces if amounts[r]]
