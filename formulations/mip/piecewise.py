"""Piecewise linear functions for MIP solvers: workers w and value of a line, both 0 unless the line is chosen.

Three encodings of breakpoints (x_0, v_0) … (x_K, v_K), with y the 0/1 variable that chooses the line. All are sharp:
without whole numbers the value reaches up to the least concave function above the curve and no further (Vielma, SIAM
Review 57, 2015; Croxton, Gendron and Magnanti, Management Science 49, 2003).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from coplace.formulations.piecewise import Encoding, Piecewise

Terms = list[tuple[Any, float]]
"""A linear sum: variables, each once, with their coefficients."""


class NewVariable(Protocol):
    """Makes a variable from 0 to *most*, 0/1 or whole unless *whole* is False."""

    def __call__(self, name: str, most: float, whole: bool = True) -> Any:
        """The variable."""
        ...


class Row(NamedTuple):
    """terms ≤ or = limit, over variables of which some are not whole."""

    name: str
    terms: Terms
    sense: Literal["<=", "=="]
    limit: float


class Encoded(NamedTuple):
    """A line as a solver sees it.

    Attributes:
        workers: w, a sum of variables.
        value: its value in units of the objective, likewise; ``convex`` holds it down only, so it has to be maximised.
        rows: what the variables have to keep.
        assignment: the variables made for it and their values at a worker count, or at None if it is not chosen.
    """

    workers: Terms
    value: Terms
    rows: list[Row]
    assignment: Callable[[int | None], Terms]


def encode(new: NewVariable, curve: Piecewise, chosen: Any, encoding: Encoding, name: str) -> Encoded:
    """Variables and rows for the line that *chosen* (y, 0/1) chooses; *name* is unique in the problem.

    Raises:
        ValueError: ``convex`` for a curve that is not concave.
    """
    curve.require(encoding, name)
    if not curve.segments:
        return Encoded([(chosen, curve.xs[0])], [(chosen, curve.vs[0])], [], lambda _: [])
    return _ENCODE[encoding](new, curve, chosen, name)


def _convex(new: NewVariable, curve: Piecewise, chosen: Any, name: str) -> Encoded:
    """w = Σ_i x_i · λ_i, value = Σ_i v_i · λ_i, Σ_i λ_i = y and λ ≥ 0: a convex combination, right if concave."""
    weights = [new(f"weight_{name}_{i}", 1, whole=False) for i in range(len(curve.xs))]

    def assignment(w: int | None) -> Terms:
        """Weight on the two breakpoints around w."""
        return list(zip(weights, _weights(curve, w), strict=True))

    return Encoded(
        list(zip(weights, curve.xs, strict=True)),
        list(zip(weights, curve.vs, strict=True)),
        [Row(f"weights_{name}", [*((weight, 1) for weight in weights), (chosen, -1)], "==", 0)],
        assignment,
    )


def _sos2(new: NewVariable, curve: Piecewise, chosen: Any, name: str) -> Encoded:
    """A convex combination of two neighbours: also λ_i ≤ s_{i−1} + s_i and Σ_i s_i = y, s_i = 1 on segment i.

    Binaries say which two may be above 0. PuLP's special ordered sets would say it without, but its interfaces to
    HiGHS and CBC drop them silently.
    """
    encoded = _convex(new, curve, chosen, name)
    on = [new(f"on_{name}_{i}", 1) for i in range(len(curve.segments))]
    rows = [*encoded.rows, Row(f"on_{name}", [*((s, 1) for s in on), (chosen, -1)], "==", 0)]
    for i, (weight, _) in enumerate(encoded.workers):
        beside = [(s, -1.0) for s in on[max(0, i - 1) : i + 1]]
        rows.append(Row(f"adjacent_{name}_{i}", [(weight, 1), *beside], "<=", 0))

    def assignment(w: int | None) -> Terms:
        """Also the segment of w."""
        inside = _segment(curve, w)
        return [*encoded.assignment(w), *((s, float(i == inside)) for i, s in enumerate(on))]

    return encoded._replace(rows=rows, assignment=assignment)


def _incremental(new: NewVariable, curve: Piecewise, chosen: Any, name: str) -> Encoded:
    """w = x_0 · y + Σ_i d_i, value = v_0 · y + Σ_i slope_i · d_i, and a segment opens when the one before is full.

    0 ≤ d_0 ≤ length_0 · y; for i > 0: length_{i−1} · f_i ≤ d_{i−1} and d_i ≤ length_i · f_i with f_i 0/1
    (Markowitz and Manne, Econometrica 25, 1957).
    """
    segments = curve.segments
    filled = [new(f"filled_{name}_{i}", segment.length, whole=False) for i, segment in enumerate(segments)]
    opened = [new(f"open_{name}_{i}", 1) for i in range(1, len(segments))]
    rows = [
        Row(f"fill_{name}_{i}", [(d, 1), (f, -segment.length)], "<=", 0)
        for i, (d, segment, f) in enumerate(zip(filled, segments, [chosen, *opened], strict=True))
    ]
    rows += [
        Row(f"full_{name}_{i}", [(f, segment.length), (d, -1)], "<=", 0)
        for i, (d, segment, f) in enumerate(zip(filled[:-1], segments[:-1], opened, strict=True))
    ]

    def assignment(w: int | None) -> Terms:
        """Every segment as full as w makes it."""
        inside = _segment(curve, w)
        amounts = [0.0 if w is None else float(min(max(w - s.start, 0), s.length)) for s in segments]
        opens = [float(i <= inside) for i in range(1, len(segments))]
        return [*zip(filled, amounts, strict=True), *zip(opened, opens, strict=True)]

    return Encoded(
        [(chosen, curve.xs[0]), *((d, 1) for d in filled)],
        [(chosen, curve.vs[0]), *((d, segment.slope) for d, segment in zip(filled, segments, strict=True))],
        rows,
        assignment,
    )


_ENCODE = {"convex": _convex, "incremental": _incremental, "sos2": _sos2}


def _segment(curve: Piecewise, w: int | None) -> int:
    """The segment that *w* lies on, the first of two; −1 if there is no w."""
    return -1 if w is None else next(i for i, segment in enumerate(curve.segments) if w <= segment.end)


def _weights(curve: Piecewise, w: int | None) -> list[float]:
    """λ by breakpoint."""
    weights = np.zeros(len(curve.xs))
    inside = _segment(curve, w)
    if w is not None:
        segment = curve.segments[inside]
        weights[inside + 1] = (w - segment.start) / segment.length
        weights[inside] = 1 - weights[inside + 1]
    return [float(weight) for weight in weights]
