"""HiGHS without its greeting."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def quiet_highs() -> Any:
    """The class of HiGHS solvers without callbacks, whose registration prints a banner before output can be turned off.

    Standard output belongs to the command line.
    """
    import highspy

    class Quiet(highspy.Highs):
        def enableCallbacks(self) -> None:
            """Leave them out."""

    return Quiet
