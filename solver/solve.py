"""One round: the ladder from keep-current upwards, each rung only replacing a plan by a better one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from coplace.formulations.keep import displaced
from coplace.formulations.scoring import Scoring
from coplace.formulations.speed import SpeedModel
from coplace.instances.consistency import nearest
from coplace.instances.errors import InputError, Problem
from coplace.instances.instance import Instance
from coplace.instances.writing import instance_sha256
from coplace.solver.certificate import gap_to
from coplace.solver.memory import RoundMemory
from coplace.solver.methods import METHODS
from coplace.solver.pending import pending_jobs
from coplace.solver.result import Result
from coplace.solver.search import Search

if TYPE_CHECKING:
    from coplace.solver.exact.worker import Worker


BACKENDS = ("highs", "cbc", "scip", "gurobi", "cplex")
"""MIP backends by name; which of them are installed, coplace.formulations.mip.available_backends tells."""

REPLAY_SECONDS = 3600.0
"""Wall time after which even a replay ends; deterministic limits end it long before."""


def solve(
    instance: Instance,
    *,
    method: str = "auto",
    time_limit: float = 10.0,
    gap: float = 1e-4,
    seed: int = 0,
    backend: str = "highs",
    replay: bool = False,
    worker: Worker | None = None,
    memory_mib: int | None = None,
    model: SpeedModel | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    progress: Callable[[str, float], None] = lambda rung, objective: None,
    memory: RoundMemory | None = None,
) -> Result:
    """Decide what the cluster runs: counts, profiles and nodes of every job.

    Args:
        instance: nodes, jobs, rules and goal of the round.
        method: one of :data:`~coplace.solver.methods.METHODS`.
        time_limit: seconds of wall time; the best plan so far is returned when they are over.
        gap: relative gap at which a method that proves bounds may stop.
        seed: for the solvers.
        backend: MIP backend of the method ``mip``: highs, cbc, scip, gurobi or cplex.
        replay: the same plan on every run: one thread, and limits in deterministic time instead of *time_limit*.
        worker: a solver process to use again; by default one is started where needed and ended with the solve.
        memory_mib: memory limit of such a process; by default three quarters of the machine's, 0 = none.
        model: predicts speeds; by default the forms and tables in the instance are taken as they are.
        interrupted: asked often; returning True ends the solve with the best plan so far.
        progress: told the rung and the objective of the best plan after each rung.
        memory: what an earlier round has left, to be used and renewed; see :class:`~coplace.solver.RoundSolver`.

    Returns:
        A :class:`Result` whose plan has passed :func:`coplace.solver.check`.

    Raises:
        InputError: unknown method or backend, or a limit that is no positive number.
        TypeError: *instance* is no :class:`Instance`.
    """
    if not isinstance(instance, Instance):
        raise TypeError(
            f"solve needs an Instance, not a {type(instance).__name__}; parse_instance makes one of a mapping"
        )
    if method not in METHODS:
        raise InputError([Problem("method", "must be one of the methods", repr(method), nearest(method, METHODS))])
    if backend not in BACKENDS:
        raise InputError(
            [Problem("backend", "must be one of the MIP backends", repr(backend), nearest(backend, BACKENDS))]
        )
    if not time_limit > 0:
        raise InputError([Problem("time_limit", "must be above 0 seconds", str(time_limit))])
    if not gap >= 0:
        raise InputError([Problem("gap", "must not be negative", str(gap))])
    started = time.monotonic()
    scoring = Scoring(instance, model, None if memory is None else memory.jobs)
    search = Search(
        scoring,
        deadline=started + (REPLAY_SECONDS if replay else time_limit),
        gap=gap,
        seed=seed,
        interrupted=interrupted,
        backend=backend,
        replay=replay,
        worker=worker,
        memory_mib=memory_mib,
        memory=memory,
    )
    for name, rung in METHODS[method].rungs:
        if search.report is not None and search.stopped():
            search.cut_short()
            break
        search.rung = name
        rung(search)
        assert search.report is not None
        progress(name, search.report.objective)
    return _result(search, method, started)


def _result(search: Search, method: str, started: float) -> Result:
    assert search.report is not None
    evaluation = search.report.evaluation
    return Result(
        status="optimal" if search.proven() else "feasible",
        reason="gap" if search.proven() else search.reason,
        objective=evaluation.objective,
        bound=search.bound,
        gap=search.relative_gap(),
        certified_bound=search.certified_bound,
        certified_gap=None if search.certified_bound is None else gap_to(search.certified_bound, evaluation.objective),
        prices=search.prices,
        detail=search.detail,
        method=method,
        found_by=search.found_by,
        seed=search.seed,
        plan=search.plan,
        jobs=evaluation.jobs,
        pending=pending_jobs(search.scoring, search.plan, left_out=_left_out(search, method)),
        moved=search.report.moved,
        displaced=tuple(sorted(displaced(search.instance, search.scoring))),
        instance_sha256=instance_sha256(search.instance),
        wall_seconds=time.monotonic() - started,
    )


def _left_out(search: Search, method: str) -> str:
    """Why a job that would fit waits all the same."""
    if search.reason != "finished":
        return "it would fit, and was not reached when the search stopped"
    if method == "keep-current":
        return "it would fit, but keep-current starts no jobs"
    return f"it would fit, but {method} left it out"
