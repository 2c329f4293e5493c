"""Validating a version: its parts are spread over workers and added up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Validation:
    """The validation of one version.

    Attributes:
        number: of the validation.
        version: what is validated.
        samples: training samples that went into it.
        size: validation samples in all.
        final: whether training is over.
    """

    number: int
    version: int
    samples: int
    size: int
    final: bool
    missing: dict[str, int] = field(default_factory=dict)
    loss: float = 0.0
    accuracy: float = 0.0

    def part(self, worker: str, start: int, stop: int) -> dict[str, int]:
        """What *worker* is told to validate."""
        self.missing[worker] = stop - start
        return {"number": self.number, "version": self.version, "start": start, "stop": stop}

    def add(self, worker: str, fields: dict[str, Any]) -> bool:
        """Take a worker's part; whether that was the last one."""
        if fields["number"] != self.number or worker not in self.missing:
            return False
        del self.missing[worker]
        self.loss += fields["loss"]
        self.accuracy += fields["accuracy"]
        return not self.missing

    @property
    def result(self) -> tuple[float, float]:
        """Mean loss and accuracy."""
        return self.loss / self.size, self.accuracy / self.size
