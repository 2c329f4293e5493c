"""Another job gives way: it moves, shrinks, or ends."""

from __future__ import annotations

from collections.abc import Iterator

from coplace.instances.plan import PS, WORKER, Allocation, Plan
from coplace.solver.explain.case import Case, with_job
from coplace.solver.explain.changes.change import Change
from coplace.solver.explain.start import best_start, start
from coplace.solver.placement import Placement, Shape
from coplace.solver.state import LEAST_GAIN

MOST_TRIES = 4
"""Changes of a kind that are tried."""

MOST_SHRUNK = 10
"""Jobs whose shrinking is looked at, the smallest of those that would do if they ended."""


def stop(case: Case) -> Iterator[Change]:
    """Another job ends or is withdrawn, that which takes least first."""
    for share, i, _ in case.giving_way[:MOST_TRIES]:
        name = case.instance.jobs[i].name
        jobs = tuple(job for job in case.instance.jobs if job.name != name)
        rest = Plan.model_construct(
            allocations={job: planned for job, planned in case.plan.allocations.items() if job != name}
        )
        instance = case.instance.model_copy(update={"jobs": jobs})
        yield Change("stop", f"job {name} ends or is withdrawn", share, instance, rest, cost=case.state.values[i])


def shrink(case: Case) -> Iterator[Change]:
    """Another job gives up some of its workers where they are, the least that does."""
    found = []
    for _, i, _ in case.giving_way[:MOST_SHRUNK]:
        smaller = _least_shrunk(case, i)
        if smaller is not None:
            before, value = case.state.placements[i], case.state.values[i]
            assert before is not None
            now = case.state.total(i, smaller[0].shape)
            freed = tuple(max(0, a - b) for a, b in zip(case.state.total(i, before.shape), now, strict=True))
            found.append((case.share((freed[0], freed[1], freed[2])), i, smaller[0], value - smaller[1]))
    for share, i, placement, cost in sorted(found, key=lambda entry: entry[:2])[:MOST_TRIES]:
        job, workers = case.instance.jobs[i], placement.shape.workers
        had = case.plan[job.name].workers
        asked = job.requested if job.requested is None or job.requested.workers <= workers else None
        limited = job.model_copy(update={"worker": job.worker.model_copy(update={"max": workers}), "requested": asked})
        allocations = case.plan.allocations | {job.name: placement.allocation(case.state.nodes.names)}
        words = f"job {job.name} shrinks from {had} workers to {workers}"
        instance = with_job(case.instance, limited)
        yield Change("shrink", words, share, instance, Plan.model_construct(allocations=allocations), cost=cost)


def _least_shrunk(case: Case, i: int) -> tuple[Placement, float] | None:
    """Job *i* with the most workers beside which the waiting one starts, and its value then; None if there is none."""
    state, job = case.state, case.instance.jobs[i]
    old, _ = state.take(i)
    best = None
    for fullest_first in (False, True):
        low, high = job.worker.min, old.shape.workers - 1
        while low <= high:
            middle = (low + high + 1) // 2
            smaller = _with_fewer(old, middle, fullest_first)
            works = False
            if state.speed(i, smaller.shape, smaller.span, 0) > 0:
                state.put(i, smaller)
                works = start(state, case.packer, case.j) is not None
                value = state.values[i]
                state.take(i)
                if works and (best is None or middle > best[0].shape.workers):
                    best = (smaller, value)
            low, high = (middle + 1, high) if works else (low, middle - 1)
    state.put(i, old)
    return best


def _with_fewer(old: Placement, workers: int, fullest_first: bool) -> Placement:
    """*old* with so many workers: the others leave the nodes with the fewest (or the most) of them."""
    left = dict(old.workers)
    surplus = old.shape.workers - workers
    for n in sorted(left, key=lambda n: (-left[n] if fullest_first else left[n], n)):
        gone = min(surplus, left[n])
        surplus -= gone
        left[n] -= gone
    remaining = {n: count for n, count in left.items() if count}
    return Placement(old.shape._replace(workers=workers), remaining, old.servers)


def move(case: Case) -> Iterator[Change]:
    """Another job moves out of the way, and the objective gains: the search has overlooked that."""
    yield from _moves(case, over_budget=False)


def move_budget(case: Case) -> Iterator[Change]:
    """One more move, with which another job makes room."""
    yield from _moves(case, over_budget=True)


def _moves(case: Case, over_budget: bool) -> Iterator[Change]:
    budget = case.instance.rules.move_budget
    exhausted = budget is not None and case.moved >= budget
    tried = 0
    for share, i, (_, placement) in case.giving_way:
        fresh = case.state.kept_placements[i] is not None and case.state.placements[i] is case.state.kept_placements[i]
        if over_budget != (exhausted and fresh):
            continue
        moved = _moved_away(case, i, placement)
        if moved is None:
            continue
        name, names = case.instance.jobs[i].name, case.state.nodes.names
        there = moved.allocation(names)
        changed = {name: there, case.job.name: placement.allocation(names)}
        plan = Plan.model_construct(allocations=case.plan.allocations | changed)
        words = f"job {name} moves to {_where(there)}"
        instance = case.instance
        if over_budget:
            assert budget is not None
            words = f"a move budget of {budget + 1} instead of {budget}, and {words}"
            instance = case.with_rules(move_budget=budget + 1)
        yield Change("move-budget" if over_budget else "move", words, share, instance, case.plan, plan)
        tried += 1
        if tried == MOST_TRIES:
            return


def _moved_away(case: Case, i: int, placement: Placement) -> Placement | None:
    """Where job *i* would go with the same counts once the waiting one runs at *placement*; None if nothing gains."""
    state, before = case.state, case.state.objective
    old, _ = state.take(i)
    state.put(case.j, placement)
    shapes = [Shape(t, *old.shape[1:]) for t in state.types_of(i)]
    shapes = [shape for shape in shapes if state.speed(i, shape, 1, 0) > 0]
    found = best_start(state, case.packer, i, shapes)
    gains = found is not None and state.objective + found[0].gain > before * (1 + LEAST_GAIN)
    state.take(case.j)
    state.put(i, old)
    return found[1] if found is not None and gains else None


def _where(allocation: Allocation) -> str:
    nodes = sorted({name for role in (WORKER, PS) for name in allocation.tasks.get(role, {})})
    return ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
