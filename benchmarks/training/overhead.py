"""What a server and a worker cost against plain training, and what pushing and pulling costs against copying."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from benchmarks.registry import Figure, Target, benchmark


@benchmark("training-overhead", "one server and one worker against one plain process; transports against copying")
def overhead(smoke: bool) -> Iterable[Figure]:
    """Samples/s of a 5 M parameter perceptron, batch 1,024, one torch thread each, as a ratio in alternating runs."""
    from benchmarks.training.runs import alone, job, nodes, run

    millions, batch, rounds = (0.1, 64, 1) if smoke else (5.0, 1024, 3)
    samples, epochs = (512, 1) if smoke else (16_384, 2)
    transports = ("file",) if smoke else ("file", "tcp", "ray")
    ratios: dict[str, list[float]] = {transport: [] for transport in transports}
    plain = []
    arguments = {"millions": millions, "samples": samples}
    for _ in range(rounds):
        base = job("wide", arguments=arguments, batch=batch, epochs=epochs, **nodes([None]))
        plain.append(alone(base)["speed"])
        for transport in transports:
            setting: dict[str, Any] = {"transport": transport}
            if transport == "ray":
                setting = {"transport": "ray", "nodes": None, "tasks": None}
            ran = run(type(base).model_validate({**base.model_dump(), **setting}))
            ratios[transport].append(ran.speed() / plain[-1])
    yield Figure("plain training", statistics.median(plain), "samples/s")
    for transport in transports:
        target = Target(">=", 0.85) if transport == "file" else None
        yield Figure(
            f"{transport}: share of the speed of plain training", statistics.median(ratios[transport]), "", target
        )
    from benchmarks.training.copying import ratio

    size, repeats = (2**20, 1) if smoke else (100 * 10**6, 15)
    for transport in transports:
        yield Figure(
            f"{transport}: pushing and pulling 100 MB, share of the speed of copying",
            ratio(transport, size, repeats),
            "",
            Target(">=", 0.6),
        )
