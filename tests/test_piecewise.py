"""Piecewise linear fits at every whole number, and each encoding in both solvers against the interpolation itself."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pulp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from coplace.formulations.cpsat import piecewise as cpsat
from coplace.formulations.mip import piecewise as mip
from coplace.formulations.piecewise import ENCODINGS, Encoding, Piecewise, Segment, fit
from coplace.formulations.speed import Configurations, StatedSpeeds
from coplace.instances import Job
from tests.building import A100, instance, node, ps_job, ring_job


def no_dust(value: float) -> float:
    """Values of an objective are 0 or well above the least floats, whose relative precision is poor."""
    return value if abs(value) >= 1e-9 else 0.0


VALUES = st.lists(st.floats(0, 1e6).map(no_dust), min_size=1, max_size=60).map(np.array)
STEPS = st.lists(st.floats(-10, 10).map(no_dust), min_size=1, max_size=60)
TOLERANCES = st.floats(0, 1)

RISING = Piecewise((3, 5, 9, 20), (2.0, 6.0, 9.0, 11.5))
"""Concave."""
BUMPY = Piecewise((2, 4, 7, 8, 12), (1.0, 5.0, 5.5, 9.0, 3.25))
CONVEX = Piecewise((1, 6, 8), (0.5, 1.0, 7.75))
POINT = Piecewise((4,), (1.75,))
CASES = [
    (curve, encoding)
    for curve in (RISING, BUMPY, CONVEX, POINT)
    for encoding in ENCODINGS
    if encoding != "convex" or curve.concave
]


def whole(curve: Piecewise) -> NDArray[np.int64]:
    return np.arange(curve.xs[0], curve.xs[-1] + 1)


def concave_hull(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The least concave function above *values*: the highest chord over each position."""
    n = len(values)
    hull = values.copy()
    for a in range(n):
        for b in range(a + 1, n):
            inside = np.arange(a, b + 1)
            hull[a : b + 1] = np.maximum(hull[a : b + 1], np.interp(inside, [a, b], values[[a, b]]))
    return hull


# --- fitting --------------------------------------------------------------------------------------------------------


@given(VALUES, st.integers(1, 600), TOLERANCES, st.booleans())
@example(np.array([0.0]), 1, 0.0, False)
@example(np.array([1.0, 1.1, 1.3, 1.2, 0.0]), 1, 0.0, True)
def test_a_fit_keeps_its_tolerance_at_every_whole_number(
    values: NDArray[np.float64], first: int, tolerance: float, optimal: bool
) -> None:
    curve = fit(values, first, tolerance, relative=True, optimal=optimal)
    gap = values - curve(whole(curve))
    largest = np.abs(values).max()
    assert (curve.xs[0], curve.xs[-1]) == (first, first + len(values) - 1)
    assert (curve.vs[0], curve.vs[-1]) == (values[0], values[-1])
    assert all(a < b for a, b in pairwise(curve.xs))
    assert max(0.0, gap.max()) == pytest.approx(curve.error_below, abs=1e-9 * largest)
    assert max(0.0, -gap.min()) == pytest.approx(curve.error_above, abs=1e-9 * largest)
    assert 0 <= curve.error == max(curve.error_below, curve.error_above)
    assert curve.error <= (tolerance + 1e-11) * largest


@given(VALUES, TOLERANCES)
def test_no_fit_has_fewer_breakpoints_than_the_optimal_one(values: NDArray[np.float64], tolerance: float) -> None:
    fewest = fit(values, 1, tolerance, relative=True, optimal=True)
    assert len(fewest.xs) <= len(fit(values, 1, tolerance, relative=True).xs)


@given(STEPS, st.floats(1e-3, 1))
def test_on_concave_data_greedy_is_optimal_and_errs_to_one_side(steps: list[float], tolerance: float) -> None:
    values = np.cumsum(sorted(steps, reverse=True))
    found = fit(values, 1, tolerance)
    assert found.concave
    assert len(found.xs) == len(fit(values, 1, tolerance, optimal=True).xs)
    assert found.error_above <= 1e-9


