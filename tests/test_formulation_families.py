"""Each constraint family of docs/formulation.md: variables are forced, and the model allows it or not as that says.

The cases are written once for every formulation that stands behind :class:`Forced`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from coplace.formulations.columns import ColumnSet, column_set
from coplace.formulations.cpsat import constraints as cpsat_constraints
from coplace.formulations.cpsat import model as cpsat_model
from coplace.formulations.cpsat.model import CpsatModel
from coplace.formulations.mip import MipModel
from coplace.formulations.mip import constraints as mip_constraints
from coplace.formulations.mip import symmetry as mip_symmetry
from coplace.formulations.mip import variables as mip_variables
from coplace.instances import Instance
from tests.building import instance, node, ps_job, ring_job

Fixed = tuple[str, tuple[int, ...], int]
"""Group of variables, index, value: ``("workers", (0, 0, 1), 2)`` is x of job 0 with profile 0 on node 1."""

SLOW = {"interference": {"slope": 1.0}, "spread": {"slope": 0.5}}
"""Speeds that fall with pressure and span, so that every span and level has a column of its own."""


class Forced(Protocol):
    """A formulation with some of its variables forced."""

    def __init__(self, columns: ColumnSet) -> None: ...

    def fix(self, variable: Fixed) -> None:
        """Force a variable; one that does not exist is 0."""

    def status(self) -> str:
        """What the solver says."""

    @staticmethod
    def leave_out(family: str, patch: pytest.MonkeyPatch) -> None:
        """Build models without a family from now on; skips the test where it cannot be taken out alone."""


class ForcedMip:
    def __init__(self, columns: ColumnSet) -> None:
        self.model = MipModel(columns)
        self.possible = True

    def fix(self, variable: Fixed) -> None:
        group, index, value = variable
        found = getattr(self.model.variables, group).get(index)
        if found is None:
            self.possible &= value == 0
        elif found.lowBound <= value <= found.upBound:
            found.bounds(value, value)
        else:
            self.possible = False

    def status(self) -> str:
        return self.model.solve(time_limit=20, gap=1.0).status if self.possible else "infeasible"

    @staticmethod
    def leave_out(family: str, patch: pytest.MonkeyPatch) -> None:
        if family in BY_BOUNDS:
            patch.setattr(mip_variables.Variables, family, BY_BOUNDS[family])
        elif family in BY_SYMMETRY:
            patch.setattr(mip_symmetry.Symmetry, family, lambda *_: None)
        else:
            patch.setattr(mip_constraints.Constraints, family, lambda *_: None)


class ForcedCpsat:
    def __init__(self, columns: ColumnSet) -> None:
        self.model = CpsatModel(columns)
        self.possible = True

    def fix(self, variable: Fixed) -> None:
        group, index, value = variable
        found = getattr(self.model.variables, group).get(index)
        if found is None:
            self.possible &= value == 0
        else:
            self.model.proto.add(found == value)

    def status(self) -> str:
        return self.model.solve(time_limit=20, gap=1.0, workers=1).status if self.possible else "infeasible"

    @staticmethod
    def leave_out(family: str, patch: pytest.MonkeyPatch) -> None:
        if family in BY_BOUNDS:
            pytest.skip("part of the bounds of variables")
        if family in BY_SYMMETRY:
            patch.setattr(cpsat_model, "break_symmetry", lambda *_: None)
        else:
            patch.setattr(cpsat_constraints.Constraints, family, lambda *_: [])


BY_BOUNDS: dict[str, Callable[..., Any]] = {
    "hosts": lambda *_: True,
    "cordon": lambda self, view, role, profile, n, room: room,
}
"""Families that bound variables, and what takes their place when they are left out."""

BY_SYMMETRY = {"equal_nodes", "equal_jobs"}

FORMULATIONS: dict[str, type[Forced]] = {"mip": ForcedMip, "cpsat": ForcedCpsat}


# --- cases ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Forced variables in an instance, and whether the family allows them."""

    family: str
    says: str
    instance: Callable[[], Instance]
    fixed: Callable[[ColumnSet], list[Fixed]]
    allowed: bool


CASES: list[Case] = []


