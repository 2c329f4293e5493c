"""What the parent asks of the child, and what the child says on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coplace.formulations.columns import ColumnSet
from coplace.formulations.relaxation.rows import PricedRow
from coplace.instances.plan import Plan


@dataclass(frozen=True, slots=True)
class Task:
    """One solve.

    Attributes:
        columns: what to choose from.
        backend: ``cpsat``, or a MIP backend such as ``highs``.
        incumbent: best plan so far, feasible, and its objective.
        objective: of the incumbent.
        time_limit: seconds.
        gap: relative gap at which to stop.
        seed: for the solver.
        threads: of the solver, 1 or 2.
        replay: the same answer on every run: one thread, limits in deterministic time.
        symmetry: break the symmetry between equal nodes and jobs.
        by_class: formulate over classes of equal nodes, and pack these.
    """

    columns: ColumnSet
    backend: str
    incumbent: Plan
    objective: float
    time_limit: float
    gap: float
    seed: int = 0
    threads: int = 2
    replay: bool = False
    symmetry: bool = True
    by_class: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A plan that the solver calls feasible."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Bounded:
    """An upper bound on the objective of every plan."""

    bound: float


@dataclass(frozen=True, slots=True)
class Priced:
    """Prices, from which a bound follows that needs no trust in a solver."""

    rows: tuple[PricedRow, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The end: of the search, at a limit, or with a failure (the words of the exception)."""

    why: Literal["done", "time", "memory", "failure"]
    words: str = ""


Event = Found | Bounded | Priced | Ended
