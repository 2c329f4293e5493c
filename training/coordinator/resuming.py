"""Whether a job can go on from a checkpoint: what must be as it was, and what may be another."""

from __future__ import annotations

from collections.abc import Sequence

from coplace.instances.errors import InputError, Problem
from coplace.training.checkpoint import Checkpoint
from coplace.training.job import TrainingJob

_OTHERS = ("values", "step")
"""What a checkpoint holds besides what the optimiser remembers."""


def check_resumable(checkpoint: Checkpoint, job: TrainingJob, states: Sequence[str]) -> None:
    """Compare a checkpoint with the job that is to go on from it.

    The model's layout and the size of the training set are compared when a worker has loaded them.

    Args:
        checkpoint: the newest one.
        job: as it is now; batch, sync, schedule, tasks and much else may differ from what they were.
        states: names of what the job's optimiser remembers.

    Raises:
        InputError: they do not fit together.
    """
    problems = []
    opened, seed = int(checkpoint.ledger["opened"]), int(checkpoint.ledger["seed"])
    if job.epochs < opened:
        rule = f"must be at least {opened} to go on, since that epoch has begun"
        problems.append(Problem("epochs", rule, str(job.epochs)))
    if job.seed != seed:
        problems.append(Problem("seed", f"must be {seed} to go on, as in the checkpoint", str(job.seed)))
    remembered = sorted(name for name in checkpoint.state if name not in _OTHERS)
    if remembered != sorted(states):
        rule = f"must remember what the checkpoint holds ({', '.join(remembered) or 'nothing'}) to go on"
        found = f"{job.optimizer.name} ({', '.join(sorted(states)) or 'nothing'})"
        problems.append(Problem("optimizer", rule, found))
    if problems:
        raise InputError(problems)
