"""A job that runs: what it gains, what that costs, and what else could have become of it."""

from __future__ import annotations

import numpy as np

from coplace.formulations.rules import Occupancy, cordon_violations, job_violations
from coplace.formulations.scoring import Scoring
from coplace.instances.plan import Plan
from coplace.solver.check import check
from coplace.solver.explain.report import Alternative, RunningJob
from coplace.solver.explain.start import Start, best_start, start
from coplace.solver.options import OptionTables
from coplace.solver.packing import Packer
from coplace.solver.placement import Placement
from coplace.solver.result import change_of
from coplace.solver.state import LEAST_GAIN, Effect, State

MOST_OPTIONS = 400
"""Shapes that are placed in search of the runner-up, those with the highest value first."""


def running_job(scoring: Scoring, plan: Plan, name: str) -> RunningJob:
    """Explain the job *name*, which *plan* (feasible) runs."""
    instance, j = scoring.instance, scoring.index[name]
    job, allocation = instance.jobs[j], plan[name]
    report = check(instance, plan, scoring)
    outcome = report.evaluation.jobs[name]
    state = State(scoring, plan)
    packer = Packer(state)
    placement, _ = state.take(j)
    gain = state.effect(j, placement).gain
    change = change_of(instance, name, allocation)
    stayed_held = None if job.current is None or change == "kept" else _held(scoring, plan, name)
    stayed = None
    if job.current is not None and change != "kept" and stayed_held is None:
        kept = state.kept_placements[j]
        current = kept if kept is not None else state.placement_of(job.current)
        stayed = _alternative(state, j, current, state.effect(j, current))
    runner_up = None
    if not (job.pinned and job.running) and _may_change(state, report.moved, name):
        runner_up = _runner_up(state, packer, plan, j, placement)
    line = [
        (found[0].gain, -i)
        for i, other in enumerate(state.placements)
        if other is None and i != j and (found := start(state, packer, i)) is not None
    ]
    next_gain, next_job = max(line, default=(0.0, 1))
    return RunningJob(
        job=name,
        change=change,
        allocation=allocation,
        outcome=outcome,
        gain=gain,
        restart_cost=max(0.0, float(scoring.value(j, outcome.speed, kept=True)) - outcome.value),
        pressure_cost=max(0.0, outcome.value - gain),
        stayed=stayed,
        stayed_held=stayed_held,
        runner_up=runner_up,
        gave_way=_gave_way(scoring, plan, name),
        next_in_line=instance.jobs[-next_job].name if line else None,
        next_gain=next_gain,
    )


def _held(scoring: Scoring, plan: Plan, name: str) -> str | None:
    """The first rule that the job would break if it ran on as it did, beside the rest of the plan; None if none."""
    instance = scoring.instance
    job = instance.job[name]
    assert job.current is not None
    own = [*job_violations(scoring, job, job.current), *cordon_violations(scoring, job, job.current)]
    occupancy = Occupancy(scoring)
    for other, allocation in plan.allocations.items():
        if other != name:
            occupancy.add(instance.job[other], allocation)
    occupancy.add(job, job.current)
    broken = own or occupancy.violations()
    return str(broken[0]) if broken else None


def _may_change(state: State, moved: tuple[str, ...], name: str) -> bool:
    """Whether *name* may run otherwise than it does: it is moved or new anyway, or the budget allows it."""
    job = state.instance.job[name]
    budget = state.instance.rules.move_budget
    return budget is None or not job.running or name in moved or len(moved) < budget


def _runner_up(state: State, packer: Packer, plan: Plan, j: int, placement: Placement) -> Alternative | None:
    """The best other way to run job *j* (taken out of the state) that is found: shapes by falling value, other nodes.

    How it ran until now is left out: as it was it would not have to restart, which is told apart. The same counts on
    nodes that are as good say nothing, and come last.
    """
    options = OptionTables(state).options(j)
    order = np.argsort(-options.value, kind="stable")[:MOST_OPTIONS].tolist() if options is not None else ()
    elsewhere = _elsewhere(state, plan, j, placement)
    gain = state.effect(j, placement).gain
    as_good = elsewhere is not None and abs(elsewhere[0].gain - gain) <= LEAST_GAIN * gain
    best = None if as_good else elsewhere
    for option in order:
        assert options is not None
        if best is not None and options.value[option] <= best[0].gain:
            break  # a shape's value is what it gains at most
        found = best_start(state, packer, j, [options.shape(option)])
        if found is None or any(_same(found[1], known) for known in (placement, state.kept_placements[j])):
            continue
        if best is None or found[0].gain > best[0].gain:
            best = found
    best = best or elsewhere
    return None if best is None else _alternative(state, j, best[1], best[0])


def _elsewhere(state: State, plan: Plan, j: int, placement: Placement) -> Start | None:
    """Where job *j* would go with the same counts if the nodes of *placement* took no new tasks."""
    nodes = tuple(
        node.model_copy(update={"cordoned": True}) if n in placement.nodes else node
        for n, node in enumerate(state.instance.nodes)
    )
    scoring = Scoring(state.instance.model_copy(update={"nodes": nodes}), state.scoring.model)
    name = state.instance.jobs[j].name
    rest = Plan.model_construct(allocations={job: a for job, a in plan.allocations.items() if job != name})
    closed = State(scoring, rest)
    found = best_start(closed, Packer(closed), j, [placement.shape])
    if found is None or _same(found[1], state.kept_placements[j]):
        return None
    return state.effect(j, found[1]), found[1]


def _same(a: Placement, b: Placement | None) -> bool:
    return b is not None and (a.shape, a.workers, a.servers) == (b.shape, b.workers, b.servers)


def _alternative(state: State, j: int, placement: Placement, effect: Effect) -> Alternative:
    return Alternative(
        placement.allocation(state.nodes.names),
        state.instance.gpu_types[placement.shape.gpu_type],
        effect.values[j],
        effect.gain,
    )


def _gave_way(scoring: Scoring, plan: Plan, name: str) -> dict[str, str]:
    """Jobs whose tasks were on nodes where *name* now has more than before, and what has become of them."""
    instance = scoring.instance
    current = instance.job[name].current
    mine = plan[name]
    grown = {
        node
        for role, placed in mine.tasks.items()
        for node, count in placed.items()
        if current is None or count > current.tasks.get(role, {}).get(node, 0)
    }
    found: dict[str, str] = {}
    for other in instance.jobs:
        if other.name == name or other.current is None or not grown.intersection(other.current.nodes):
            continue
        planned = plan.get(other.name)
        change = "stopped" if planned is None else change_of(instance, other.name, planned)
        if change != "kept":
            found[other.name] = change
    return found
