"""Functions of a whole number as few straight pieces, with the largest error over every whole number.

Solver-free; ``piecewise`` in :mod:`coplace.formulations.mip` and :mod:`coplace.formulations.cpsat` encodes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Encoding = Literal["convex", "incremental", "sos2"]
"""How a solver is told a piecewise linear function; ``convex`` is for concave functions that are maximised."""

ENCODINGS: tuple[Encoding, ...] = ("convex", "incremental", "sos2")

ROUNDING = 1e-12
"""What floating point may cost, as a share of the largest value."""


class Segment(NamedTuple):
    """A straight piece over the whole numbers ``start`` … ``end``, start < end."""

    start: int
    end: int
    start_value: float
    end_value: float

    @property
    def length(self) -> int:
        """end − start."""
        return self.end - self.start

    @property
    def slope(self) -> float:
        """Value per unit of w."""
        return (self.end_value - self.start_value) / self.length

    def __call__(self, w: Any) -> Any:
        """The value at *w*, a number or an array."""
        return self.start_value + self.slope * (w - self.start)


class Tangent(NamedTuple):
    """The straight line intercept + slope · w."""

    slope: float
    intercept: float


@dataclass(frozen=True)
class Piecewise:
    """A function f of whole numbers w, interpolated linearly between breakpoints.

    Attributes:
        xs: breakpoints, ascending; a single one for a function of a single w.
        vs: values there.
        error_below: most that f exceeds the interpolation at any whole number, ≥ 0: interpolation + error_below ≥ f.
        error_above: most that the interpolation exceeds f at any whole number, ≥ 0: interpolation − error_above ≤ f.
    """

    xs: tuple[int, ...]
    vs: tuple[float, ...]
    error_below: float = 0.0
    error_above: float = 0.0

    def __post_init__(self) -> None:
        if not self.xs or len(self.xs) != len(self.vs):
            raise ValueError(f"one value per breakpoint and at least one: {len(self.xs)} breakpoints, {len(self.vs)}")
        if any(a >= b for a, b in pairwise(self.xs)):
            raise ValueError(f"breakpoints must ascend: {self.xs}")
        if not np.isfinite(self.vs).all():
            raise ValueError(f"values must be finite: {self.vs}")
        if self.error_below < 0 or self.error_above < 0:
            raise ValueError("errors are at least 0")

    @property
    def error(self) -> float:
        """Largest |f − interpolation| at any whole number."""
        return max(self.error_below, self.error_above)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The pieces between neighbouring breakpoints."""
        points = pairwise(zip(self.xs, self.vs, strict=True))
        return tuple(Segment(x0, x1, v0, v1) for (x0, v0), (x1, v1) in points)

    @cached_property
    def concave(self) -> bool:
        """Whether no slope exceeds the one before it, but for rounding."""
        slack = ROUNDING * max(map(abs, self.vs))
        return all(b.slope <= a.slope + slack for a, b in pairwise(self.segments))

    @cached_property
    def tangents(self) -> tuple[Tangent, ...]:
        """Lines above the function at every w, one per segment and as steep; their least is a concave function itself.

        Each is raised until it lies above every breakpoint, so that rounding never cuts anything off.
        """
        return tuple(
            Tangent(s.slope, max(v - s.slope * x for x, v in zip(self.xs, self.vs, strict=True))) for s in self.segments
        ) or (Tangent(0.0, self.vs[0]),)

    def __call__(self, w: Any) -> Any:
        """The interpolation at *w*, a number or an array; NaN outside of the breakpoints."""
        found = np.interp(w, self.xs, self.vs, left=np.nan, right=np.nan)
        return float(found) if np.ndim(found) == 0 else found

    def encoding(self) -> Encoding:
        """The cheapest encoding: ``convex`` if concave, else ``incremental``."""
        return "convex" if self.concave else "incremental"

    def require(self, encoding: Encoding, name: str) -> None:
        """Refuse an encoding that would make the function larger than it is.

        Raises:
            ValueError: ``convex`` for a function that is not concave.
        """
        if encoding not in ENCODINGS:
            raise ValueError(f"{name}: unknown encoding '{encoding}', choose from {', '.join(ENCODINGS)}")
        if encoding == "convex" and not self.concave:
            a, b = next((a, b) for a, b in pairwise(self.segments) if b.slope > a.slope)
            raise ValueError(
                f"{name}: 'convex' holds for concave functions only, and at {b.start} the slope rises from {a.slope:g} "
                f"to {b.slope:g}; use 'incremental' or 'sos2'"
            )


