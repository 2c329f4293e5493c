"""Choosers of neighbourhoods, one a file."""

from __future__ import annotations

from coplace.solver.neighbourhoods.choosers.chooser import Chooser
from coplace.solver.neighbourhoods.choosers.contended import contended
from coplace.solver.neighbourhoods.choosers.nearby import nearby
from coplace.solver.neighbourhoods.choosers.rack import rack
from coplace.solver.neighbourhoods.choosers.related import related
from coplace.solver.neighbourhoods.choosers.starved import starved

CHOOSERS: dict[str, Chooser] = {
    "nearby": nearby,
    "related": related,
    "contended": contended,
    "rack": rack,
    "starved": starved,
}
"""All choosers by name."""

__all__ = ["CHOOSERS", "Chooser"]
