"""Random chains of rounds: an instance with rules and damage, and what becomes of it while its plan runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coplace.instances import Instance, Job, Node, Plan

MOST_NODES, MOST_JOBS = 40, 80
LARGE_NODES, LARGE_JOBS = 200, 300

ZONES = ("a", "b")


def first_round(draw: random.Random) -> Instance:
    """A tiny instance with every rule, one with more tasks, or a generated one to which rules are added."""
    kind = draw.random()
    if kind < 0.3:
        tiny = import_module("tests.oracle.tiny")
        make = tiny.tiny_instance if kind < 0.15 else tiny.wide_instance
        found: Instance = make(draw.randrange(10**6))
        return found
    return _ruled(draw, _generated(draw, kind > 0.98))


def next_round(draw: random.Random, instance: Instance, plan: Plan) -> Instance:
    """What *plan* has become: jobs that end, come and change, nodes that fail, join and are cordoned, other rules."""
    from coplace.instances import InputError

    jobs = [_later(draw, job, plan) for job in instance.jobs if draw.random() > 0.1]
    runs = {"jobs": tuple(jobs)}
    changed = _remade(instance, **runs)
    steps: Sequence[Callable[[random.Random, Instance], Instance]] = (
        _with_new_jobs, _with_other_nodes, _with_damage, _with_other_rules, _with_other_goal,
    )  # fmt: skip
    for step in steps:
        if draw.random() < 0.6:
            try:
                changed = step(draw, changed)
            except InputError:
                continue  # what runs does not allow that
    return changed


def _remade(instance: Instance, **changes: Any) -> Instance:
    """The instance with other parts, checked."""
    from coplace.instances import Instance

    names = ("name", "nodes", "jobs", "rules", "goal", "pressure_levels", "horizon_seconds")
    return Instance(**{name: getattr(instance, name) for name in names} | changes)


# --- the first round ------------------------------------------------------------------------------------------------


def _generated(draw: random.Random, large: bool) -> Instance:
    from coplace.instances.generation import FAMILIES, generate

    nodes = LARGE_NODES if large else draw.randint(1, MOST_NODES)
    jobs = LARGE_JOBS if large else draw.randint(0, MOST_JOBS)
    instance = generate(
        draw.choice(sorted(FAMILIES)),
        nodes=nodes,
        jobs=max(jobs, 1),
        seed=draw.randrange(10**6),
        pressure=draw.random() < 0.75,
        moves=draw.random() < 0.75,
    )
    return instance if jobs else _remade(instance, jobs=())


def _ruled(draw: random.Random, instance: Instance) -> Instance:
    nodes = tuple(node.model_copy(update={"labels": {"zone": draw.choice(ZONES)}}) for node in instance.nodes)
    picky = draw.choice((0.0, 0.0, 0.2))
    jobs = tuple(_with_wishes(draw, job, picky) for job in instance.jobs)
    changed = _remade(instance, nodes=nodes, jobs=jobs, goal=_goal(draw))
    changed = _with_other_rules(draw, changed)
    return _with_damage(draw, changed) if draw.random() < 0.5 else changed


def _with_wishes(draw: random.Random, job: Job, picky: float) -> Job:
    changes: dict[str, Any] = {"pinned": job.running and draw.random() < 0.15}
    if draw.random() < picky:
        changes["node_selector"] = {"zone": draw.choice(ZONES)}
    if draw.random() < 0.3:
        changes["deadline_seconds"] = draw.choice((-50.0, 0.0, 600.0, 7200.0))
    if draw.random() < 0.1:
        changes["remaining"] = None
    if draw.random() < 0.3:
        changes["weight"] = draw.choice((0.1, 0.5, 2.0, 10.0))
    return job.model_copy(update=changes)


# --- the rounds that follow -----------------------------------------------------------------------------------------


def _later(draw: random.Random, job: Job, plan: Plan) -> Job:
    """The job after it has run, or waited, for a while."""
    planned = plan.get(job.name)
    moved = planned is not None and job.current is not None and not planned.same_as(job.current)
    changes: dict[str, Any] = {
        "current": planned,
        "pinned": planned is not None and draw.random() < 0.1,
        "age_seconds": job.age_seconds + draw.choice((60.0, 900.0)),
        "restarts": job.restarts + moved,
    }
    if planned is not None and job.remaining is not None:
        changes["remaining"] = max(1.0, job.remaining * draw.uniform(0.3, 1.0))
        changes["attained_gpu_seconds"] = job.attained_gpu_seconds + 60.0 * planned.workers
    return job.model_copy(update=changes)


def _with_new_jobs(draw: random.Random, instance: Instance) -> Instance:
    """Copies of jobs that are there, under other names; some of them twins."""
    if not instance.jobs:
        return instance
    known, jobs = set(instance.job), list(instance.jobs)
    for _ in range(draw.randint(1, 1 + len(instance.jobs) // 5)):
        job = draw.choice(instance.jobs)
        name = f"new-{draw.randrange(10**9)}"
        if name not in known:
            known.add(name)
            fresh = {"name": name, "current": None, "pinned": False, "restarts": 0, "age_seconds": 0.0}
            jobs.append(job.model_copy(update=fresh | {"weight": draw.choice((job.weight, 1.0, 3.0))}))
    draw.shuffle(jobs)
    return _remade(instance, jobs=tuple(jobs))


def _with_other_nodes(draw: random.Random, instance: Instance) -> Instance:
    """One node more or, if nothing runs on it, one less."""
    used = {name for job in instance.jobs if job.current is not None for name in job.current.nodes}
    idle = [node for node in instance.nodes if node.name not in used]
    if idle and len(instance.nodes) > 1 and draw.random() < 0.5:
        gone = draw.choice(idle).name
        return _remade(instance, nodes=tuple(node for node in instance.nodes if node.name != gone))
    joined = draw.choice(instance.nodes).model_copy(
        update={"name": f"joined-{draw.randrange(10**9)}", "cordoned": False}
    )
    return _remade(instance, nodes=(*instance.nodes, joined))


def _with_damage(draw: random.Random, instance: Instance) -> Instance:
    share = draw.choice((0.02, 0.1, 0.1, 0.3, 1.0))
    nodes = tuple(_damaged(draw, node) if draw.random() < share else node for node in instance.nodes)
    return _remade(instance, nodes=nodes)


def _damaged(draw: random.Random, node: Node) -> Node:
    from coplace.instances import Resources

    kind = draw.choice(("cordoned", "cordoned", "lost", "part", "well", "well"))
    if kind == "cordoned":
        return node.model_copy(update={"cordoned": True})
    if kind == "lost":
        return node.model_copy(update={"lost": "all"})
    if kind == "part":
        lost = Resources(gpu=draw.randint(0, node.gpu), cpu=draw.randint(0, node.cpu), memory=node.memory // 3)
        return node.model_copy(update={"lost": lost})
    return node.model_copy(update={"cordoned": False, "lost": Resources()})


def _with_other_rules(draw: random.Random, instance: Instance) -> Instance:
    from coplace.instances import Quota, SiteRules

    quotas = {}
    for tenant in sorted({job.tenant for job in instance.jobs}):
        if draw.random() < 0.25:
            gpu, cpu, memory = (sum(node.capacity[r] for node in instance.nodes) for r in range(3))
            part = draw.choice((0.0, 0.1, 0.3, 0.7))
            limits = {"gpu": int(gpu * part), "cpu": int(cpu * part), "memory": int(memory * part)}
            names = draw.sample(sorted(limits), draw.randint(1, 3))
            quotas[tenant] = Quota(**{name: limits[name] for name in names})
    rules = SiteRules(
        quotas=quotas,
        max_tasks_per_node=draw.choice((None, None, None, 1, 2, 5)),
        move_budget=draw.choice((None, None, 0, 1, 3, 10)),
    )
    return _remade(instance, rules=rules)


def _with_other_goal(draw: random.Random, instance: Instance) -> Instance:
    levels = instance.pressure_levels
    if draw.random() < 0.3 and levels:
        levels = draw.choice(((0.25, 0.5, 0.75, 1.0), (0.4, 0.9), (1.0,), (0.1, 0.3, 0.6, 1.2), ()))
    horizon = draw.choice((None, 300.0, 3600.0))
    return _remade(instance, goal=_goal(draw), pressure_levels=levels, horizon_seconds=horizon)


def _goal(draw: random.Random) -> str:
    from coplace.instances import GOALS

    return draw.choice(GOALS)
