"""How a run ended."""

from __future__ import annotations

from dataclasses import dataclass

from coplace.training.coordinator.membership import Failure
from coplace.training.coordinator.state import Pause


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run.

    Attributes:
        ended: why it ended: ``epochs`` when all are done, else a sentence.
        complete: whether it ended as it should: by its epochs, its target or its rule for stopping early.
        seconds: since the job started.
        training_seconds: of these, since the first step could start.
        epochs: done, fractions included.
        samples: whose updates are in the parameters.
        version: number of the last update.
        loss, validation_loss, accuracy: the latest; None if not known.
        speed: samples/s over the training time.
        waited: share of the workers' time spent waiting for each other.
        communicated: share of the workers' time spent fetching parameters and sending gradients.
        rolled_back: samples whose updates were lost by failures and done again.
        pauses: times in which parameters were moved.
        failures: tasks and nodes that were lost.
    """

    ended: str
    complete: bool
    seconds: float
    training_seconds: float
    epochs: float
    samples: int
    version: int
    loss: float | None
    validation_loss: float | None
    accuracy: float | None
    speed: float
    waited: float
    communicated: float
    rolled_back: int = 0
    pauses: tuple[Pause, ...] = ()
    failures: tuple[Failure, ...] = ()
