"""The exact formulation in OR-Tools CP-SAT; its mirror is :mod:`coplace.formulations.mip`. See docs/formulation.md."""

from coplace.formulations.cpsat.model import CpsatModel

__all__ = ["CpsatModel"]