def fit(
    values: NDArray[np.float64], first: int, tolerance: float, *, relative: bool = False, optimal: bool = False
) -> Piecewise:
    """Few breakpoints among the data, ends included, so that the error is at most *tolerance* at every whole number.

    Greedy: each piece reaches as far as it can (Tomek, IEEE Transactions on Computers C-23, 1974). For concave or
    convex data these are the fewest pieces, since there a shorter piece never errs more. With *optimal* they are the
    fewest for any data (shortest path; Imai and Iri, Computer Vision, Graphics, and Image Processing 36, 1986), in
    time quadratic in the number of values.

    Where the data lie within *tolerance* of the least concave function above them, the greedy curve is concave and
    needs no binaries: were the slope to rise at a breakpoint, the piece from the one before to the one after would lie
    higher than the curve and no higher than that function, so that greedy would have taken it.

    Args:
        values: f at first, first + 1, …; shape [n], n ≥ 1.
        first: the whole number of ``values[0]``.
        tolerance: largest error, in the unit of *values*; never taken as less than what rounding costs.
        relative: *tolerance* is a share of the largest \\|value\\|.
        optimal: the least number of breakpoints, see above.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"values must be a row of at least one number, not of shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("values must be finite")
    if not tolerance >= 0:
        raise ValueError(f"the tolerance must be at least 0, not {tolerance}")
    largest = float(np.abs(values).max())
    allowed = max(tolerance * largest if relative else tolerance, ROUNDING * largest)
    return interpolation(values, first, _fewest(values, allowed) if optimal else _greedy(values, allowed))


def interpolation(values: NDArray[np.float64], first: int, breakpoints: list[int]) -> Piecewise:
    """The interpolation of *values* at *breakpoints*, with its errors.

    Args:
        values: f at first, first + 1, …; shape [n].
        first: the whole number of ``values[0]``.
        breakpoints: ascending positions in *values*, from 0 to n − 1.
    """
    at = values[breakpoints]
    above = np.interp(np.arange(len(values)), breakpoints, at) - values
    return Piecewise(
        xs=tuple(first + b for b in breakpoints),
        vs=tuple(at.tolist()),
        error_below=max(0.0, float(-above.min())),
        error_above=max(0.0, float(above.max())),
    )


def _reach(values: NDArray[np.float64], start: int, tolerance: float) -> NDArray[np.intp]:
    """Ends b > start, ascending, for which the piece from *start* to b errs by at most *tolerance* in between.

    Such a piece passes each point i at a slope within (values[i] ± tolerance − values[start]) / (i − start): the cone
    of Sklansky and Gonzalez, Pattern Recognition 12, 1980.
    """
    rise = values[start + 1 :] - values[start]
    run = np.arange(1, len(rise) + 1)
    steepest = np.minimum.accumulate((rise + tolerance) / run)
    flattest = np.maximum.accumulate((rise - tolerance) / run)
    slope = rise / run
    ends: NDArray[np.intp] = np.flatnonzero((slope <= steepest) & (slope >= flattest)) + start + 1
    return ends


def _greedy(values: NDArray[np.float64], tolerance: float) -> list[int]:
    """Positions of breakpoints, each as far from the one before as the tolerance lets it."""
    breakpoints = [0]
    while breakpoints[-1] < len(values) - 1:
        breakpoints.append(int(_reach(values, breakpoints[-1], tolerance)[-1]))
    return breakpoints


def _fewest(values: NDArray[np.float64], tolerance: float) -> list[int]:
    """Positions of the fewest breakpoints; of these, those that lie farthest right."""
    last = len(values) - 1
    pieces = np.zeros(last + 1, dtype=np.int64)  # needed from here to the end
    following = np.zeros(last + 1, dtype=np.intp)
    for start in range(last - 1, -1, -1):
        ends = _reach(values, start, tolerance)[::-1]
        best = ends[np.argmin(pieces[ends])]
        following[start], pieces[start] = best, pieces[best] + 1
    breakpoints = [0]
    while breakpoints[-1] < last:
        breakpoints.append(int(following[breakpoints[-1]]))
    return breakpoints
