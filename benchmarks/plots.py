"""Pictures of the benchmark ``scale``; needs matplotlib, which ``pip install -e '.[bench]'`` brings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import MeasurementError

COLOURS = ("#5ec962", "#21918c", "#3b78b8", "#3b428b", "#440154")
"""Darker for larger clusters, and told apart without seeing red and green."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A solve.

    Attributes:
        name: of the row.
        nodes: size.
        seconds: wall time.
        bound: upper bound on the objective at the end; None without one.
        events: seconds and objective of each better plan, in order.
    """

    name: str
    nodes: int
    seconds: float
    bound: float | None
    events: Sequence[tuple[float, float]]


def gap_against_time(curves: Sequence[Curve], path: Path) -> None:
    """How far the best plan so far was from the bound that was known at the end."""
    with _axes(path) as axes:
        for curve, colour in zip(curves, COLOURS, strict=False):
            if curve.bound is None or not curve.events:
                continue
            times = [seconds for seconds, _ in curve.events]
            gaps = [100 * max(1e-5, 1 - objective / curve.bound) for _, objective in curve.events]
            axes.step(times, gaps, where="post", color=colour, marker="o", markersize=5, linewidth=2, label=curve.name)
        axes.set(xscale="log", yscale="log", xlabel="wall time, s", ylabel="gap to the final bound, %")
        axes.set_title("Gap of the best plan so far", loc="left")
        if axes.lines:
            axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def time_against_size(curves: Sequence[Curve], targets: Mapping[int, float], path: Path) -> None:
    """Wall time of each size, beside the time that it may take."""
    with _axes(path) as axes:
        sizes = sorted(targets)
        allowed = [targets[size] for size in sizes]
        axes.plot(sizes, allowed, color="#999999", linestyle="--", marker="_", label="target")
        axes.plot(
            [curve.nodes for curve in curves], [curve.seconds for curve in curves], color=COLOURS[2], marker="o",
            label="measured",
        )  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel="wall time, s")
        axes.set_xticks(sizes)
        axes.set_title("Time of a solve", loc="left")
        axes.legend(frameon=False)


def find_matplotlib() -> None:
    """Refuse to draw before anything is measured.

    Raises:
        MeasurementError: matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MeasurementError("--plots needs matplotlib: .venv/bin/pip install -e '.[bench]'") from None


@contextmanager
def _axes(path: Path) -> Iterator[Any]:
    """Axes to draw on; the picture is written to *path*, in the format that its ending says.

    Raises:
        MeasurementError: matplotlib is not installed.
    """
    find_matplotlib()
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    yield axes
    plain = FuncFormatter(lambda value, _: f"{value:,g}")  # 10, not 10 to the power of 1
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(plain)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    axes.minorticks_off()
    axes.grid(color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
