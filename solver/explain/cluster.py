"""The cluster: what one more node of each GPU type, more quota, an open node or one more move would be worth."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from coplace.formulations.rules import format_amount
from coplace.formulations.scoring import Scoring
from coplace.formulations.speed import SpeedModel
from coplace.instances.cluster import NO_GPU, RESOURCES
from coplace.instances.instance import Instance
from coplace.instances.plan import Plan
from coplace.solver.check import check
from coplace.solver.explain.prices import ClusterPrices, cluster_prices
from coplace.solver.explain.report import Cluster, WhatIf
from coplace.solver.greedy import greedy
from coplace.solver.solve import solve
from coplace.solver.state import State

METHOD = "prices"
"""Method of the solves that measure."""

QUOTA_STEP = (1, 1000, 1024)
"""By how much a quota is raised: a GPU, a core, a GiB."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    what_if: WhatIf
    instance: Instance


def cluster(scoring: Scoring, plan: Plan, verify: int, time_limit: float, seed: int = 0) -> Cluster:
    """Estimate every what-if by prices, and measure the *verify* best ones by solving, *time_limit* seconds for all."""
    prices = cluster_prices(scoring)
    candidates = sorted(_candidates(scoring, plan, prices), key=lambda c: -c.what_if.estimate)
    objective = check(scoring.instance, plan, scoring).objective
    searched = None
    if verify and candidates:
        deadline = time.monotonic() + time_limit
        solves = min(verify, len(candidates)) + 1
        searched, base = _searched(scoring.instance, plan, time_limit / solves, seed, scoring.model)
        for number, candidate in enumerate(candidates[:verify]):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            found, _ = _searched(candidate.instance, base, left / (solves - 1 - number), seed, scoring.model)
            candidates[number] = replace(candidate, what_if=replace(candidate.what_if, measured=found - searched))
    return Cluster(objective, prices.bound, searched, tuple(candidate.what_if for candidate in candidates))


def _candidates(scoring: Scoring, plan: Plan, prices: ClusterPrices) -> Iterator[_Candidate]:
    instance = scoring.instance
    yield from _nodes(instance, prices)
    yield from _quotas(instance, prices)
    yield from _cordons(scoring, plan, prices)
    budget = instance.rules.move_budget
    if budget is not None:
        rules = instance.rules.model_copy(update={"move_budget": budget + 1})
        what_if = WhatIf("move-budget", f"a move budget of {budget + 1} instead of {budget}", prices.move)
        yield _Candidate(what_if, instance.model_copy(update={"rules": rules}))


def _nodes(instance: Instance, prices: ClusterPrices) -> Iterator[_Candidate]:
    """Of each GPU type one more node, like that with the highest price of those that are as they came."""
    for gpu_type in instance.gpu_types:
        of_type = [node for node in instance.nodes if node.gpu_type == gpu_type and node.available]
        whole = [node for node in of_type if node.free == node.capacity] or of_type
        if not whole:
            continue
        like = max(whole, key=lambda node: prices.nodes[node.name])
        name = next(f"new-{i}" for i in range(len(instance.nodes) + 1) if f"new-{i}" not in instance.node)
        new = like.model_copy(update={"name": name, "cordoned": False})
        kind = "node without GPUs" if gpu_type == NO_GPU else f"{gpu_type} node"
        what_if = WhatIf("node", f"one more {kind} like {like.name}", prices.nodes[like.name])
        yield _Candidate(what_if, instance.model_copy(update={"nodes": (*instance.nodes, new)}))


def _quotas(instance: Instance, prices: ClusterPrices) -> Iterator[_Candidate]:
    for tenant, quota in instance.rules.quotas.items():
        for resource, limit, step in zip(RESOURCES, quota.vector, QUOTA_STEP, strict=True):
            if limit is None:
                continue
            raised = instance.rules.quotas | {tenant: quota.model_copy(update={resource: limit + step})}
            rules = instance.rules.model_copy(update={"quotas": raised})
            what_if = WhatIf(
                "quota",
                f"{format_amount(resource, step)} more for tenant {tenant}",
                step * prices.quotas[tenant, resource],
            )
            yield _Candidate(what_if, instance.model_copy(update={"rules": rules}))


def _cordons(scoring: Scoring, plan: Plan, prices: ClusterPrices) -> Iterator[_Candidate]:
    """Each cordoned node: the price of one like it, as far as the plan leaves its GPUs (or its CPU) idle.

    The relaxation does not know cordons, so that its own bound would not rise at all.
    """
    instance = scoring.instance
    if not any(node.cordoned for node in instance.nodes):
        return
    left = State(scoring, plan).free
    for n, node in enumerate(instance.nodes):
        if not node.cordoned or not node.available:
            continue
        r = 0 if node.free[0] else 1
        idle = float(left[n, r]) / max(1, node.free[r])
        nodes = (*instance.nodes[:n], node.model_copy(update={"cordoned": False}), *instance.nodes[n + 1 :])
        what_if = WhatIf("uncordon", f"uncordon node {node.name}", prices.nodes[node.name] * idle)
        yield _Candidate(what_if, instance.model_copy(update={"nodes": nodes}))


def _searched(
    instance: Instance, start: Plan, time_limit: float, seed: int, model: SpeedModel | None
) -> tuple[float, Plan]:
    """The best plan found and its objective: *start*, that one grown greedily, or one from a new solve, grown too."""
    deadline = time.monotonic() + time_limit
    scoring = Scoring(instance, model)
    plans = [start, solve(instance, method=METHOD, time_limit=time_limit, seed=seed, model=model).plan]
    plans += [_grown(scoring, plan, deadline) for plan in plans if check(instance, plan, scoring).feasible]
    reports = [(check(instance, plan, scoring), plan) for plan in plans]
    return max(((report.objective, plan) for report, plan in reports if report.feasible), key=lambda found: found[0])


def _grown(scoring: Scoring, plan: Plan, deadline: float) -> Plan:
    """*plan* improved by the greedy method, within what it leaves of the move budget."""
    state = State(scoring, plan)
    if state.moves_left is not None:
        state.moves_left = max(0, state.moves_left - len(check(scoring.instance, plan, scoring).moved))
    greedy(state, lambda: time.monotonic() > deadline)
    return state.plan()
