"""Each constraint family of the class-level formulation: variables are forced, and the model allows it or not.

The cases are written once for both backends, like those of the node-indexed formulation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from coplace.formulations.classes import Places
from coplace.formulations.columns import ColumnSet, column_set
from coplace.formulations.cpsat.by_class import ClassCpsat
from coplace.formulations.cpsat.by_class import constraints as cpsat_constraints
from coplace.formulations.mip.by_class import ClassMip
from coplace.formulations.mip.by_class import constraints as mip_constraints
from coplace.instances import Instance
from tests.building import instance, node, ps_job, ring_job
from tests.test_formulation_families import chosen, current, find, intense, slow, spreading, with_budget

Fixed = tuple[str, tuple[int, ...], int]
"""Group of variables, index, value: ``("tasks", (0, 0, 1, 0), 2)`` is x of job 0, kind 0 in class 1 at level 0."""

TIGHTEN = {"slots", "levels"}
"""Families that whole numbers keep anyway."""


def status_by_mip(columns: ColumnSet, fixed: list[Fixed]) -> str:
    model = ClassMip(Places(columns))
    for group, index, value in fixed:
        found = getattr(model.variables, group).get(index)
        if found is None or not found.lowBound <= value <= found.upBound:
            if value or found is not None:
                return "infeasible"
            continue
        found.bounds(value, value)
    return model.solve(time_limit=20, gap=1.0).status


def status_by_cpsat(columns: ColumnSet, fixed: list[Fixed]) -> str:
    model = ClassCpsat(Places(columns))
    for group, index, value in fixed:
        found = getattr(model.variables, group).get(index)
        if found is None:
            if value:
                return "infeasible"
            continue
        model.proto.add(found == value)
    return model.solve(time_limit=20, gap=1.0, workers=1).status


BACKENDS = {"mip": status_by_mip, "cpsat": status_by_cpsat}
CONSTRAINTS: dict[str, Any] = {"mip": mip_constraints.Constraints, "cpsat": cpsat_constraints.Constraints}


@dataclass(frozen=True)
class Case:
    """Forced variables in an instance; the family forbids them if *allowed* is False."""

    family: str
    says: str
    instance: Callable[[], Instance]
    fixed: Callable[[ColumnSet, bool], list[Fixed]]
    allowed: bool


CASES: list[Case] = []


def case(
    family: str, make: Callable[[], Instance], *, allowed: str, forbidden: str
) -> Callable[[Callable[[ColumnSet, bool], list[Fixed]]], None]:
    """Two cases from a function that forces variables, as it is allowed and as it is not."""

    def register(fixed: Callable[[ColumnSet, bool], list[Fixed]]) -> None:
        CASES.append(Case(family, allowed, make, fixed, True))
        CASES.append(Case(family, forbidden, make, fixed, False))

    return register


def one_job(**changes: Any) -> Instance:
    """An all-reduce job of 1 to 4 workers on two equal nodes of 4 GPUs, one class."""
    return instance([node("n0"), node("n1")], [ring_job(**changes)])


@case("choose", one_job, allowed="one column of a job", forbidden="two columns of a job")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [chosen(columns, 0, workers=1), ("column", (0, find(columns, 0, workers=2)), 0 if allowed else 1)]


@case(
    "pinned", lambda: one_job(current=current(worker={"n0": 1}), pinned=True), allowed="it stays", forbidden="it goes"
)
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [("kept", (0, 0), int(allowed))]


@case("whole", one_job, allowed="a column with span 1 has a place", forbidden="it has none")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    k = find(columns, 0, workers=2, span=1)
    return [("column", (0, k), 1), ("whole", (0, k, 0, 0), int(allowed))]


@case("tasks", one_job, allowed="all workers have a place", forbidden="one of them has none")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [chosen(columns, 0, workers=2, span=2), ("tasks", (0, 0, 0, 0), 2 if allowed else 1)]


@case("use", one_job, allowed="tasks on nodes in use", forbidden="tasks on no node")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [chosen(columns, 0, workers=2, span=2), ("used", (0, 0, 0), int(allowed))]


def tight_node() -> Instance:
    """Nodes that hold one worker and no server beside it."""
    return instance([node("n0", cpu=2), node("n1", cpu=2)], [slow(ps_job())])


@case("fill", tight_node, allowed="a worker and a server on two nodes", forbidden="both on one that is too small")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    choice = chosen(columns, 0, workers=1, servers=1, span=2)
    return [choice, ("used", (0, 0, 0), 2 if allowed else 1)]


def three_nodes() -> Instance:
    return instance([node("n0"), node("n1"), node("n2")], [slow(ps_job())])


@case("span", three_nodes, allowed="as many nodes as the column allows", forbidden="a node more")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    choice = chosen(columns, 0, workers=2, servers=1, span=2)
    return [choice, ("used", (0, 0, 0), 2 if allowed else 3)]


def one_task_each() -> Instance:
    return instance([node("n0"), node("n1")], [slow(ps_job())], rules={"max_tasks_per_node": 1})


@case("tasks_per_node", one_task_each, allowed="a task on each of two nodes", forbidden="two tasks on one node")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    choice = chosen(columns, 0, workers=1, servers=1)
    return [choice, ("used", (0, 0, 0), 2 if allowed else 1)]


@case("nodes", spreading, allowed="every node runs at a level", forbidden="one of them at none")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [("nodes", (0, 0), 2 if allowed else 1)]


def weightless() -> Instance:
    """A job whose tasks ask for nothing, on one node that runs at one of two levels."""
    worker = {"gpu": 0, "cpu": 0, "memory": 0, "max": 1}
    job = slow(ring_job(worker=worker))
    loud = intense("loud", intensity=60)
    return instance([node("n0")], [job, loud], pressure_levels=[0.5, 1.0])


@case("distinct", weightless, allowed="a place that there is", forbidden="a place where no node runs at that level")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    k = find(columns, 0, workers=1, span=1)
    level = columns.jobs[0].columns[k].level
    return [("column", (0, k), 1), ("whole", (0, k, 0, level), 1), ("nodes", (0, level), int(allowed))]


def staying() -> Instance:
    return one_job(current=current(worker={"n0": 1}))


@case("stays", staying, allowed="tasks that stay are on their node", forbidden="they are nowhere")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [("kept", (0, 0), 1), ("stays", (0, 0, 0), int(allowed))]


@case("busy", staying, allowed="their node runs at that level", forbidden="it does not")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [("stays", (0, 0, 0), 1), ("busy", (0, 0), int(allowed))]


def short(name: str, amount: Any) -> Callable[[], Instance]:
    """Two jobs, one node on which their workers do not fit together, and another one of another class."""
    nodes = [node("n0", **{name: amount}), node("n1", cpu=64)]
    return lambda: instance(nodes, [ring_job("j0"), ring_job("j1", tenant="other")])


def two_at_a_place(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    """A worker of each of two jobs in one class of one node, or in two."""
    fixed: list[Fixed] = []
    for j, c in ((0, 0), (1, 1 if allowed else 0)):
        k = find(columns, j, workers=1)
        fixed += [("column", (j, k), 1), ("whole", (j, k, c, 0), 1)]
    return fixed


for _name, _amount in (("cpu", "3900m"), ("memory", "15Gi"), ("gpu", 1)):
    _what = f"what fits the {_name}"
    case("capacity", short(_name, _amount), allowed=_what, forbidden=f"more {_name} than is free")(two_at_a_place)


def pressed() -> Instance:
    jobs = [intense("j0"), intense("j1", tenant="other")]
    return instance([node("n0"), node("n1", cpu=64)], jobs, pressure_levels=[1.0])


case("pressure", pressed, allowed="load 60 of 100", forbidden="load 120 of 100")(two_at_a_place)


def with_quota() -> Instance:
    return instance(
        [node("n0"), node("n1")], [ring_job("j0"), ring_job("j1")], rules={"quotas": {"default": {"gpu": 3}}}
    )


@case("quota", with_quota, allowed="three GPUs of three", forbidden="four GPUs of three")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [chosen(columns, 0, workers=2, span=1), chosen(columns, 1, workers=1 if allowed else 2, span=1)]


@case("move_budget", with_budget, allowed="one move", forbidden="two moves with a budget of one")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [("kept", (0, 0), 0), ("kept", (1, 0), int(allowed))]


def name(case: Case) -> str:
    return f"{case.family}: {case.says}"


@pytest.mark.parametrize("case", CASES, ids=name)
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_family_allows(backend: str, case: Case) -> None:
    columns = column_set(case.instance())
    status = BACKENDS[backend](columns, case.fixed(columns, case.allowed))
    assert status in (("optimal", "feasible") if case.allowed else ("infeasible",))


@pytest.mark.parametrize("case", [case for case in CASES if not case.allowed], ids=name)
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_family_forbids_no_other_forbids(backend: str, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """But slots, which repeat what sums say."""
    for family in (case.family, "slots"):
        monkeypatch.setattr(CONSTRAINTS[backend], family, lambda *_: None)
    columns = column_set(case.instance())
    assert BACKENDS[backend](columns, case.fixed(columns, False)) in ("optimal", "feasible", "unknown")


def test_every_family_has_cases() -> None:
    have = {case.family for case in CASES} | TIGHTEN
    for owner in CONSTRAINTS.values():
        assert {name for name in vars(owner) if not name.startswith("_")} - {"add_all", "cut"} == have


@pytest.mark.parametrize("family", ["slots", "levels"])
def test_what_tightens_the_relaxation(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """3-GPU workers on 4-GPU nodes; columns that bear a level in part, and tasks that are all there."""
    if family == "slots":
        worker = {"gpu": 3, "cpu": 2, "memory": "8Gi", "max": 1}
        found = instance([node(f"n{n}") for n in range(3)], [ring_job(f"j{j}", worker=worker) for j in range(4)])
    else:
        jobs = [intense(f"j{j}", intensity=30) for j in range(6)]
        found = instance([node("n0"), node("n1"), node("n2")], jobs, pressure_levels=[0.3, 1.0])
    columns = column_set(found)
    with_family = ClassMip(Places(columns)).relaxed(time_limit=20)
    monkeypatch.setattr(mip_constraints.Constraints, family, lambda *_: None)
    without = ClassMip(Places(columns)).relaxed(time_limit=20)
    assert with_family is not None
    assert without is not None
    assert with_family.bound < without.bound * (1 - 1e-4)
