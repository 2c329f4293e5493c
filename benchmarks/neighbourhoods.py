"""How much exact neighbourhoods add to the plan that prices give, second by second."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from benchmarks.registry import Figure, Target, benchmark

if TYPE_CHECKING:
    from coplace.instances import Instance
    from coplace.solver.neighbourhoods.stop import Progress
    from coplace.solver.search import Search

SEEDS = (1, 2, 3)
START_SECONDS = 5.0
"""Seconds of wall time for the plan of prices."""

MARKS = (5.0, 10.0, 20.0)
"""Seconds of wall time at which the gap is noted."""


@benchmark("neighbourhoods", "gaps after 5, 10 and 20 s of exact neighbourhoods, from the plan of 5 s of prices")
def neighbourhoods(smoke: bool) -> Iterable[Figure]:
    """Relative gaps to the bound by prices of generated ``ps-mix`` clusters with pressure and running jobs."""
    from coplace.instances.generation import generate
    from coplace.solver.kernel.warm_up import warm_up

    if not smoke:
        warm_up()  # so that compiling is not part of the first plan
    nodes, jobs = (3, 5) if smoke else (64, 100)
    for seed in SEEDS[:1] if smoke else SEEDS:
        instance = generate("ps-mix", nodes=nodes, jobs=jobs, seed=seed)
        yield from _improved(f"{nodes} nodes × {jobs} jobs, seed {seed}", instance, (0.5,) if smoke else MARKS)


def _improved(name: str, instance: Instance, marks: tuple[float, ...]) -> Iterable[Figure]:
    from coplace.formulations.columns import column_set
    from coplace.formulations.relaxation import Relaxation
    from coplace.formulations.scoring import Scoring
    from coplace.solver import solve
    from coplace.solver.neighbourhoods import Options, improve
    from coplace.solver.neighbourhoods.stop import deadline
    from coplace.solver.search import Search

    start = solve(instance, method="prices", time_limit=min(START_SECONDS, marks[-1]))
    scoring = Scoring(instance)
    columns = column_set(instance, scoring)
    relaxation = Relaxation(columns)
    prices = relaxation.bound(relaxation.best_prices())
    begin = time.monotonic()
    search = Search(scoring, deadline=begin + marks[-1], gap=0.0, seed=1, interrupted=lambda: False)
    search.offer(start.plan)
    for bound in (prices.bound, start.bound):
        if bound is not None:
            search.bounded(bound)
    yield Figure(f"{name}: gap of prices", _gap(search), "")
    gaps: list[float] = []

    def noting(progress: Progress) -> bool:
        for mark in marks[len(gaps) :]:
            if time.monotonic() - begin >= mark:
                gaps.append(_gap(search))
        return deadline(progress)

    improve(
        search,
        columns=columns,
        worth=lambda j: prices.surplus[j] - prices.shortfall[j],
        options=Options(stop=noting),
    )
    gaps += [_gap(search)] * (len(marks) - len(gaps))
    for mark, gap in zip(marks, gaps, strict=True):
        target = Target("<=", 5e-3) if mark == MARKS[-1] else None
        yield Figure(f"{name}: gap after {mark:g} s", gap, "", target)


def _gap(search: Search) -> float:
    gap = search.relative_gap()
    return 1.0 if gap is None else gap
