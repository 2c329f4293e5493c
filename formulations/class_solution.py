"""What a solver says about a class-level formulation: counts per class and level, not yet a plan."""

from __future__ import annotations

from dataclasses import dataclass, field

from coplace.formulations.classes import Kind, Place
from coplace.formulations.solution import SolverStatus


@dataclass(frozen=True, slots=True)
class ClassChoice:
    """What one job does: keep its tasks, run a column, or nothing if both are None.

    Attributes:
        kept: level ℓ of z[j,ℓ].
        column: k of y[j,k].
        whole: where all its tasks are, of a column with span 1.
        tasks: how many tasks of each kind are in which place, of another column.
        used: on how many nodes of which place, of another column.
    """

    kept: int | None = None
    column: int | None = None
    whole: Place | None = None
    tasks: dict[tuple[Kind, Place], int] = field(default_factory=dict)
    used: dict[Place, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Counts:
    """A solution of a class-level formulation.

    Attributes:
        jobs: one entry per job.
        nodes: N[c,ℓ].
        busy: the level of each node on which tasks stay.
    """

    jobs: tuple[ClassChoice, ...]
    nodes: dict[Place, int]
    busy: dict[int, int]


@dataclass(frozen=True, slots=True)
class ClassSolution:
    """A solver's answer. ``bound`` holds for every plan, ``objective`` only for the counts.

    Attributes:
        status: as of :class:`~coplace.formulations.solution.Solution`.
        counts: None without a solution.
        objective: of the counts, by the solver.
        bound: upper bound on the objective of every plan over these columns; None if the solver gives none.
        seconds: wall time in the solver.
    """

    status: SolverStatus
    counts: Counts | None
    objective: float | None
    bound: float | None
    seconds: float
