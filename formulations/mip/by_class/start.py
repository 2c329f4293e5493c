"""Values of the variables from a plan, for solvers to start from."""

from __future__ import annotations

from coplace.formulations.class_hint import counts_of
from coplace.formulations.mip.by_class.variables import Variables
from coplace.instances.plan import Plan


def set_values(variables: Variables, plan: Plan) -> bool:
    """Give the variables the values of *plan*; whether all of them can have these."""
    v, counts = variables, counts_of(variables.places, plan)
    groups = (v.column, v.kept, v.whole, v.tasks, v.used, v.nodes, v.stays, v.busy)
    for group in groups:
        for variable in group.values():
            variable.varValue = 0
    for place, count in counts.nodes.items():
        v.nodes[place].varValue = count
    for n, level in counts.busy.items():
        v.busy[n, level].varValue = 1
    for j, choice in enumerate(counts.jobs):
        if choice.kept is not None:
            v.kept[j, choice.kept].varValue = 1
            for n in v.places.jobs[j].kept:
                v.stays[j, n, counts.busy[n]].varValue = 1
        if choice.column is None:
            continue
        v.column[j, choice.column].varValue = 1
        if choice.whole is not None:
            v.whole[(j, choice.column, *choice.whole)].varValue = 1
        for (kind, (c, level)), count in choice.tasks.items():
            v.tasks[j, v.kinds[j].index(kind), c, level].varValue = count
        for (c, level), count in choice.used.items():
            if (j, c, level) in v.used:
                v.used[j, c, level].varValue = count
    return all(x.varValue <= x.upBound for group in groups for x in group.values())
