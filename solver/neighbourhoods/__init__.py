"""Exact large neighbourhood search: part of a plan is freed and solved exactly while the rest stays as it is."""

from __future__ import annotations

from coplace.solver.neighbourhoods.neighbourhood import Neighbourhood
from coplace.solver.neighbourhoods.rounds import Options, improve

__all__ = ["Neighbourhood", "Options", "improve"]
