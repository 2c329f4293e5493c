"""Measured speeds and resident sets over counts of workers and servers, kept as a history for the learned models.

Each worker's node is held to :data:`LIMIT` cores, so that a machine of two cores stands for several small ones.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.registry import Figure, benchmark

LIMIT = 0.3
"""Cores of each worker's node."""

MODELS: dict[str, dict[str, Any]] = {
    "digits-mlp": {"program": "digits", "arguments": {"hidden": 512, "layers": 2}, "batch": 240},
    "digits-cnn": {"program": "convolutions", "arguments": {"channels": 16}, "batch": 240},
    "text-mlp": {"program": "text", "arguments": {"width": 256}, "batch": 512},
    "patches-cnn": {"program": "images", "arguments": {}, "batch": 256},
    "wide-1m": {"program": "wide", "arguments": {"millions": 1.0, "samples": 4096}, "batch": 256},
}
WORKERS = (1, 2, 3, 4)
SERVERS = (1, 2)
SYNCS: tuple[dict[str, Any], ...] = ({"name": "bsp"}, {"name": "asp"})


def measure(path: Path, seconds: float, models: Iterable[str], workers: Iterable[int], servers: Iterable[int]) -> int:
    """Run the grid and write the history to *path*; how many rows it has."""
    from benchmarks.training.runs import job, run
    from benchmarks.training.stragglers import stop_after
    from coplace.instances.history import read_history, write_history

    rows = []
    for name in models:
        for sync in SYNCS:
            for w in workers:
                for p in servers:
                    chosen = MODELS[name]
                    hosts: list[dict[str, Any]] = [{"name": "s", "cpu": 2}]
                    limit = {"cpu": f"{round(1000 * LIMIT)}m", "limit": True}
                    hosts += [{"name": f"w{index}", **limit} for index in range(w)]
                    tasks = {"s": {"ps": p}, **{f"w{index}": {"worker": 1} for index in range(w)}}
                    batch = chosen["batch"] if sync["name"] == "bsp" else chosen["batch"] // w
                    training = job(
                        chosen["program"],
                        name=f"{name}-{sync['name']}-{w}-{p}",
                        model=name,
                        arguments=chosen["arguments"],
                        batch=batch,
                        sync=sync,
                        epochs=10**6,
                        scheduling="static",
                        optimizer={"name": "sgd", "lr": 0.05 if sync["name"] == "bsp" else 0.05 / w},
                        nodes=hosts,
                        tasks=tasks,
                        telemetry_seconds=seconds / 2,
                    )
                    with tempfile.TemporaryDirectory() as parent:
                        folder = Path(parent, "run")
                        run(training, stop_after(seconds), folder)
                        rows += list(read_history(folder / "history.csv"))
    write_history(rows, path)
    return len(rows)


@benchmark("training-grid", "how long a grid of counts and models takes to measure; the file itself by its own command")
def grid(smoke: bool) -> Iterable[Figure]:
    """One model with one and two workers."""
    with tempfile.TemporaryDirectory() as folder:
        workers = (1,) if smoke else (1, 2)
        rows = measure(Path(folder, "grid.csv"), 1.0 if smoke else 5.0, ["digits-mlp"], workers, (1,))
    yield Figure("rows of history", float(rows), "")