def case(
    family: str, make: Callable[[], Instance], *, allowed: str, forbidden: str
) -> Callable[[Callable[[ColumnSet, bool], list[Fixed]]], None]:
    """Two cases from a function that forces variables, as it is allowed and as it is not."""

    def register(fixed: Callable[[ColumnSet, bool], list[Fixed]]) -> None:
        CASES.append(Case(family, allowed, make, lambda columns: fixed(columns, True), True))
        CASES.append(Case(family, forbidden, make, lambda columns: fixed(columns, False), False))

    return register


def find(columns: ColumnSet, j: int, **wanted: int) -> int:
    """The first column of job j with these fields."""
    for k, column in enumerate(columns.jobs[j].columns):
        if all(getattr(column, name) == value for name, value in wanted.items()):
            return k
    raise AssertionError(f"no column of job {j} with {wanted}")


def chosen(columns: ColumnSet, j: int, **wanted: int) -> Fixed:
    """The first such column is chosen."""
    return ("column", (j, find(columns, j, **wanted)), 1)


def current(**tasks: dict[str, int]) -> dict[str, Any]:
    return {"tasks": tasks}


def one_job(**changes: Any) -> Instance:
    """An all-reduce job of 1 to 4 workers on two nodes of 4 GPUs."""
    return instance([node("n0"), node("n1")], [ring_job(**changes)])


def slow(job: dict[str, Any]) -> dict[str, Any]:
    return job | {"speed": job["speed"] | SLOW}


@case("choose", one_job, allowed="one column of a job", forbidden="two columns of a job")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    second = ("column", (0, find(columns, 0, workers=2)), 0 if allowed else 1)
    return [chosen(columns, 0, workers=1), second]


@case(
    "choose",
    lambda: one_job(current=current(worker={"n0": 1})),
    allowed="a job stays",
    forbidden="a job stays and moves",
)
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [("kept", (0, 0), 1), ("column", (0, find(columns, 0, workers=2)), 0 if allowed else 1)]


@case("workers", one_job, allowed="w workers in all", forbidden="one worker too few")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    second = ("workers", (0, 0, 1), 1 if allowed else 0)
    return [chosen(columns, 0, workers=2, span=2), ("workers", (0, 0, 0), 1), second]


def two_types() -> Instance:
    speed = ring_job()["speed"]
    speed = speed | {"types": {"a100": speed["types"]["a100"], "v100": speed["types"]["a100"]}}
    return instance([node("n0"), node("n1", gpu_type="v100")], [ring_job(speed=speed)])


@case("workers", two_types, allowed="workers on the column's GPU type", forbidden="workers on another GPU type")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [chosen(columns, 0, workers=1, gpu_type=0 if allowed else 1), ("workers", (0, 0, 0), 1)]


def two_profiles() -> Instance:
    profiles = [{"cpu": 4}, {"cpu": 1, "slowdown": 1.5}]
    worker = {"gpu": 1, "max": 4, "profiles": profiles}
    ps = {"max": 2, "profiles": [{"cpu": 4, "memory": "1Gi"}, {"cpu": 1, "memory": "1Gi", "slowdown": 1.5}]}
    return instance([node("n0"), node("n1")], [ps_job(worker=worker, ps=ps)])


@case("workers", two_profiles, allowed="the column's profile", forbidden="another profile")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [chosen(columns, 0, workers=1, worker_profile=0), ("workers", (0, 0 if allowed else 1, 0), 1)]


@case("servers", two_profiles, allowed="p servers with the column's profile", forbidden="servers with another profile")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [chosen(columns, 0, servers=1, ps_profile=0), ("servers", (0, 0 if allowed else 1, 0), 1)]


@case("servers", two_profiles, allowed="p servers", forbidden="a server too many")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    second = ("servers", (0, 0, 1), 0 if allowed else 1)
    return [chosen(columns, 0, servers=1, ps_profile=0), ("servers", (0, 0, 0), 1), second]


def spreading() -> Instance:
    return instance([node("n0"), node("n1")], [slow(ps_job())])


@case("use", spreading, allowed="a worker on a node in use", forbidden="a worker on a node that is not in use")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    # a span of 2 leaves room, so that only the node without a task may be out of use
    choice = chosen(columns, 0, workers=1, servers=1, span=2)
    out_of_use = ("used", (0, 1 if allowed else 0), 0)
    return [choice, ("workers", (0, 0, 0), 1), ("servers", (0, 0, 0), 1), out_of_use]


