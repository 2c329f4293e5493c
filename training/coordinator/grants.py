"""The tasks that should run on each node."""

from __future__ import annotations

import math
from collections.abc import Mapping

from coplace.training.job import Bounds, Grant, TrainingJob
from coplace.training.nodes.launcher import NodeState

Grants = dict[str, Grant]
"""Tasks by node; nodes without tasks are left out."""


def total(grants: Mapping[str, Grant], role: str) -> int:
    """Tasks of a role on all nodes."""
    return sum(int(getattr(grant, role)) for grant in grants.values())


def spread(
    workers: int, servers: int, nodes: Mapping[str, NodeState], start: Mapping[str, Grant] | None = None
) -> Grants:
    """So many tasks over the nodes, starting from what runs already.

    Surplus tasks go where most CPU is wanted of what there is; new ones come where least is. A worker counts as a
    core, a server as half a one. Ties go by the order of the nodes.
    """
    grants = {node: grant for node, grant in (start or {}).items() if node in nodes}

    def load(node: str) -> float:
        grant = grants.get(node, Grant())
        return (grant.worker + 0.5 * grant.ps) * 1000 / max(nodes[node].cpu, 1)

    order = {node: index for index, node in enumerate(nodes)}
    for role, wanted in (("worker", workers), ("ps", servers)):
        while (have := total(grants, role)) != wanted:
            if have > wanted:
                holders = [node for node in grants if getattr(grants[node], role)]
                node = max(holders, key=lambda each: (load(each), order[each]))
            else:
                node = min(nodes, key=lambda each: (load(each), order[each]))
            grants[node] = changed(grants.get(node, Grant()), role, 1 if have < wanted else -1)
    return {node: grant for node, grant in grants.items() if grant.worker or grant.ps}


def changed(grant: Grant, role: str, by: int) -> Grant:
    """*grant* with more or fewer tasks of a role."""
    return grant.model_copy(update={role: getattr(grant, role) + by})


def ordered(job: TrainingJob, nodes: Mapping[str, NodeState]) -> dict[str, NodeState]:
    """The nodes in the order of the job file, then by name: which of them was there first does not matter."""
    order = {node.name: index for index, node in enumerate(job.nodes or ())}
    return {name: nodes[name] for name in sorted(nodes, key=lambda name: (order.get(name, len(order)), name))}


def initial(job: TrainingJob, nodes: Mapping[str, NodeState]) -> Grants:
    """What the job file asks for."""
    if job.tasks is not None:
        return {node: grant for node, grant in job.tasks.items() if grant.worker or grant.ps}
    return spread(job.workers, job.servers, ordered(job, nodes))


def without(
    grants: Mapping[str, Grant], lost: str, nodes: Mapping[str, NodeState], worker: Bounds, ps: Bounds
) -> Grants:
    """The grants after a node is lost, as far as the others have room for what ran there.

    Servers are put on other nodes in any case, workers where a core each is free, or the job would have too few.
    """
    left = {node: grant for node, grant in grants.items() if node != lost}
    if not nodes:
        return dict(grants)  # nothing is to be had: wait for a node
    room = sum(math.floor(node.cpu / 1000) for node in nodes.values()) - total(left, "worker")
    gone = grants.get(lost, Grant())
    workers = total(left, "worker") + min(gone.worker, max(room, 0))
    workers = max(workers, min(worker.min, total(grants, "worker")), 1)
    servers = max(total(left, "ps") + gone.ps, ps.min)
    return spread(workers, servers, nodes, left)


def grown(grants: Mapping[str, Grant], node: str, nodes: Mapping[str, NodeState], worker: Bounds) -> Grants:
    """The grants after a node has joined: a worker for each of its cores, within the job's bounds."""
    room = min(max(1, nodes[node].cpu // 1000), worker.max - total(grants, "worker"))
    if node in grants or room <= 0:
        return dict(grants)
    return {**grants, node: Grant(worker=room)}
