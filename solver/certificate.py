"""A bound that follows from the instance and a list of prices alone, whoever made them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from coplace.formulations.relaxation import PricedRow, Relaxation, all_choices
from coplace.formulations.relaxation.rows import POOLED, Row
from coplace.formulations.scoring import Scoring
from coplace.formulations.speed import SpeedModel
from coplace.instances.cluster import RESOURCES
from coplace.instances.consistency import nearest
from coplace.instances.errors import InputError, Problem
from coplace.instances.instance import Instance


def certify(
    instance: Instance, rows: Sequence[PricedRow], model: SpeedModel | None = None, *, scoring: Scoring | None = None
) -> float:
    """An upper bound on the objective of every plan, by Lagrangian duality (docs/formulation.md), rounded outward.

    Rows that are not listed have price 0. Whatever the prices are, the bound holds; good ones make it low. No solver is
    asked for anything.

    Args:
        instance: the instance.
        rows: the prices.
        model: predicts speeds; by default the forms and tables in the instance are taken as they are.
        scoring: of the instance, if there is one already; *model* is then not looked at.

    Raises:
        InputError: a row is not one of this instance or is listed twice, or a price is negative or no finite number.
    """
    problems = list(_problems(instance, rows))
    if problems:
        raise InputError(problems)
    relaxation = Relaxation(
        all_choices(instance, scoring or Scoring(instance, model)), rows=[each.row for each in rows]
    )
    with np.errstate(over="ignore", invalid="ignore"):
        bound = relaxation.bound(np.array([each.price for each in rows], dtype=float)).bound
    if not math.isfinite(bound):
        raise InputError([Problem("prices", "are so high that no finite bound follows from them")])
    return bound


def gap_to(bound: float, objective: float) -> float:
    """(bound − objective) / max(bound, 1e-9), at least 0."""
    return max(0.0, bound - objective) / max(bound, 1e-9)


def _problems(instance: Instance, rows: Sequence[PricedRow]) -> Iterator[Problem]:
    seen = set()
    for i, (row, price) in enumerate(rows):
        place = f"prices[{i}]"
        if row in seen:
            yield Problem(f"{place}.key", "must stand only once", repr(row.key()))
        seen.add(row)
        if not (isinstance(price, (int, float)) and math.isfinite(price) and price >= 0):
            yield Problem(f"{place}.price", "must be a finite number and not negative", repr(price))
        yield from (replace(problem, place=f"{place}.{problem.place}") for problem in _unknown(instance, row))


def _unknown(instance: Instance, row: Row) -> Iterator[Problem]:
    """What the instance does not have of a row."""
    rules = instance.rules
    if row.kind == "pool":
        if row.resource not in POOLED:
            yield Problem("key.resource", f"must be one of {', '.join(POOLED)}", repr(row.resource))
        elif row.resource == "intensity" and not instance.pressure_levels:
            yield Problem("key.resource", "pressure is off in this instance", repr(row.resource))
        elif row.resource not in ("gpu", "intensity") and row.size != 1:
            yield Problem("key.size", f"must be 1 for {row.resource}", repr(row.size))
        if row.gpu_type is not None and row.gpu_type not in instance.gpu_types:
            mend = nearest(row.gpu_type, instance.gpu_types)
            yield Problem("key.type", "must be a GPU type of the cluster, or null", repr(row.gpu_type), mend)
        levels = len(instance.pressure_levels) or 1
        if not 0 <= row.level < levels:
            yield Problem("key.level", f"must be a level of the ladder, 0 to {levels - 1}", repr(row.level))
        if row.size < 1:
            yield Problem("key.size", "must be at least 1", repr(row.size))
    elif row.kind == "quota":
        quota = rules.quotas.get(str(row.tenant))
        limits = {} if quota is None else dict(zip(RESOURCES, quota.vector, strict=True))
        if limits.get(str(row.resource)) is None:
            yield Problem("key", "must be a tenant and a resource with a quota", repr(row.key()))
    elif rules.move_budget is None:
        yield Problem("row", "there is no move budget in this instance", repr(row.kind))
