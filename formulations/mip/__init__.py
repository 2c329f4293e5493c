"""The exact formulation for MIP solvers through PuLP; docs/formulation.md has every equation."""

from coplace.formulations.mip.backends import available_backends
from coplace.formulations.mip.model import MipModel

__all__ = ["MipModel", "available_backends"]
