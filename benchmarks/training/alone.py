"""Plain training in one process, which the runtime is compared with: ``python -m benchmarks.training.alone JOB``.

JOB is a training job as JSON. Prints, as JSON, samples/s and the accuracy after each epoch. A second argument is a
number of seconds, after which it stops. Samples come in the order that the runtime uses, the optimiser is torch's.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch

from coplace.training.coordinator.rate import rate
from coplace.training.data.permutation import order
from coplace.training.job import TrainingJob
from coplace.training.program import load_program, samples_at, size_of


def main() -> None:
    """Train, and print what came of it."""
    job = TrainingJob.model_validate_json(sys.argv[1])
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else None
    torch.set_num_threads(1 if job.threads == "auto" else job.threads)
    torch.manual_seed(job.seed)
    program = load_program(job.program, job.arguments)
    settings = job.optimizer.model_dump(exclude={"name"})
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[job.optimizer.name]
    optimizer = kind(program.model.parameters(), fused=True, **settings)
    samples = size_of(program.data)
    _step(program, optimizer, order(samples, job.seed, 0)[: job.batch])  # what torch loads at first is not counted
    torch.manual_seed(job.seed)
    program = load_program(job.program, job.arguments)
    optimizer = kind(program.model.parameters(), fused=True, **settings)
    print("ready", flush=True)
    sys.stdin.readline()
    began, done, accuracies = time.perf_counter(), 0, []
    validated = 0.0
    for epoch in range(job.epochs if seconds is None else 10**9):
        positions = order(samples, job.seed, epoch)
        for start in range(0, samples, job.batch):
            chosen = positions[start : start + job.batch]
            progress = done / (samples * job.epochs)
            optimizer.param_groups[0]["lr"] = rate(job.schedule, job.optimizer.lr, progress)
            _step(program, optimizer, chosen)
            done += len(chosen)
            if seconds is not None and time.perf_counter() - began >= seconds:
                break
        since = time.perf_counter()
        accuracies.append([since - began - validated, _accuracy(program)])
        validated += time.perf_counter() - since
        if seconds is not None and time.perf_counter() - began >= seconds:
            break
    spent = time.perf_counter() - began - validated
    print(json.dumps({"speed": done / spent, "seconds": spent, "curve": accuracies}))


def _step(program: Any, optimizer: Any, chosen: Any) -> None:
    inputs, target = samples_at(program.data, chosen)
    program.model.train()
    optimizer.zero_grad(set_to_none=False)
    loss = program.loss(program.forward(program.model, inputs), target)
    loss.backward()
    optimizer.step()


def _accuracy(program: Any) -> float:
    if program.validation is None:
        return 0.0
    program.model.eval()
    with torch.no_grad():
        inputs, target = program.validation
        return float(program.accuracy(program.forward(program.model, inputs), target))


if __name__ == "__main__":
    main()
