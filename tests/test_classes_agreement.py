"""Class-level models of both backends agree, never promise less than brute force finds, and are exact node by node."""

from __future__ import annotations

from functools import cache

import pytest

from coplace.formulations.classes import Places, node_classes
from coplace.formulations.columns import ColumnSet, column_set
from coplace.formulations.cpsat.by_class import ClassCpsat
from coplace.formulations.mip.by_class import ClassMip
from coplace.instances import Instance, Plan
from tests.oracle.tiny import best_of_tiny, tiny_instance

CHUNK = 50
CHUNKS = range(6)
LIMIT = 60.0


@cache
def tiny(seed: int) -> tuple[Instance, ColumnSet, float, Plan]:
    """An instance, its columns, the highest objective of all plans and a plan that has it."""
    instance = tiny_instance(seed)
    return instance, column_set(instance), *best_of_tiny(seed)


def optimum(places: Places, hint: Plan | None = None) -> float:
    """The optimum that both backends prove."""
    by_mip = ClassMip(places).solve(time_limit=LIMIT, gap=0, hint=hint)
    by_cpsat = ClassCpsat(places).solve(time_limit=LIMIT, gap=0, workers=1, hint=hint)
    name = places.instance.name
    for found in (by_mip, by_cpsat):
        assert found.status == "optimal", name
        assert found.objective is not None, name
        assert found.bound == pytest.approx(found.objective, rel=1e-6, abs=1e-9), name
    assert by_cpsat.objective == pytest.approx(by_mip.objective, rel=1e-6, abs=1e-9), name
    assert by_mip.objective is not None
    return by_mip.objective


def merged(places: Places) -> Places:
    """The same with one class for each GPU type."""
    return Places(places.columns, node_classes(places.instance, most=0))


def alone(columns: ColumnSet) -> Places:
    """Every node a class of its own."""
    everything = frozenset(range(len(columns.instance.nodes)))
    return Places(columns, node_classes(columns.instance, alone=everything, most=10**6))


@pytest.mark.parametrize("chunk", CHUNKS)
def test_with_a_class_for_each_node_the_optimum_is_that_of_brute_force(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        instance, columns, best, plan = tiny(seed)
        hint = plan if seed % 2 else None
        assert optimum(alone(columns), hint) == pytest.approx(best, rel=1e-6, abs=1e-9), instance.name


@pytest.mark.parametrize("chunk", CHUNKS)
def test_classes_never_promise_less_than_brute_force_finds(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        instance, columns, best, _ = tiny(seed)
        places = Places(columns)
        # With each node a class of its own the test above has the optimum, and it is that of brute force.
        different = {each.classes: each for each in (places, merged(places)) if each.classes != alone(columns).classes}
        for classes in different.values():
            assert optimum(classes) >= best * (1 - 1e-6) - 1e-9, instance.name
