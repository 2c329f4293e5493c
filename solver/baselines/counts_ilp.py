"""One configuration for each job under GPU counts: the integer program of Sia, in HiGHS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

GAP = 1e-4
"""Relative gap at which the program may stop."""


@dataclass(frozen=True, slots=True)
class CountsProgram:
    """What is chosen from; arrays by [configuration], those of a job next to each other.

    Attributes:
        job: position of the job.
        gpu_type: index of the GPU type.
        gpus: GPUs of all workers.
        worth: what choosing it adds to the objective.
        stays: whether a running job goes on as it is.
        must: whether the job has to run, by [job].
        supply: GPUs by [GPU type].
        most_moves: running jobs that may change; None without a limit.
    """

    job: NDArray[np.int64]
    gpu_type: NDArray[np.int64]
    gpus: NDArray[np.int64]
    worth: NDArray[np.float64]
    stays: NDArray[np.bool_]
    must: NDArray[np.bool_]
    supply: NDArray[np.int64]
    most_moves: int | None = None


def choose(program: CountsProgram, time_limit: float) -> NDArray[np.int64]:
    """The chosen configurations, ascending: at most one a job, Σ GPUs ≤ supply of each type, Σ worth the largest.

    The best found in *time_limit* seconds, to a gap of :data:`GAP`; if none is, those that stay.
    """
    import highspy

    count, jobs, types = len(program.job), len(program.must), len(program.supply)
    if not count:
        return np.zeros(0, dtype=np.int64)
    infinity = highspy.kHighsInf
    each, staying = np.arange(count), np.flatnonzero(program.stays)
    parts = [(program.job, each, np.ones(count)), (jobs + program.gpu_type, each, program.gpus)]
    lower = [np.where(program.must, 1.0, -infinity), np.full(types, -infinity)]
    upper = [np.ones(jobs), program.supply.astype(float)]
    if program.most_moves is not None:  # of the jobs that could stay at least so many do
        parts.append((np.full(len(staying), jobs + types), staying, np.ones(len(staying))))
        lower.append(np.array([float(len(staying) - program.most_moves)]))
        upper.append(np.array([infinity]))
    row, column, value = (np.concatenate(entries) for entries in zip(*parts, strict=True))
    order = np.lexsort((column, row))
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = count, sum(len(bounds) for bounds in upper)
    model.col_cost_ = -program.worth
    model.col_lower_, model.col_upper_ = np.zeros(count), np.ones(count)
    model.row_lower_, model.row_upper_ = np.concatenate(lower), np.concatenate(upper)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.searchsorted(row[order], np.arange(model.num_row_ + 1)).astype(np.int32)
    model.a_matrix_.index_ = column[order].astype(np.int32)
    model.a_matrix_.value_ = value[order].astype(float)
    model.integrality_ = [highspy.HighsVarType.kInteger] * count
    # HiGHS's scheduler lives as long as the process and refuses any other number of threads than its first.
    highspy.Highs.resetGlobalScheduler(True)
    solver = highspy.Highs()
    options = {"output_flag": False, "time_limit": time_limit, "mip_rel_gap": GAP, "threads": 1, "random_seed": 0}
    for option, setting in options.items():
        solver.setOptionValue(option, setting)
    solver.passModel(model)
    solver.run()
    found = solver.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    chosen = np.array(solver.getSolution().col_value) if found else np.zeros(0)
    highspy.Highs.resetGlobalScheduler(True)
    return np.flatnonzero(chosen > 0.5) if found else staying
