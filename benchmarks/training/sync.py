"""Strategies side by side: time to accuracy, waiting, throughput, scaling."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.registry import Figure, Target, benchmark

LIMIT = 0.35
"""Cores of each worker's node, so that four of them and a server find two cores enough."""

RATE = 0.2
"""Learning rate of an update of all samples of a step, at first; it falls to 0 along a cosine."""

TARGET = 0.95
"""Accuracy whose time is taken."""

STRATEGIES: dict[str, dict[str, Any]] = {
    "bsp": {"sync": {"name": "bsp"}, "scheduling": "static"},
    "asp": {"sync": {"name": "asp"}, "scheduling": "static"},
    "ssp": {"sync": {"name": "ssp", "staleness": 3}, "scheduling": "static"},
    "dynamic": {"sync": {"name": "bsp"}, "scheduling": "dynamic"},
    "adaptive": {"sync": {"name": "bsp"}, "scheduling": "adaptive"},
}
"""Settings of a job; ``dynamic`` and ``adaptive`` are BSP with shares by sampled resources and by measured speed."""

AS_GOOD = ("bsp", "ssp", "adaptive")
"""Strategies that should end as good as one process."""


@benchmark("training-sync", "BSP, ASP, SSP, dynamic and adaptive scheduling with 2, 3 and 4 workers of equal nodes")
def sync(smoke: bool) -> Iterable[Figure]:
    """Digits, convolutions; every worker's node is held to the same share of a core, and so is the one process."""
    from benchmarks.training.runs import alone, job, nodes, run

    epochs, counts = (1, (2,)) if smoke else (25, (2, 3, 4))
    batch = 120
    base = {
        "arguments": {"channels": 8 if smoke else 64},
        "epochs": epochs,
        "optimizer": {"name": "sgd", "lr": RATE},
        "schedule": "cosine",
    }
    plain = alone(job("convolutions", batch=batch, **base), limit=LIMIT)
    final = sum(accuracy for _, accuracy in plain["curve"][-5:]) / len(plain["curve"][-5:])
    first = next((seconds for seconds, accuracy in plain["curve"] if accuracy >= TARGET), None)
    yield Figure("one process: speed", plain["speed"], "samples/s")
    yield Figure("one process: final accuracy", final, "")
    if first is not None:
        yield Figure(f"one process: time to {TARGET:.0%}", first, "s")
    for count in counts:
        for name in ("asp", "adaptive") if smoke else STRATEGIES:
            settings = STRATEGIES[name]
            grouped = settings["sync"]["name"] == "bsp"
            # Asynchronous workers each make updates: the same samples per update and step length per sample in all.
            own = batch if grouped else batch // count
            lr = RATE if grouped else RATE / count
            optimizer = {"name": "sgd", "lr": lr}
            where = nodes([LIMIT] * count)
            ran = run(job("convolutions", batch=own, **{**base, "optimizer": optimizer}, **settings, **where))
            label = f"{name}, {count} workers"
            speed = ran.speed()
            yield Figure(f"{label}: speed over one process", speed / plain["speed"], "×")
            yield Figure(f"{label}: share of the sum of their speeds alone", speed / plain["speed"] / count, "")
            yield Figure(f"{label}: share of time waiting", ran.waiting_share(), "")
            taken = ran.seconds_to(TARGET)
            if taken is not None and first is not None:
                yield Figure(f"{label}: time to {TARGET:.0%} over one process", taken / first, "×")
            target = Target("<=", 0.005) if name in AS_GOOD else None
            lost = max(0.0, final - ran.final_accuracy())
            yield Figure(f"{label}: final accuracy below that of one process", lost, "", target)
