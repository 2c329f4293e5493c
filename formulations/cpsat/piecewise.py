"""Piecewise linear functions for CP-SAT: workers w and value of a line, both 0 unless the line is chosen.

Three encodings of breakpoints (x_0, v_0) … (x_K, v_K), with y the literal that chooses the line. CP-SAT knows whole
numbers only, so values and slopes are scaled and rounded up, see :func:`scaled`: in every encoding the value of a
worker count is at least the true one, and :func:`excess` says by how much it is larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from ortools.sat.python.cp_model import CpModel, IntVar, LinearExpr

from coplace.formulations.piecewise import Encoding, Piecewise

Terms = list[tuple[IntVar, int]]
"""A linear sum: variables, each once, with their coefficients."""


class Encoded(NamedTuple):
    """A line as a solver sees it.

    Attributes:
        workers: w, a sum of variables.
        value: its value in whole units, likewise; ``convex`` holds it down only, so it has to be maximised.
        assignment: the variables made for it and their values at a worker count, or at None if it is not chosen.
    """

    workers: Terms
    value: Terms
    assignment: Callable[[int | None], Terms]


def encode(model: CpModel, curve: Piecewise, chosen: IntVar, encoding: Encoding, name: str, scale: float) -> Encoded:
    """Variables and constraints for the line that *chosen* (y) chooses; *scale* is whole units per unit of value.

    Raises:
        ValueError: ``convex`` for a curve that is not concave.
    """
    curve.require(encoding, name)
    if not curve.segments:
        return Encoded([(chosen, curve.xs[0])], [(chosen, scaled(curve, scale)[0][0])], lambda _: [])
    return _ENCODE[encoding](model, curve, chosen, name, scale)


def scaled(curve: Piecewise, scale: float) -> tuple[list[int], list[int]]:
    """Whole values at the breakpoints and whole slopes of the segments, such that the curve lies nowhere above them.

    value_0 = ⌈scale · v_0⌉, slope_i = ⌈(scale · v_{i+1} − value_i) / length_i⌉ and
    value_{i+1} = value_i + slope_i · length_i, so that each value is above the true one by less than the length of the
    segment before it, and rounding does not add up.
    """
    exact = [Fraction(v) * Fraction(scale) for v in curve.vs]
    values, slopes = [math.ceil(exact[0])], []
    for segment, target in zip(curve.segments, exact[1:], strict=True):
        slopes.append(math.ceil((target - values[-1]) / segment.length))
        values.append(values[-1] + slopes[-1] * segment.length)
    return values, slopes


def excess(curve: Piecewise, encoding: Encoding, scale: float) -> float:
    """Most whole units by which the encoded value of any worker count is above scale · curve.

    Rounded slopes of a concave curve may rise by 1 from one segment to the next; ``convex`` fills the steeper first.
    """
    (first, *_), slopes = scaled(curve, scale)
    pieces = [(slope, segment.length) for slope, segment in zip(slopes, curve.segments, strict=True)]
    if encoding == "convex":
        pieces.sort(reverse=True)
    steps = np.repeat([slope for slope, _ in pieces], [length for _, length in pieces]) if pieces else np.zeros(0)
    encoded = first + np.concatenate(([0.0], np.cumsum(steps)))
    return float((encoded - scale * curve(np.arange(curve.xs[0], curve.xs[-1] + 1))).max())


def _filled(model: CpModel, curve: Piecewise, chosen: IntVar, name: str, scale: float) -> tuple[list[IntVar], Encoded]:
    """w = x_0 · y + Σ_i d_i and value = v_0 · y + Σ_i slope_i · d_i with 0 ≤ d_i ≤ length_i."""
    values, slopes = scaled(curve, scale)
    segments = curve.segments
    filled = [model.new_int_var(0, segment.length, f"filled_{name}_{i}") for i, segment in enumerate(segments)]

    def assignment(w: int | None) -> Terms:
        """Every segment as full as w makes it."""
        return [
            (d, 0 if w is None else min(max(w - s.start, 0), s.length)) for d, s in zip(filled, segments, strict=True)
        ]

    encoded = Encoded(
        [(chosen, curve.xs[0]), *((d, 1) for d in filled)],
        [(chosen, values[0]), *zip(filled, slopes, strict=True)],
        assignment,
    )
    return filled, encoded


def _convex(model: CpModel, curve: Piecewise, chosen: IntVar, name: str, scale: float) -> Encoded:
    """d_i ≤ length_i · y: where slopes fall, the segments fill in their order of themselves."""
    filled, encoded = _filled(model, curve, chosen, name, scale)
    for d, segment in zip(filled, curve.segments, strict=True):
        model.add(d <= segment.length * chosen)
    return encoded


def _incremental(model: CpModel, curve: Piecewise, chosen: IntVar, name: str, scale: float) -> Encoded:
    """A segment opens when the one before is full: length_{i−1} · f_i ≤ d_{i−1}, d_i ≤ length_i · f_i, f_0 = y.

    Markowitz and Manne, Econometrica 25, 1957; Vielma, SIAM Review 57, 2015.
    """
    filled, encoded = _filled(model, curve, chosen, name, scale)
    segments = curve.segments
    opened = [model.new_bool_var(f"open_{name}_{i}") for i in range(1, len(segments))]
    for d, segment, f in zip(filled, segments, [chosen, *opened], strict=True):
        model.add(d <= segment.length * f)
    for d, segment, f in zip(filled[:-1], segments[:-1], opened, strict=True):
        model.add(d >= segment.length * f)

    def assignment(w: int | None) -> Terms:
        """Also which segments are open."""
        inside = _segment(curve, w)
        return [*encoded.assignment(w), *((f, int(i <= inside)) for i, f in enumerate(opened, start=1))]

    return encoded._replace(assignment=assignment)


def _sos2(model: CpModel, curve: Piecewise, chosen: IntVar, name: str, scale: float) -> Encoded:
    """One segment and a place on it, as two neighbouring weights would give it: Σ_i s_i = y, 0 ≤ o_i ≤ length_i · s_i.

    w = Σ_i x_i · s_i + o_i and value = Σ_i value_i · s_i + slope_i · o_i, since CP-SAT has no fractional weights: the
    multiple choice model of Croxton, Gendron and Magnanti, Management Science 49, 2003.
    """
    values, slopes = scaled(curve, scale)
    segments = curve.segments
    on = [model.new_bool_var(f"on_{name}_{i}") for i in range(len(segments))]
    offset = [model.new_int_var(0, segment.length, f"offset_{name}_{i}") for i, segment in enumerate(segments)]
    model.add(LinearExpr.sum(on) == chosen)
    for s, o, segment in zip(on, offset, segments, strict=True):
        model.add(o <= segment.length * s)

    def assignment(w: int | None) -> Terms:
        """The segment of w and the place on it."""
        inside = _segment(curve, w)
        places = [w - segment.start if w is not None and i == inside else 0 for i, segment in enumerate(segments)]
        return [*((s, int(i == inside)) for i, s in enumerate(on)), *zip(offset, places, strict=True)]

    return Encoded(
        [*((s, segment.start) for s, segment in zip(on, segments, strict=True)), *((o, 1) for o in offset)],
        [*zip(on, values[:-1], strict=True), *zip(offset, slopes, strict=True)],
        assignment,
    )


_ENCODE = {"convex": _convex, "incremental": _incremental, "sos2": _sos2}


def _segment(curve: Piecewise, w: int | None) -> int:
    """The segment that *w* lies on, the first of two; −1 if there is no w."""
    return -1 if w is None else next(i for i, segment in enumerate(curve.segments) if w <= segment.end)
