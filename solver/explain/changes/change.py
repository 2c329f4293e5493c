"""One change that may admit a waiting job, and the kinds of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from coplace.instances.instance import Instance
from coplace.instances.plan import Plan
from coplace.solver.explain.case import Case


@dataclass(frozen=True, slots=True)
class Change:
    """A changed instance that may admit the job; whether it does, only a plan of it tells.

    Attributes:
        kind: of change.
        words: what changes, for people.
        share: the largest share of any resource of the cluster that the change adds, takes or gives up.
        instance: the changed instance.
        without: its plan before the job starts.
        plan: its plan with the job, where the change says more than that the job starts.
        cost: what the job that has to give way is worth less on the instance as it is.
    """

    kind: str
    words: str
    share: float
    instance: Instance
    without: Plan
    plan: Plan | None = None
    cost: float = 0.0


class Kind(Protocol):
    """A kind of change: the changes worth a try in a case, smallest first; few, and without looking at the clock."""

    def __call__(self, case: Case) -> Iterator[Change]:
        """Changes by rising share."""
        ...
