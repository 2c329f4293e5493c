"""The class-level formulation for MIP solvers; its mirror is :mod:`coplace.formulations.cpsat.by_class`."""

from coplace.formulations.mip.by_class.model import ClassMip

__all__ = ["ClassMip"]
