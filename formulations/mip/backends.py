"""Solvers behind PuLP. Each leaves its values in the variables and says what it can of its bound.

PuLP's own status is not used: at a limit it calls values optimal, and whether values keep the rows is for the caller
to check.
"""

from __future__ import annotations

import importlib.metadata
import math
import re
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from coplace.formulations.highs import quiet_highs
from coplace.instances.errors import InputError, Problem

GRACE_SECONDS = 10.0
"""How long a solver that runs as a process of its own may overrun its time limit before it is killed."""


@dataclass(frozen=True, slots=True)
class Options:
    """What solvers are asked for.

    Attributes:
        time_limit: seconds.
        gap: relative gap at which to stop.
        threads, seed: as they say.
        log: whether to print what the solver prints.
        start: whether the variables hold a feasible solution to start from.
    """

    time_limit: float
    gap: float
    threads: int
    seed: int
    log: bool
    start: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What a solver said, in units of the scaled objective.

    Attributes:
        bound: upper bound; None if it gave none.
        finished: whether it says to have stopped within the gap.
        infeasible: whether it says that nothing is feasible.
    """

    bound: float | None = None
    finished: bool = False
    infeasible: bool = False


def solve_with(backend: str, problem: Any, options: Options) -> Answer:
    """Solve *problem*; values end up in its variables, None where the solver found none."""
    check_available(backend)
    return _BACKENDS[backend].solve(problem, options)


def solve_relaxation(problem: Any, time_limit: float, threads: int, interior: bool = False) -> float | None:
    """The value of *problem* without whole numbers, by HiGHS; None where it finds none in time.

    An *interior* point is found faster in large problems; it has more parts than a corner. The values, in parts where
    that is best, end up in the variables.
    """
    import highspy

    highspy.Highs.resetGlobalScheduler(True)
    method = {"solver": "ipm", "run_crossover": "off"} if interior else {}
    solver = _highs_class()(msg=False, timeLimit=time_limit, threads=threads, solve_relaxation=True, **method)
    problem.solve(solver)
    highs, problem.solverModel = problem.solverModel, None
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return -float(highs.getInfo().objective_function_value)


def check_available(backend: str) -> None:
    """Refuse a backend that does not exist or is not installed.

    Raises:
        InputError: names those that are.
    """
    if backend not in _BACKENDS or not _BACKENDS[backend].version():
        usable = ", ".join(name for name, entry in _BACKENDS.items() if entry.version())
        rule = "must be a MIP solver that is installed" if backend in _BACKENDS else "must be a MIP solver"
        raise InputError([Problem("backend", rule, repr(backend), f"available: {usable}")])


def available_backends() -> dict[str, str]:
    """Version of each backend, or ``not available: …`` with what it needs."""
    return {name: entry.version() or f"not available: needs {entry.needs}" for name, entry in _BACKENDS.items()}


# --- HiGHS, in process ----------------------------------------------------------------------------------------------


def _highs_version() -> str:
    try:
        return importlib.metadata.version("highspy")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _solve_highs(problem: Any, options: Options) -> Answer:
    import highspy

    # HiGHS's scheduler lives as long as the process and refuses any other number of threads than its first.
    highspy.Highs.resetGlobalScheduler(True)
    solver = _highs_class()(
        msg=options.log,
        timeLimit=options.time_limit,
        gapRel=options.gap,
        threads=options.threads,
        random_seed=options.seed,
    )
    solver.start = options.start
    problem.solve(solver)
    highs, problem.solverModel = problem.solverModel, None
    status, states = highs.getModelStatus(), highspy.HighsModelStatus
    infeasible = status in (states.kInfeasible, states.kUnboundedOrInfeasible)
    bound = -float(highs.getInfo().mip_dual_bound)
    known = math.isfinite(bound) and not infeasible
    return Answer(bound if known else None, finished=status == states.kOptimal, infeasible=infeasible)


@cache
def _highs_class() -> Any:
    import highspy
    import numpy as np
    import pulp

    class InProcess(pulp.HiGHS):  # type: ignore[misc]
        """PuLP's HiGHS, but with the model passed at once, a start, and no values without a feasible solution."""

        start = False

        def createAndConfigureSolver(self, lp: Any) -> None:
            """Set the options, output first."""
            lp.solverModel = quiet_highs()()
            options = {"output_flag": self.msg, "mip_rel_gap": self.gapRel, "threads": self.threads}
            options |= {"time_limit": float(self.timeLimit), **self.optionsDict}
            for name, setting in options.items():
                lp.solverModel.setOptionValue(name, setting)

        def buildSolverModel(self, lp: Any) -> None:
            """Pass the model row-wise; the objective is negated, since HiGHS minimises."""
            variables, rows = lp.variables(), lp.constraints()
            for index, variable in enumerate(variables):
                variable.index = index
            model = highspy.HighsLp()
            model.num_col_, model.num_row_ = len(variables), len(rows)
            model.col_cost_ = np.array([-lp.objective.get(variable, 0.0) for variable in variables], dtype=float)
            model.col_lower_ = np.array([variable.lowBound for variable in variables], dtype=float)
            model.col_upper_ = np.array([variable.upBound for variable in variables], dtype=float)
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            model.integrality_ = [kinds[variable.cat == "Integer"] for variable in variables]
            limits = np.array([-row.constant for row in rows], dtype=float)
            senses = np.array([row.sense for row in rows])
            model.row_lower_ = np.where(senses >= 0, limits, -highspy.kHighsInf)
            model.row_upper_ = np.where(senses <= 0, limits, highspy.kHighsInf)
            model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
            model.a_matrix_.start_ = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int32)
            model.a_matrix_.index_ = np.array([v.index for row in rows for v in row], dtype=np.int32)
            model.a_matrix_.value_ = np.array([amount for row in rows for amount in row.values()], dtype=float)
            lp.solverModel.passModel(model)

        def callSolver(self, lp: Any) -> None:
            """Run from the start, if there is one."""
            if self.start:
                solution = highspy.HighsSolution()
                solution.col_value = [variable.varValue or 0.0 for variable in lp.variables()]
                lp.solverModel.setSolution(solution)
            lp.solverModel.run()

        def findSolutionValues(self, lp: Any) -> tuple[int, int]:
            """Leave the values in the variables."""
            feasible = lp.solverModel.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
            values = lp.solverModel.getSolution().col_value
            for variable in lp.variables():
                variable.varValue = values[variable.index] if feasible else None
            return pulp.LpStatusNotSolved, pulp.LpSolutionNoSolutionFound

    return InProcess


