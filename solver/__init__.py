"""The search: from an instance to a checked plan."""

from coplace.solver.check import CheckReport, check
from coplace.solver.methods import METHODS
from coplace.solver.result import Pending, Result
from coplace.solver.round_solver import RoundSolver
from coplace.solver.solve import solve

__all__ = ["METHODS", "CheckReport", "Pending", "Result", "RoundSolver", "check", "solve"]