@case("use", spreading, allowed="a server on a node in use", forbidden="a server on a node that is not in use")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    choice = chosen(columns, 0, workers=1, servers=1, span=2)
    return [choice, ("workers", (0, 0, 0), 1), ("servers", (0, 0, 1), 1), ("used", (0, 1), 1 if allowed else 0)]


@case("span", spreading, allowed="as many nodes as the column allows", forbidden="a node more than it allows")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    choice = chosen(columns, 0, workers=1, servers=1, span=2 if allowed else 1)
    return [choice, ("workers", (0, 0, 0), 1), ("servers", (0, 0, 1), 1)]


def tight(name: str, amount: Any) -> Callable[[], Instance]:
    """Two jobs whose workers do not both fit node 0."""
    nodes = [node("n0", **{name: amount}), node("n1"), node("n2", cpu=64)]
    return lambda: instance(nodes, [ring_job("j0"), ring_job("j1", tenant="other")])


def two_on_a_node(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    """A worker of each of two jobs on one node, or on two."""
    choices = [chosen(columns, j, workers=1) for j in (0, 1)]
    return [*choices, ("workers", (0, 0, 0), 1), ("workers", (1, 0, 1 if allowed else 0), 1)]


for _name, _amount in (("cpu", "3900m"), ("memory", "15Gi"), ("gpu", 1)):
    _what = f"what fits the {_name}"
    case("capacity", tight(_name, _amount), allowed=_what, forbidden=f"more {_name} than is free")(two_on_a_node)


@case(
    "capacity",
    lambda: instance(
        [node("n0", cpu="3900m"), node("n1")], [ring_job("j0", current=current(worker={"n0": 1})), ring_job("j1")]
    ),
    allowed="a job beside a kept one where both fit",
    forbidden="a job where a kept one leaves too little",
)
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [("kept", (0, 0), 1), chosen(columns, 1, workers=1), ("workers", (1, 0, 1 if allowed else 0), 1)]


def with_memory_model() -> Instance:
    """One server needs 8 GiB, one of two 4 GiB; node 0 has 7 GiB, so that it holds the latter only, and one of them."""
    ps = {"cpu": 1, "memory": 0, "max": 2, "memory_model": {"model": "4Gi", "copies": 2.0}}
    return instance([node("n0", memory="7Gi"), node("n1")], [ps_job(ps=ps)])


@case(
    "server_memory",
    with_memory_model,
    allowed="one of two servers, of 4 GiB, in 7 GiB",
    forbidden="a single server, of 8 GiB, in 7 GiB",
)
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [chosen(columns, 0, workers=1, servers=2 if allowed else 1), ("servers", (0, 0, 0), 1)]


def with_receive_buffer() -> Instance:
    """A server needs 1 GiB per worker; node 0 holds two of 3 GiB and not two of 4."""
    ps = {"cpu": 1, "memory": 0, "max": 2, "memory_model": {"model": 0, "receive_buffer": "1Gi"}}
    worker = {"gpu": 1, "cpu": 2, "memory": "1Gi", "max": 4}
    return instance([node("n0", memory="6Gi"), node("n1")], [ps_job(ps=ps, worker=worker)])


@case(
    "server_memory",
    with_receive_buffer,
    allowed="two servers of 3 GiB in 6 GiB",
    forbidden="two servers of 4 GiB in 6 GiB",
)
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [chosen(columns, 0, workers=3 if allowed else 4, servers=2), ("servers", (0, 0, 0), 2)]


@case(
    "tasks_per_node",
    lambda: instance([node("n0"), node("n1")], [ps_job()], rules={"max_tasks_per_node": 1}),
    allowed="one task on each node",
    forbidden="two tasks on a node that allows one",
)
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    choice = chosen(columns, 0, workers=1, servers=1)
    return [choice, ("workers", (0, 0, 0), 1), ("servers", (0, 0, 1 if allowed else 0), 1)]


def intense(name: str, intensity: int = 60, **changes: Any) -> dict[str, Any]:
    worker = {"gpu": 1, "cpu": 2, "memory": "8Gi", "max": 2, "intensity": intensity}
    return slow(ring_job(name, worker=worker, **changes))


def pressed(*levels: float, **changes: Any) -> Instance:
    """Two jobs with workers of intensity 60 on three nodes of pressure capacity 100."""
    jobs = [intense("j0", **changes), intense("j1", tenant="other")]
    return instance([node("n0"), node("n1"), node("n2", cpu=64)], jobs, pressure_levels=list(levels))


case("pressure", lambda: pressed(1.0), allowed="load 60 of 100", forbidden="load 120 of 100")(two_on_a_node)


@case("pressure", lambda: pressed(0.5, 1.0), allowed="load 60 at level 100", forbidden="load 60 at level 50")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    choice = chosen(columns, 0, workers=1, level=1)
    return [choice, ("workers", (0, 0, 0), 1), ("level", (0, 1 if allowed else 0), 1)]


@case(
    "pressure",
    lambda: pressed(0.5, 1.0, current=current(worker={"n0": 1})),
    allowed="kept tasks of 60 at level 100",
    forbidden="kept tasks of 60 at level 50",
)
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [("kept", (0, 1), 1), ("level", (0, 1 if allowed else 0), 1)]


def calm_and_loud(**changes: Any) -> Instance:
    """A job of intensity 10 that suffers from pressure, on three nodes that run at level 30 or 100."""
    nodes = [node("n0"), node("n1"), node("n2", cpu=64)]
    return instance(nodes, [intense("j0", 10, **changes), intense("j1")], pressure_levels=[0.3, 1.0])


@case("levels", calm_and_loud, allowed="a column for level 100 on such a node", forbidden="a column for level 30 there")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    choice = chosen(columns, 0, workers=1, level=1 if allowed else 0)
    return [choice, ("workers", (0, 0, 0), 1), ("level", (0, 1), 1)]


@case(
    "levels",
    lambda: calm_and_loud(current=current(worker={"n0": 1})),
    allowed="a kept job that feels level 100 on such a node",
    forbidden="a kept job that feels level 30 there",
)
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [("kept", (0, 1 if allowed else 0), 1), ("level", (0, 1), 1)]


def with_quota(running: bool = False, **quota: Any) -> Instance:
    """Two jobs of a tenant with a quota."""
    now = {"current": current(worker={"n0": 2})} if running else {}
    jobs = [ring_job("j0", tenant="a", **now), ring_job("j1", tenant="a")]
    return instance([node("n0"), node("n1"), node("n2", cpu=64)], jobs, rules={"quotas": {"a": quota}})


def three_workers(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [chosen(columns, 0, workers=2), chosen(columns, 1, workers=1 if allowed else 2)]


for _name, _amount in (("gpu", 3), ("cpu", 7), ("memory", "31Gi")):
    case(
        "quota",
        lambda name=_name, amount=_amount: with_quota(**{name: amount}),  # type: ignore[misc]
        allowed=f"three workers within the {_name} quota",
        forbidden=f"four workers with a {_name} quota for three",
    )(three_workers)


@case(
    "quota",
    lambda: with_quota(running=True, gpu=3),
    allowed="a worker beside two kept ones, of three",
    forbidden="two workers beside two kept ones, of three",
)
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [("kept", (0, 0), 1), chosen(columns, 1, workers=1 if allowed else 2)]


@case(
    "pinned",
    lambda: one_job(current=current(worker={"n0": 1}), pinned=True),
    allowed="a pinned job stays",
    forbidden="a pinned job stops",
)
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [("kept", (0, 0), 1 if allowed else 0)]


def with_budget() -> Instance:
    jobs = [ring_job(f"j{j}", current=current(worker={f"n{j}": 1})) for j in (0, 1)]
    return instance([node("n0"), node("n1")], jobs, rules={"move_budget": 1})


@case("move_budget", with_budget, allowed="one move", forbidden="two moves with a budget of one")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [("kept", (0, 0), 0), ("kept", (1, 0), 1 if allowed else 0)]


@case("move_budget", with_budget, allowed="one job stops", forbidden="one stops, one moves, with a budget of one")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    stops = [("column", (0, k), 0) for k in range(len(columns.jobs[0].columns))]
    other: Fixed = ("kept", (1, 0), 1) if allowed else chosen(columns, 1, workers=2)
    return [("kept", (0, 0), 0), *stops, other]


def cordoned() -> Instance:
    """A job with one worker on a cordoned node, and one without."""
    profiles = [{"cpu": 4}, {"cpu": 1, "slowdown": 1.5}]
    worker = {"gpu": 1, "max": 4, "profiles": profiles}
    jobs = [ring_job("j0", worker=worker, current=current(worker={"n0": 1})), ring_job("j1")]
    return instance([node("n0", cordoned=True), node("n1")], jobs)


@case("cordon", cordoned, allowed="a worker that it has may stay", forbidden="no worker may join")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    choice = chosen(columns, 0, workers=3, worker_profile=0, span=2)
    return [choice, ("workers", (0, 0, 0), 1 if allowed else 2)]


@case("cordon", cordoned, allowed="with its profile", forbidden="with another profile")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    profile = 0 if allowed else 1
    choice = chosen(columns, 0, workers=2, worker_profile=profile, span=2)
    return [choice, ("workers", (0, profile, 0), 1)]


@case("cordon", cordoned, allowed="another job elsewhere", forbidden="another job on a cordoned node")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [chosen(columns, 1, workers=1), ("workers", (1, 0, 1 if allowed else 0), 1)]


@case(
    "hosts",
    lambda: instance([node("n0"), node("n1", labels={"zone": "a"})], [ring_job(node_selector={"zone": "a"})]),
    allowed="a node with the labels",
    forbidden="a node without the labels",
)
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [chosen(columns, 0, workers=1), ("workers", (0, 0, 1 if allowed else 0), 1)]


def two_alike() -> Instance:
    return instance([node("n0"), node("n1")], [ring_job("j0"), ring_job("j1")])


@case("equal_nodes", one_job, allowed="the earlier of equal nodes", forbidden="the later of equal nodes")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    return [chosen(columns, 0, workers=1), ("workers", (0, 0, 0 if allowed else 1), 1)]


@case("equal_jobs", two_alike, allowed="the earlier of equal jobs has more", forbidden="the later of them has more")
def _(columns: ColumnSet, allowed: bool) -> list[Fixed]:
    few, many = (1, 0) if allowed else (0, 1)
    return [chosen(columns, many, workers=2, span=1), chosen(columns, few, workers=1)]


# --- tests ----------------------------------------------------------------------------------------------------------


def status(formulation: str, case: Case) -> str:
    columns = column_set(case.instance())
    model = FORMULATIONS[formulation](columns)
    for variable in case.fixed(columns):
        model.fix(variable)
    return model.status()


def name(case: Case) -> str:
    return f"{case.family}: {case.says}"


@pytest.mark.parametrize("case", CASES, ids=name)
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_what_a_family_allows(formulation: str, case: Case) -> None:
    assert status(formulation, case) in (("optimal", "feasible") if case.allowed else ("infeasible",))


@pytest.mark.parametrize("case", [case for case in CASES if not case.allowed], ids=name)
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_what_a_family_forbids_no_other_forbids(formulation: str, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above would fail without the family; a plan that breaks another row may not come out of it."""
    FORMULATIONS[formulation].leave_out(case.family, monkeypatch)
    assert status(formulation, case) in ("optimal", "feasible", "unknown")


def test_every_family_has_cases() -> None:
    have = {case.family for case in CASES} | {"slots"}
    for owner in (mip_constraints.Constraints, cpsat_constraints.Constraints):
        methods = {name for name in vars(owner) if not name.startswith("_")} - {"add_all"}
        assert methods | BY_BOUNDS.keys() | BY_SYMMETRY == have


def test_nothing_on_a_lost_node() -> None:
    columns = column_set(instance([node("n0", lost="all"), node("n1")], [ring_job()]))
    for formulation in FORMULATIONS.values():
        model = formulation(columns)
        model.fix(chosen(columns, 0, workers=1))
        model.fix(("workers", (0, 0, 0), 1))
        assert model.status() == "infeasible"


def test_slots_tighten_the_relaxation() -> None:
    """Four workers of 3 GPUs on three nodes of 4 GPUs fit as far as sums tell, in parts."""
    worker = {"gpu": 3, "cpu": 2, "memory": "8Gi", "max": 1}
    jobs = [*(ring_job(f"j{j}", worker=worker) for j in range(4)), ring_job("small")]
    columns = column_set(instance([node(f"n{n}", cpu=32 + n) for n in range(3)], jobs))
    for with_slots in (True, False):
        model = ForcedMip(columns)
        if not with_slots:
            slots = [row for row in model.model.problem.constraints() if row.name.startswith("slots")]
            assert slots
            for row in slots:
                row.changeRHS(1e6)
        for j in range(4):
            model.fix(chosen(columns, j, workers=1))
        for variable in model.model.variables.workers.values():
            variable.cat = "Continuous"
        assert (model.status() == "infeasible") == with_slots