# --- CBC, as a process ----------------------------------------------------------------------------------------------


@cache
def _cbc() -> tuple[str, str]:
    """Path and version of the CBC that PuLP bundles, else of one on the search path; empty without."""
    import pulp

    bundled = getattr(getattr(pulp, "PULP_CBC_CMD", None), "pulp_cbc_path", None)
    for path in (bundled, "cbc"):
        found = shutil.which(path) if path else None
        if found:
            with suppress(OSError, subprocess.SubprocessError):
                done = subprocess.run([found, "-quit"], capture_output=True, text=True, timeout=30, check=False)
                version = re.search(r"Version:?\s+(\S+)", done.stdout)
                return found, version.group(1) if version else "unknown version"
    return "", ""


def _solve_cbc(problem: Any, options: Options) -> Answer:
    import pulp

    path, _ = _cbc()
    solver = pulp.COIN_CMD(path=path, msg=options.log, threads=options.threads, gapRel=options.gap)
    with tempfile.TemporaryDirectory(prefix="coplace-cbc-") as folder:
        model, start, solution, log = (Path(folder) / name for name in ("m.mps", "m.mst", "m.sol", "m.log"))
        # minimised, so that bounds in the log have one sign
        variables, names, rows, _ = problem.writeMPS(str(model), mpsSense=pulp.LpMinimize, rename=1)
        command = [path, str(model)]
        if options.start:
            solver.writesol(str(start), problem, variables, names, rows)
            command += ["-mips", str(start)]
        command += ["-sec", str(options.time_limit), "-timeMode", "elapsed", "-ratio", str(options.gap)]
        command += ["-randomCbcSeed", str(options.seed)]
        if options.threads > 1:  # with 1 it starts one besides the main thread
            command += ["-threads", str(options.threads)]
        command += ["-solve", "-printingOptions", "all", "-solution", str(solution)]
        for variable in variables:
            variable.varValue = None
        with (
            log.open("w") as output,
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT) as process,
        ):
            try:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(options.time_limit + GRACE_SECONDS)
            finally:
                process.kill()
        text = log.read_text(errors="replace")
        if options.log:
            print(text)
        return _read_cbc(problem, solver, solution, text, variables, names, rows)


