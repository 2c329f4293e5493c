"""What prices say more of anything would be worth. The only place of explanations that knows how prices are found."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from coplace.formulations.columns import column_set
from coplace.formulations.relaxation import Relaxation, Row
from coplace.formulations.scoring import Scoring
from coplace.instances.cluster import RESOURCES


@dataclass(frozen=True, slots=True)
class ClusterPrices:
    """By how much the bound rises with one more of something, at these prices, in the unit of the objective.

    Attributes:
        bound: no plan has a larger objective.
        nodes: by node of the instance, of one more that is equal to it.
        quotas: by tenant and resource that has a limit, of one GPU, milli-core or MiB more.
        move: of one more move; 0 without a budget.
    """

    bound: float
    nodes: dict[str, float]
    quotas: dict[tuple[str, str], float]
    move: float


def cluster_prices(scoring: Scoring) -> ClusterPrices:
    """Prices of the linear relaxation of the instance.

    At fixed prices the bound is linear in what there is (docs/formulation.md), so that more of it raises the best bound
    by no more than its price, as long as the jobs have the same choices; in a larger cluster they may have larger ones.
    """
    instance = scoring.instance
    limited = [
        (tenant, resource)
        for tenant, quota in instance.rules.quotas.items()
        for resource, limit in zip(RESOURCES, quota.vector, strict=True)
        if limit is not None
    ]
    if not instance.nodes or not instance.jobs:
        return ClusterPrices(0.0, {node.name: 0.0 for node in instance.nodes}, dict.fromkeys(limited, 0.0), 0.0)
    relaxation = Relaxation(column_set(instance, scoring))
    with _standard_output_kept():
        prices = np.maximum(relaxation.best_prices(), 0.0)
    worth = relaxation.node_worth(prices)
    nodes = {node.name: float(each) for node, each in zip(instance.nodes, worth, strict=True)}
    of_row = dict(zip(relaxation.rows, prices.tolist(), strict=True))
    quotas = {(tenant, resource): of_row[Row("quota", resource, tenant=tenant)] for tenant, resource in limited}
    return ClusterPrices(relaxation.bound(prices).bound, nodes, quotas, of_row.get(Row("moves"), 0.0))


@contextlib.contextmanager
def _standard_output_kept() -> Iterator[None]:
    """Drop what is written to file descriptor 1: HiGHS greets there as soon as it is made, whatever it is told."""
    try:
        sys.stdout.flush()
        kept = os.dup(1)
    except (OSError, ValueError, AttributeError):  # there is no standard output to keep
        yield
        return
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