def brute_fewest(values: NDArray[np.float64], tolerance: float) -> int:
    """Fewest breakpoints, by trying each piece at each whole number."""
    needed = [0] + [len(values)] * (len(values) - 1)
    for end in range(1, len(values)):
        for start in range(end):
            piece = Segment(start, end, values[start], values[end])
            if all(abs(piece(i) - values[i]) <= tolerance for i in range(start, end + 1)):
                needed[end] = min(needed[end], needed[start] + 1)
    return needed[-1] + 1


@given(st.lists(st.integers(0, 9), min_size=1, max_size=16), st.sampled_from([0.26, 0.77, 1.51]))
def test_the_optimal_fit_agrees_with_trying_every_piece(numbers: list[int], tolerance: float) -> None:
    values = np.array(numbers, dtype=float)
    assert len(fit(values, 1, tolerance, optimal=True).xs) == brute_fewest(values, tolerance + 1e-9)


@given(STEPS, st.floats(1e-3, 10))
@example([3.0, 1.0, 1.2, 1.0, 0.5], 0.11)
def test_data_within_the_tolerance_of_a_concave_function_get_a_concave_curve(
    steps: list[float], tolerance: float
) -> None:
    values = np.cumsum(steps)
    gap = float((concave_hull(values) - values).max())
    if gap <= 0.999 * tolerance:
        assert fit(values, 1, tolerance).concave
    assert fit(values, 1, 1.001 * gap + 1e-6).concave


def test_straight_data_needs_two_breakpoints_even_without_tolerance() -> None:
    assert fit(0.1 * np.arange(7, 600), 7, 0.0).xs == (7, 599)


def job_of_512(form: str) -> Job:
    """A job of up to 512 workers and 16 servers."""
    worker = {"gpu": 1, "cpu": 1, "max": 512}
    spread = {"spread": {"slope": 0.5}}
    if form == "ps-sync":
        job = ps_job(worker=worker, ps={"cpu": 1, "max": 16})
        job["speed"] = {"form": form, "batch": 8192, "types": {"a100": A100 | {"c": 0.003, "d": 1e-5}}} | spread
    elif form == "allreduce":
        job = ring_job(worker=worker)
        ring = {"a": 0.001, "b": 0.01, "latency_inter": 1e-4, "transfer_intra": 0.002, "transfer_inter": 0.02}
        job["speed"] = {"form": form, "batch": 8192, "types": {"a100": ring}} | spread
    else:
        points = [{"gpu_type": "a100", "workers": 2**i, "speed": 100 * 1.8**i} for i in range(10)]
        job = ring_job(worker=worker, speed={"form": form, "points": points} | spread)
    return instance([node()], [job]).jobs[0]


