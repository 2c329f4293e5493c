"""Hints from a plan, for CP-SAT to start from."""

from __future__ import annotations

from ortools.sat.python import cp_model

from coplace.formulations.class_hint import counts_of
from coplace.formulations.cpsat.by_class.variables import Variables
from coplace.instances.plan import Plan


def hint_values(model: cp_model.CpModel, variables: Variables, plan: Plan) -> None:
    """Hint every variable; a job whose column is not among the choices runs nothing."""
    v, counts = variables, counts_of(variables.places, plan)
    model.clear_hints()
    for place, count in v.nodes.items():
        model.add_hint(count, counts.nodes[place])
    for (n, ell), busy in v.busy.items():
        model.add_hint(busy, counts.busy.get(n) == ell)
    for (j, ell), z in v.kept.items():
        model.add_hint(z, counts.jobs[j].kept == ell)
    for (j, n, ell), s in v.stays.items():
        model.add_hint(s, counts.jobs[j].kept is not None and counts.busy.get(n) == ell)
    for (j, k), y in v.column.items():
        model.add_hint(y, counts.jobs[j].column == k)
    for (j, k, c, ell), h in v.whole.items():
        model.add_hint(h, counts.jobs[j].column == k and counts.jobs[j].whole == (c, ell))
    for (j, i, c, ell), x in v.tasks.items():
        model.add_hint(x, counts.jobs[j].tasks.get((v.kinds[j][i], (c, ell)), 0))
    for (j, c, ell), u in v.used.items():
        model.add_hint(u, counts.jobs[j].used.get((c, ell), 0))
