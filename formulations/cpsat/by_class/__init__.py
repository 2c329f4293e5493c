"""The class-level formulation in OR-Tools CP-SAT; its mirror is :mod:`coplace.formulations.mip.by_class`."""

from coplace.formulations.cpsat.by_class.model import ClassCpsat

__all__ = ["ClassCpsat"]
