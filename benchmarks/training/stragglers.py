"""Workers of unequal and of changing speed: what adaptive scheduling saves of static BSP's waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.registry import Figure, Target, benchmark

if TYPE_CHECKING:
    from coplace.training import Control

LIMITS = (0.6, 0.6, 0.2)
"""Cores of the three workers' nodes."""

CHANGES = ((0.6, 0.6, 0.2), (0.2, 0.6, 0.6), (0.6, 0.2, 0.6), (0.4, 0.4, 0.4))
"""Cores of the three nodes, one after the other."""

CHANGE_SECONDS = 20.0

STRATEGIES: dict[str, dict[str, Any]] = {
    "static": {"scheduling": "static"},
    "dynamic": {"scheduling": "dynamic"},
    "adaptive": {"scheduling": "adaptive"},
    "ssp": {"scheduling": "static", "sync": {"name": "ssp", "staleness": 3}},
}


SHARING = ("static", "dynamic", "adaptive")
"""Strategies that are compared on changing nodes: those that differ in who gets how much."""


@benchmark(
    "training-stragglers",
    "static and adaptive scheduling on nodes of 0.6, 0.6 and 0.2 cores, fixed and changing",
)
def stragglers(smoke: bool) -> Iterable[Figure]:
    """Text, BSP of 8,192 samples a step; the barrier time of a sample, and the speed over that of each node alone."""
    from benchmarks.training.runs import alone, job, nodes, run

    seconds = 1.5 if smoke else 20.0
    strategies = {name: STRATEGIES[name] for name in (("static", "adaptive") if smoke else STRATEGIES)}
    limits = (0.9, 0.9, 0.5) if smoke else LIMITS
    others = [name for name in strategies if name != "static"]
    program = "digits" if smoke else "text"
    arguments = {"hidden": 16} if smoke else {"width": 1024, "samples": 65_536}
    batch = 8192
    base = {"arguments": arguments, "batch": batch, "epochs": 10**6, "optimizer": {"name": "sgd", "lr": 0.05}}
    settings = {**base, "evaluate_every": 1e6, "checkpoints": {"every_seconds": 1e6}}

    speeds = {}
    for limit in sorted({*limits}):  # with as many samples a step as its share is: small batches are faster here
        single = job(program, **{**settings, "batch": round(batch * limit / sum(limits))})
        speeds[limit] = alone(single, seconds / 3, limit)["speed"]
    together = sum(speeds[limit] for limit in limits)
    yield Figure("sum of the workers alone", together, "samples/s")

    waits, rates = {}, {}
    for name, strategy in strategies.items():
        ran = run(job(program, **settings, **strategy, **nodes(limits)), stop_after(seconds))
        skip = seconds / 4  # the first shares are equal ones
        waits[name], rates[name] = ran.waited(skip), ran.speed(skip)
        yield Figure(f"{name}: share of the summed speed", rates[name] / together, "", _target(name == "adaptive", 0.9))
        yield Figure(f"{name}: seconds in barriers per 1,000 samples", 1000 * waits[name], "s")
    for name in others:
        left = waits[name] / max(waits["static"], 1e-9)
        target = Target("<=", 0.15) if name == "adaptive" else None
        yield Figure(f"{name}: barrier time of a sample over that of static BSP", left, "×", target)
        yield Figure(f"{name}: speed over static BSP", rates[name] / rates["static"], "×")

    period = 0.4 if smoke else CHANGE_SECONDS
    rates = {}
    changes = CHANGES[:1] if smoke else CHANGES
    for name in SHARING:
        if name in strategies:
            ran = run(job(program, **settings, **strategies[name], **nodes(limits)), _changing(period, changes))
            rates[name] = ran.speed()
    for name in [name for name in rates if name != "static"]:
        gain = rates[name] / rates["static"]
        label = f"{name}, nodes that change every {period:g} s: speed over static BSP"
        yield Figure(label, gain, "×", _target(name == "adaptive", 1.3))


def _target(wanted: bool, value: float) -> Target | None:
    return Target(">=", value) if wanted else None


def stop_after(seconds: float) -> Callable[[Control], None]:
    """Stop the job so many seconds after its first update."""

    def meddle(control: Control) -> None:
        _until_training(control)
        time.sleep(seconds)
        control.ask("stop")

    return meddle


def _changing(period: float, changes: Sequence[Sequence[float]]) -> Callable[[Control], None]:
    def meddle(control: Control) -> None:
        _until_training(control)
        for limits in changes:
            for index, limit in enumerate(limits):
                control.ask("slow", node=f"w{index}", share=limit)
            time.sleep(period)
        control.ask("stop")

    return meddle


def _until_training(control: Control) -> None:
    deadline = time.monotonic() + 120
    while control.ask("status")["version"] < 1 and time.monotonic() < deadline:
        time.sleep(0.1)
