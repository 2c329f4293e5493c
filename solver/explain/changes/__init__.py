"""The kinds of changes that may admit a waiting job, one callable each."""

from __future__ import annotations

from coplace.solver.explain.changes.capacity import capacity, node, uncordon
from coplace.solver.explain.changes.change import Change, Kind
from coplace.solver.explain.changes.job import counts, gpu_type, minimum, profile, selector, weight
from coplace.solver.explain.changes.others import move, move_budget, shrink, stop
from coplace.solver.explain.changes.rules import quota, tasks_per_node

__all__ = ["KINDS", "NOTHING", "Change", "Kind"]

NOTHING = "nothing"
"""The kind of no change at all: the job would fit and gain as things stand."""

KINDS: dict[str, Kind] = {
    "selector": selector,
    "gpu-type": gpu_type,
    "counts": counts,
    "weight": weight,
    "tasks-per-node": tasks_per_node,
    "move": move,
    "move-budget": move_budget,
    "profile": profile,
    "minimum": minimum,
    "quota": quota,
    "uncordon": uncordon,
    "capacity": capacity,
    "shrink": shrink,
    "stop": stop,
    "node": node,
}
"""All kinds by name; of changes of the same size the kind that stands first here comes first."""
