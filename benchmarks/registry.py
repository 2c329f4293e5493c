"""What a benchmark is, and which there are.

A benchmark is a function that yields figures. It registers itself:

    @benchmark("core", "what it measures")
    def core(smoke: bool) -> Iterable[Figure]: ...

Every module of this package is searched for benchmarks, so a new file is enough.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import benchmarks

Run: TypeAlias = Callable[[bool], Iterable["Figure"]]


@dataclass(slots=True)
class Wishes:
    """What the command line asks of benchmarks beside their name.

    Attributes:
        plots: folder for pictures; None = none.
        most_nodes: largest cluster to run; None = as the benchmark thinks fit.
        count: how often to repeat what is repeated; None = as the benchmark thinks fit.
        seed: for what is drawn at random; None = as the benchmark thinks fit.
        only: of what is drawn the one with this number; None = all.
    """

    plots: Path | None = None
    most_nodes: int | None = None
    count: int | None = None
    seed: int | None = None
    only: int | None = None


WISHES = Wishes()
"""The wishes of this run; benchmarks that draw nothing or have one size leave them alone."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure should be: at most or at least ``value``."""

    op: Literal["<=", ">="]
    value: float

    def met_by(self, value: float) -> bool:
        """Whether *value* is as it should be."""
        return value <= self.value if self.op == "<=" else value >= self.value


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number with its unit, and its target if it has one."""

    name: str
    value: float
    unit: str
    target: Target | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met, None without a target."""
        return None if self.target is None else self.target.met_by(self.value)

    def to_document(self) -> dict[str, Any]:
        """The figure as a benchmark's file holds it."""
        target = None if self.target is None else {"op": self.target.op, "value": self.target.value}
        return {"name": self.name, "value": self.value, "unit": self.unit, "target": target, "met": self.met}


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A named benchmark.

    Attributes:
        name: what the command line calls it.
        summary: what it measures, in one line.
        run: yields the figures; told whether this is a smoke run.
    """

    name: str
    summary: str
    run: Run

    def figures(self, smoke: bool = False) -> Iterator[Figure]:
        """Run, figure by figure. A smoke run takes tiny sizes, for which the targets say nothing: it has none."""
        for figure in self.run(smoke):
            yield replace(figure, target=None) if smoke else figure


_BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(name: str, summary: str) -> Callable[[Run], Run]:
    """Register the decorated function as the benchmark *name*."""

    def register(run: Run) -> Run:
        if name in _BENCHMARKS:
            raise ValueError(f"two benchmarks are called {name!r}")
        _BENCHMARKS[name] = Benchmark(name, summary, run)
        return run

    return register


def registered() -> Mapping[str, Benchmark]:
    """All benchmarks of this package by name, sorted."""
    for module in pkgutil.iter_modules(benchmarks.__path__):
        if module.name != "__main__":
            importlib.import_module(f"{benchmarks.__name__}.{module.name}")
    return dict(sorted(_BENCHMARKS.items()))