@pytest.mark.parametrize(("form", "servers"), [("ps-sync", 16), ("allreduce", 0), ("table", 0)])
@pytest.mark.parametrize(("tolerance", "most"), [(1e-2, 14), (1e-3, 40), (1e-4, 120)])
def test_512_counts_of_a_real_speed_take_few_breakpoints(form: str, servers: int, tolerance: float, most: int) -> None:
    job = job_of_512(form)
    w = np.arange(1, 513)
    speed = np.asarray(StatedSpeeds().predict(job, Configurations(0, w, servers, 64)).mean)
    speed = speed[: speed.argmax() + 1]
    curve = fit(speed, 1, tolerance, relative=True)
    assert len(curve.xs) <= most
    assert curve.error <= tolerance * speed.max()
    assert curve.concave
    assert np.abs(curve(whole(curve)) - speed).max() == pytest.approx(curve.error)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"values": np.zeros(0), "first": 1, "tolerance": 0.1}, "at least one number"),
        ({"values": np.array([1.0, math.nan]), "first": 1, "tolerance": 0.1}, "finite"),
        ({"values": np.ones(3), "first": 1, "tolerance": -0.1}, "tolerance must be at least 0"),
        ({"values": np.ones(3), "first": 1, "tolerance": math.nan}, "tolerance must be at least 0"),
    ],
)
def test_a_fit_refuses_what_it_cannot_fit(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        fit(**arguments)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (((), ()), "at least one"),
        (((1, 2), (1.0,)), "one value per breakpoint"),
        (((2, 2), (1.0, 2.0)), "must ascend"),
        (((1, 2), (1.0, math.inf)), "must be finite"),
        (((1, 2), (1.0, 2.0), -1.0), "at least 0"),
    ],
)
def test_a_piecewise_function_refuses_nonsense(fields: tuple[Any, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Piecewise(*fields)


def test_segments_and_values() -> None:
    assert BUMPY.segments[1] == Segment(4, 7, 5.0, 5.5)
    assert BUMPY.segments[2].slope == 3.5
    assert BUMPY(10) == pytest.approx(6.125)
    assert BUMPY(np.array([2, 3])).tolist() == [1.0, 3.0]
    assert math.isnan(BUMPY(13))
    assert (RISING.concave, BUMPY.concave, CONVEX.concave, POINT.concave) == (True, False, False, True)
    assert (RISING.encoding(), BUMPY.encoding()) == ("convex", "incremental")


# --- encodings ------------------------------------------------------------------------------------------------------


def mip_line(curve: Piecewise, encoding: Encoding, *, least: bool = False) -> tuple[Any, Any, mip.Encoded]:
    """A problem with nothing but a line, the variable that chooses it, and the line."""
    problem = pulp.LpProblem("line", pulp.LpMinimize if least else pulp.LpMaximize)

    def new(name: str, most: float, whole: bool = True) -> Any:
        return problem.add_variable(name, 0, most, "Integer" if whole else "Continuous")

    y = new("y", 1)
    encoded = mip.encode(new, curve, y, encoding, "l")
    problem += pulp.LpAffineExpression(encoded.value)
    for name, terms, sense, limit in encoded.rows:
        total = pulp.LpAffineExpression(terms)
        problem += (total == limit if sense == "==" else total <= limit), name
    return problem, y, encoded


def mip_value(
    curve: Piecewise, encoding: Encoding, w: float, *, chosen: float = 1, least: bool = False, relaxed: bool = False
) -> float | None:
    """Largest (or *least*) value that the encoding allows at *w* workers; None if it does not allow them."""
    problem, y, encoded = mip_line(curve, encoding, least=least)
    problem += y == chosen
    problem += pulp.LpAffineExpression(encoded.workers) == w
    status = problem.solve(pulp.HiGHS(msg=False, mip=not relaxed, threads=1))
    return pulp.value(problem.objective) if status == pulp.LpStatusOptimal else None


def cpsat_value(
    curve: Piecewise, encoding: Encoding, w: int, *, chosen: int = 1, least: bool = False, scale: float = 1000.0
) -> float | None:
    """The same in whole units of 1 / scale."""
    model = cp_model.CpModel()
    y = model.new_bool_var("y")
    encoded = cpsat.encode(model, curve, y, encoding, "l", scale)
    value = sum(weight * variable for variable, weight in encoded.value)
    model.add(y == chosen)
    model.add(sum(weight * variable for variable, weight in encoded.workers) == w)
    model.minimize(value) if least else model.maximize(value)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    return solver.objective_value if solver.solve(model) == cp_model.OPTIMAL else None


@pytest.mark.parametrize(("curve", "encoding"), CASES)
def test_mip_encodings_give_the_interpolation_at_every_whole_number(curve: Piecewise, encoding: Encoding) -> None:
    for w in whole(curve).tolist():
        assert mip_value(curve, encoding, w) == pytest.approx(curve(w), abs=1e-7)
        if encoding != "convex":
            assert mip_value(curve, encoding, w, least=True) == pytest.approx(curve(w), abs=1e-7)


@pytest.mark.parametrize(("curve", "encoding"), CASES)
@pytest.mark.parametrize("scale", [1000.0, 7.3])
def test_cpsat_encodings_give_the_interpolation_rounded_up(curve: Piecewise, encoding: Encoding, scale: float) -> None:
    allowed = cpsat.excess(curve, encoding, scale)
    most = 0.0
    for w in whole(curve).tolist():
        value = cpsat_value(curve, encoding, w, scale=scale)
        assert value is not None
        over = value - scale * curve(w)
        assert -1e-9 <= over <= allowed + 1e-9
        most = max(most, over)
        if encoding != "convex":
            assert cpsat_value(curve, encoding, w, least=True, scale=scale) == value
    assert most == pytest.approx(allowed), "the excess is the largest, not a guess"


@pytest.mark.parametrize(("curve", "encoding"), CASES)
def test_other_counts_are_impossible_and_a_line_not_chosen_is_nothing(curve: Piecewise, encoding: Encoding) -> None:
    for value in (mip_value, cpsat_value):
        assert value(curve, encoding, curve.xs[0] - 1) is None
        assert value(curve, encoding, curve.xs[-1] + 1) is None
        assert value(curve, encoding, 0, chosen=0) == pytest.approx(0)
        assert value(curve, encoding, curve.xs[0], chosen=0) is None
        assert value(curve, encoding, 0, chosen=0, least=True) == pytest.approx(0)


@pytest.mark.parametrize(("curve", "encoding"), CASES)
def test_relaxed_mip_encodings_reach_the_concave_hull_and_no_further(curve: Piecewise, encoding: Encoding) -> None:
    hull = concave_hull(curve(whole(curve)))
    for w, top in zip(whole(curve).tolist(), hull.tolist(), strict=True):
        assert mip_value(curve, encoding, w, relaxed=True) == pytest.approx(top, abs=1e-7)
        assert mip_value(curve, encoding, w / 2, chosen=0.5, relaxed=True) == pytest.approx(top / 2, abs=1e-7)


@pytest.mark.parametrize(("curve", "encoding"), CASES)
def test_assignments_are_solutions(curve: Piecewise, encoding: Encoding) -> None:
    for w in (None, *whole(curve).tolist()):
        model = cp_model.CpModel()
        y = model.new_bool_var("y")
        encoded = cpsat.encode(model, curve, y, encoding, "l", 100.0)
        model.add(y == (w is not None))
        given_values = dict(encoded.assignment(w))
        assert len(given_values) == len(model.proto.variables) - 1, "every variable has a value"
        for variable, value in given_values.items():
            model.add(variable == value)
        solver = cp_model.CpSolver()
        assert solver.solve(model) == cp_model.OPTIMAL
        assert sum(weight * solver.value(variable) for variable, weight in encoded.workers) == (w or 0)

        problem, chosen, line = mip_line(curve, encoding)
        values = dict(line.assignment(w)) | {chosen: float(w is not None)}
        assert len(values) == len(problem.variables())
        for variable in problem.variables():
            variable.varValue = values[variable]
        assert problem.valid(eps=1e-9)
        assert sum(weight * values[variable] for variable, weight in line.workers) == pytest.approx(w or 0)
        assert pulp.value(problem.objective) == pytest.approx(0 if w is None else curve(w))


@pytest.mark.parametrize("curve", [BUMPY, CONVEX])
def test_convex_is_refused_where_it_would_be_wrong(curve: Piecewise) -> None:
    """Without binaries the best of two far breakpoints stands in for the values between them."""
    with pytest.raises(ValueError, match=r"line-7: 'convex' holds for concave functions only, and at \d+ the slope"):
        mip.encode(lambda *_, **__: None, curve, None, "convex", "line-7")
    model = cp_model.CpModel()
    with pytest.raises(ValueError, match="use 'incremental' or 'sos2'"):
        cpsat.encode(model, curve, model.new_bool_var("y"), "convex", "line-7", 1.0)
    with pytest.raises(ValueError, match="unknown encoding 'log'"):
        cpsat.encode(model, curve, model.new_bool_var("y"), "log", "line-7", 1.0)  # type: ignore[arg-type]


@given(VALUES, st.floats(1e-3, 1e6))
def test_scaled_values_lie_above_and_rounding_does_not_add_up(values: NDArray[np.float64], scale: float) -> None:
    curve = fit(values, 1, 0.05, relative=True)
    up, slopes = cpsat.scaled(curve, scale)
    lengths = [1, *(segment.length for segment in curve.segments)]
    for above, value, length in zip(up, curve.vs, lengths, strict=True):
        slack = 1e-9 * (1 + scale * value)
        assert -slack <= above - scale * value < length + slack
    assert len(slopes) == len(curve.segments)
    assert cpsat.excess(curve, "incremental", scale) <= max(lengths) + 1e-9 * (1 + scale * values.max())
