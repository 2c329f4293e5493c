"""How long equal nodes take to swap roles, in networkx and in OR-Tools, and how many running jobs that keeps."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, get_args

from benchmarks.registry import Figure, Target, benchmark

if TYPE_CHECKING:
    from coplace.instances import Instance, Plan

SEED = 1
PAIRS_PER_NODE = 4
"""Nodes that each node could become, where many jobs that run together now are to run apart."""


@benchmark("relabel", "swaps of equal nodes, 64 to 10,000 nodes: jobs kept and time; networkx against OR-Tools")
def relabel(smoke: bool) -> Iterable[Figure]:
    """Seconds of wall time: of what runs in a ``ps-mix`` cluster, shuffled, and of random weights."""
    sizes = [16] if smoke else [64, 200, 2_000, 10_000]
    _load()
    for nodes in sizes:
        yield from _put_back(nodes)
    for nodes in sizes:
        yield from _random(nodes)


def _load() -> None:
    """Import both libraries, so that neither is charged for it."""
    from coplace.solver.assignment import Library, assign

    for library in get_args(Library):
        assign({(0, 0): 1}, library)


def _put_back(nodes: int) -> Iterable[Figure]:
    """Nodes that are alike are shuffled; all jobs could be kept."""
    from coplace.formulations.keep import keep_current
    from coplace.formulations.scoring import Scoring
    from coplace.instances.generation import generate
    from coplace.solver import check
    from coplace.solver.relabel import relabel

    instance = generate("ps-mix", nodes=nodes, jobs=2 * nodes, seed=SEED)
    scoring = Scoring(instance)
    plan = _shuffled(instance, keep_current(instance, scoring))
    name = f"{nodes:,} nodes shuffled"
    yield Figure(f"{name}: jobs moved", float(len(check(instance, plan, scoring).moved)), "")
    begin = time.perf_counter()
    swapped = relabel(scoring, plan)
    yield Figure(f"{name}: time to swap them back", time.perf_counter() - begin, "s")
    moved = len(check(instance, swapped, scoring).moved)
    yield Figure(f"{name}: jobs moved after that", float(moved), "", Target("<=", 0.0))


def _shuffled(instance: Instance, plan: Plan) -> Plan:
    from coplace.instances import Plan
    from coplace.instances.plan import Allocation

    rng = random.Random(SEED)
    alike: dict[object, list[str]] = {}
    for node in instance.nodes:
        alike.setdefault((node.gpu_type, node.free, node.pressure_capacity), []).append(node.name)
    becomes: dict[str, str] = {}
    for names in alike.values():
        becomes |= dict(zip(names, rng.sample(names, len(names)), strict=True))
    allocations = {}
    for job, allocation in plan.allocations.items():
        tasks = {
            role: {becomes[name]: count for name, count in placed.items()} for role, placed in allocation.tasks.items()
        }
        allocations[job] = Allocation(tasks=tasks, profiles=allocation.profiles)
    return Plan(allocations=allocations)


def _random(nodes: int) -> Iterable[Figure]:
    """Assignment alone, at its hardest: one connected part."""
    from coplace.solver.assignment import Library, assign

    rng = random.Random(SEED)
    weights = {
        (rng.randrange(nodes), rng.randrange(nodes)): rng.randint(1, 2**30) for _ in range(PAIRS_PER_NODE * nodes)
    }
    totals = []
    for library in get_args(Library):
        begin = time.perf_counter()
        matched = assign(weights, library)
        yield Figure(f"{nodes:,} nodes, {len(weights):,} pairs: {library}", time.perf_counter() - begin, "s")
        totals.append(sum(weights[pair] for pair in matched.items()))
    yield Figure(
        f"{nodes:,} nodes: difference of their totals", float(max(totals) - min(totals)), "", Target("<=", 0.0)
    )
