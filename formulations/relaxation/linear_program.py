"""The linear program over some of the choices, solved again as more of them join."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.highs import quiet_highs

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class LinearProgram:
    """Maximise the value of choices: at most one of each job, and demand ≤ supply in every row, in HiGHS.

    Its rows are those of the relaxation, then one for each job, then one for each class of nodes.
    """

    def __init__(self, supply: Floats, fixed: Floats, size: Floats, must_keep: Bools, scale: Floats) -> None:
        """Without choices yet.

        Args:
            supply: what one node of a class offers at a level, by [row, class, level].
            fixed: what a row offers beside that.
            size: nodes of a class.
            must_keep: jobs that have to choose something.
            scale: by [row], > 0: the largest amounts in it, about.
        """
        import highspy

        rows, classes, levels = supply.shape
        self._rows, self._jobs, self._scale = rows, len(must_keep), scale
        nodes = classes * levels
        flat = -supply.reshape(rows, nodes) / scale[:, None]
        infinity = highspy.kHighsInf
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = nodes, rows + self._jobs + classes
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = np.zeros(nodes), np.zeros(nodes), np.full(nodes, infinity)
        lp.row_lower_ = np.concatenate([np.full(rows, -infinity), np.where(must_keep, 1.0, -infinity), size])
        lp.row_upper_ = np.concatenate([fixed / scale, np.ones(self._jobs), size])
        at_row, at_column = np.nonzero(flat)
        at_row = np.concatenate([at_row, rows + self._jobs + np.repeat(np.arange(classes), levels)])
        values = np.concatenate([flat[np.nonzero(flat)], np.ones(nodes)])
        at_column = np.concatenate([at_column, np.arange(nodes)])
        starts, index, value = _columnwise(at_row, at_column, values, nodes)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = starts, index, value
        self._solver: Any = quiet_highs()()
        self._solver.setOptionValue("output_flag", False)
        self._solver.passModel(lp)
        self._optimal = highspy.HighsModelStatus.kOptimal

    def add(self, value: Floats, job: Ints, demand: Floats) -> None:
        """Let choices join: value and job by [choice], demand by [row, choice]."""
        count = len(value)
        if not count:
            return
        at_row, at_column = np.nonzero(demand)
        values = np.concatenate([demand[at_row, at_column] / self._scale[at_row], np.ones(count)])
        at_row = np.concatenate([at_row, self._rows + job])
        at_column = np.concatenate([at_column, np.arange(count)])
        starts, index, value_ = _columnwise(at_row, at_column, values, count)
        lower, upper = np.zeros(count), np.full(count, np.inf)
        self._solver.addCols(count, -value, lower, upper, len(value_), starts[:-1], index, value_)

    def solve(self) -> tuple[Floats | None, float]:
        """Prices by [row] and the value of the program; None if HiGHS finds none."""
        self._solver.run()
        duals = np.array(self._solver.getSolution().row_dual[: self._rows])
        if self._solver.getModelStatus() != self._optimal or len(duals) < self._rows:
            return None, 0.0
        return np.maximum(-duals / self._scale, 0.0), -float(self._solver.getInfo().objective_function_value)


def _columnwise(
    row: Ints, column: Ints, value: Floats, columns: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
    order = np.lexsort((row, column))
    starts = np.searchsorted(column[order], np.arange(columns + 1)).astype(np.int32)
    return starts, row[order].astype(np.int32), value[order]


def release() -> None:
    """Let HiGHS's threads go; it would refuse to run with another number of them later."""
    import highspy

    highspy.Highs.resetGlobalScheduler(True)
