"""The training runtime: elastic parameter-server training, apart from the scheduler.

    from coplace.training import read_job, train
    outcome = train(read_job("job.yaml"), "run")

========================= ========================================================================================
``job``                   the job file
``program``               what the user's program gives: model, data, loss
``run``                   from the file to the model
``coordinator``           decides: who computes what, what is committed, who is started
``tasks``                 servers and workers
``nodes``                 agents of the nodes, which start and watch tasks, and throttle them for tests
``sync``                  BSP, ASP, SSP, and SSP with a staleness chosen from speeds
``scheduling``            shares of a step, threads, wishes for more or fewer tasks
``data``                  the order of samples, the ledger of who used which, its audit
``parameters``            the flat vector, its slices, optimisers, compression
``transport``             messages through a shared file system, TCP or Ray
``law``                   the law of the accuracy curve, and when to stop by it
``telemetry``             steps, curves, history, TensorBoard, terminal
``checkpoint``            consistent states on disk
========================= ========================================================================================
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coplace.training.coordinator.control import Control as Control
    from coplace.training.coordinator.membership import JobError as JobError
    from coplace.training.coordinator.outcome import Outcome as Outcome
    from coplace.training.job import TrainingJob as TrainingJob
    from coplace.training.job import read_job as read_job
    from coplace.training.program import Program as Program
    from coplace.training.run import train as train

_HOME = {
    "Control": "coplace.training.coordinator.control",
    "JobError": "coplace.training.coordinator.membership",
    "Outcome": "coplace.training.coordinator.outcome",
    "Program": "coplace.training.program",
    "TrainingJob": "coplace.training.job",
    "read_job": "coplace.training.job",
    "train": "coplace.training.run",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'coplace.training' has no attribute {name!r}")
    return getattr(import_module(home), name)
