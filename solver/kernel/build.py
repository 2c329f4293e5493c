"""From an instance and prices to a board, and from a board to a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coplace.formulations.keep import keep_current
from coplace.formulations.relaxation import Choices, Prices, Relaxation
from coplace.formulations.relaxation.demands import task_demands
from coplace.formulations.scoring import Scoring
from coplace.instances.demand import task_demand
from coplace.instances.plan import PS, WORKER, Allocation, Plan
from coplace.solver.kernel.board import INTENSITY, KEPT, NONE, UNLIMITED, Board, Bools, Floats, Ints
from coplace.solver.kernel.menu import PER_JOB, most_worth
from coplace.solver.kernel.valuation import Valuation, valuation


@dataclass(frozen=True)
class Game:
    """A board, and what its numbers stand for.

    Attributes:
        board: the arrays; no job runs yet.
        scoring: of the instance.
        choices: what the options are taken from; option: the choice of each option.
        kept: what each job runs if it goes on.
    """

    board: Board
    scoring: Scoring
    choices: Choices
    option: Ints
    kept: list[Allocation | None]

    def plan(self) -> Plan:
        """What runs."""
        instance, board = self.scoring.instance, self.board
        names = self.scoring.nodes.names
        allocations: dict[str, Allocation] = {}
        for j, option in enumerate(board.option.tolist()):
            if option == NONE:
                continue
            if option == KEPT:
                kept = self.kept[j]
                assert kept is not None
                allocations[instance.jobs[j].name] = kept
                continue
            workers, servers = {}, {}
            e = int(board.head[j])
            while e >= 0:
                name = names[board.entry_node[e]]
                if board.entry_workers[e]:
                    workers[name] = int(board.entry_workers[e])
                if board.entry_servers[e]:
                    servers[name] = int(board.entry_servers[e])
                e = int(board.entry_next[e])
            choice = self.option[option]
            profiles = {WORKER: int(self.choices.worker_profile[choice])}
            tasks = {WORKER: workers}
            if servers:
                tasks[PS] = servers
                profiles[PS] = int(self.choices.ps_profile[choice])
            profiles = {role: profile for role, profile in profiles.items() if profile}
            allocations[instance.jobs[j].name] = Allocation.model_construct(tasks=tasks, profiles=profiles)
        return Plan.model_construct(allocations=allocations)


def game(scoring: Scoring, relaxation: Relaxation, prices: Floats, guide: Prices, per_job: int = PER_JOB) -> Game:
    """The board on which jobs are offered what *guide*, the bound at *prices*, says is worth most to them."""
    instance, choices, nodes = scoring.instance, relaxation.choices, scoring.nodes
    skip = choices.kept
    option, starts = most_worth(choices.starts, guide.reduced, skip, per_job)
    value = valuation(nodes, relaxation, prices, guide)
    return Game(
        _board(scoring, choices, guide, option, starts, value),
        scoring,
        choices,
        option,
        [keep_current(instance, scoring).get(job.name) for job in instance.jobs],
    )


def _board(scoring: Scoring, choices: Choices, guide: Prices, option: Ints, starts: Ints, value: Valuation) -> Board:
    instance, nodes = scoring.instance, scoring.nodes
    jobs, count, levels = len(instance.jobs), len(nodes.names), nodes.capacities.shape[1]
    demand = [task_demands(choices, r, option) for r in range(4)]
    kept = _kept(scoring, choices, guide)
    most = np.zeros(jobs, dtype=np.int64)  # nodes that a job can be on
    some = np.flatnonzero(np.diff(starts))
    tasks = (choices.workers[option] + choices.servers[option]).astype(np.int64)
    if some.size:
        most[some] = np.maximum.reduceat(np.minimum(tasks, count), starts[some])
    entries = int(np.maximum(most, np.diff(kept["kept_start"])).sum()) + 1
    following = np.arange(1, entries + 1)
    following[-1] = -1
    selector, admitted = _selectors(scoring)
    tenants = {tenant: i for i, tenant in enumerate(instance.rules.quotas)}
    quota = [
        [UNLIMITED if limit is None else limit for limit in quota.vector] for quota in instance.rules.quotas.values()
    ]
    budget, per_node = instance.rules.move_budget, instance.rules.max_tasks_per_node
    counts = choices.jobs.counts_as_move
    counters = [0, counts.sum(), UNLIMITED if budget is None else budget, per_node or UNLIMITED]
    limits = np.array(quota, dtype=np.int64).reshape(-1, 3)
    none, whole = np.full(jobs, -1), np.int64
    return Board(
        free=nodes.free.copy(),
        load=np.zeros(count, whole),
        capacity=nodes.capacities.astype(whole),
        tolerated=np.zeros((count, levels), whole),
        ceiling=np.full(count, levels - 1),
        type=np.where(nodes.open, nodes.gpu_type, -1).astype(whole),
        admitted=admitted,
        option_start=starts,
        option_type=choices.gpu_type[option].astype(whole),
        option_workers=choices.workers[option].astype(whole),
        option_servers=choices.servers[option].astype(whole),
        option_span=choices.span[option].astype(whole),
        option_level=choices.level[option].astype(whole),
        option_value=choices.value[option],
        option_worth=guide.reduced[option],
        worker=np.stack([worker for worker, _ in demand], axis=1).astype(whole),
        server=np.stack([server for _, server in demand], axis=1).astype(whole),
        selector=selector,
        tenant=np.array([tenants.get(job.tenant, -1) for job in instance.jobs], dtype=whole),
        **kept,
        fixed=choices.jobs.must_keep.copy(),
        counts=counts.copy(),
        option=none.copy(),
        level=np.zeros(jobs, whole),
        value=np.zeros(jobs),
        head=none.copy(),
        entry_node=np.zeros(entries, whole),
        entry_job=np.zeros(entries, whole),
        entry_workers=np.zeros(entries, whole),
        entry_servers=np.zeros(entries, whole),
        entry_next=following,
        entry_right=np.full(entries, -1),
        entry_left=np.full(entries, -1),
        node_head=np.full(count, -1),
        counters=np.array(counters, dtype=whole),
        quota=limits,
        quota_used=np.zeros_like(limits),
        **value._asdict(),
        part=np.zeros(count, whole),
    )  # fmt: skip


def _selectors(scoring: Scoring) -> tuple[Ints, Bools]:
    """The selector of each job, and which nodes each admits."""
    nodes = scoring.nodes
    known: dict[int, int] = {}
    rows: list[Bools] = []
    selector = []
    for job in scoring.instance.jobs:
        chosen = nodes.selected(job)
        if id(chosen) not in known:
            known[id(chosen)] = len(rows)
            rows.append(np.isin(np.arange(len(nodes.names)), chosen, assume_unique=True))
        selector.append(known[id(chosen)])
    return np.array(selector, dtype=np.int64), np.array(rows, dtype=bool).reshape(len(rows), len(nodes.names))


def _kept(scoring: Scoring, choices: Choices, guide: Prices) -> dict[str, Any]:
    """What runs now and is kept by keep-current, and what going on is worth, by [job, level]."""
    instance, nodes = scoring.instance, scoring.nodes
    levels = nodes.capacities.shape[1]
    running = keep_current(instance, scoring)
    start, at, workers, servers = [0], [], [], []
    demands = np.zeros((2, len(instance.jobs), 4), dtype=np.int64)
    value = np.full((len(instance.jobs), levels), -np.inf)
    worth = value.copy()
    where = np.flatnonzero(choices.kept)
    value[choices.job[where], choices.level[where]] = choices.value[where]
    worth[choices.job[where], choices.level[where]] = guide.reduced[where]
    for j, job in enumerate(instance.jobs):
        allocation = running.get(job.name)
        if allocation is None:
            value[j] = worth[j] = -np.inf
        else:
            for i, role in enumerate((WORKER, PS)):
                if allocation.count(role):
                    spec = job.role(role)
                    demands[i, j, :INTENSITY] = task_demand(job, role, allocation)
                    demands[i, j, INTENSITY] = spec.intensity if spec else 0
            for name in allocation.nodes:
                at.append(nodes.position[name])
                workers.append(allocation.tasks[WORKER].get(name, 0))
                servers.append(allocation.tasks.get(PS, {}).get(name, 0))
        start.append(len(at))
    return {
        "kept_start": np.array(start, dtype=np.int64),
        "kept_node": np.array(at, dtype=np.int64),
        "kept_workers": np.array(workers, dtype=np.int64),
        "kept_servers": np.array(servers, dtype=np.int64),
        "kept_worker": demands[0],
        "kept_server": demands[1],
        "kept_value": value,
        "kept_worth": worth,
    }