def _read_cbc(problem: Any, solver: Any, solution: Path, log: str, variables: Any, names: Any, rows: Any) -> Answer:
    first = solution.read_text(errors="replace").partition("\n")[0] if solution.exists() else ""
    if first.startswith(("Infeasible", "Integer infeasible")):
        return Answer(infeasible=True)
    if first.startswith("Optimal") or re.match(r"Stopped on .* - objective value", first):
        _, values, *_ = solver.readsol_MPS(str(solution), problem, variables, names, rows)
        for variable in variables:
            variable.varValue = values.get(variable.name, 0.0)
    finished = first.startswith("Optimal")
    below = re.findall(r"^Lower bound:\s+(\S+)", log, flags=re.M)
    if finished and not below:  # it closed the gap
        below = re.findall(r"objective value (\S+)", first)
    bound = None
    if below:
        with suppress(ValueError):
            bound = -float(below[-1])
    return Answer(bound, finished=finished)


# --- others, where they are installed -------------------------------------------------------------------------------


def _version_of(solver: str, package: str) -> str:
    """Version of *package*, if PuLP can use it."""
    import pulp

    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return version if pulp.getSolver(solver, msg=False).available() else ""
    return ""


def _solve_scip(problem: Any, options: Options) -> Answer:
    model = _solve(
        problem,
        options,
        "SCIP_PY",
        threads=options.threads,
        options=[f"randomization/randomseedshift={options.seed}"],
    )
    status = model.getStatus()
    return Answer(_finite(model.getDualbound()), status in ("optimal", "gaplimit"), status == "infeasible")


def _solve_gurobi(problem: Any, options: Options) -> Answer:
    model = _solve(problem, options, "GUROBI", OutputFlag=int(options.log), Threads=options.threads, Seed=options.seed)
    infeasible = model.Status in (3, 4)  # INFEASIBLE, INF_OR_UNBD; everything is bounded
    bound = None if infeasible else _finite(model.ObjBound)
    return Answer(bound, model.Status == 2, infeasible)


def _solve_cplex(problem: Any, options: Options) -> Answer:
    model = _solve(problem, options, "CPLEX_PY", threads=options.threads, randomseed=options.seed)
    status = model.solution.get_status()
    infeasible = status in (103, 119)  # MIP_infeasible, MIP_infeasible_or_unbounded
    bound = None if infeasible else _finite(model.solution.MIP.get_best_objective())
    return Answer(bound, status in (101, 102), infeasible)


def _solve(problem: Any, asked: Options, solver: str, **more: Any) -> Any:
    """Solve with a solver that PuLP drives in process; gives the solver's own model.

    Raises:
        InputError: it refuses, for want of a licence for example.
    """
    import pulp

    if not asked.start:
        for variable in problem.variables():
            variable.varValue = None
    common = {"msg": asked.log, "timeLimit": asked.time_limit, "gapRel": asked.gap, "warmStart": asked.start}
    try:
        problem.solve(pulp.getSolver(solver, **common, **more))
    except Exception as error:
        rule = f"{solver} must accept the problem"
        raise InputError([Problem("backend", rule, str(error), "choose another")]) from error
    return problem.solverModel


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) and abs(value) < 1e19 else None  # 1e20 is infinite to SCIP and CPLEX


@dataclass(frozen=True, slots=True)
class _Backend:
    solve: Callable[[Any, Options], Answer]
    version: Callable[[], str]
    needs: str


_BACKENDS = {
    "highs": _Backend(_solve_highs, _highs_version, "the package highspy"),
    "cbc": _Backend(_solve_cbc, lambda: _cbc()[1], "PuLP before 4, or cbc on the search path"),
    "scip": _Backend(_solve_scip, lambda: _version_of("SCIP_PY", "pyscipopt"), "the package pyscipopt"),
    "gurobi": _Backend(_solve_gurobi, lambda: _version_of("GUROBI", "gurobipy"), "the package gurobipy"),
    "cplex": _Backend(_solve_cplex, lambda: _version_of("CPLEX_PY", "cplex"), "the package cplex"),
}
