"""The learning rate over the course of a job."""

from __future__ import annotations

import math


def rate(schedule: str, lr: float, progress: float) -> float:
    """The learning rate when *progress* (0 to 1) of all samples are done."""
    if schedule == "cosine":
        return lr * 0.5 * (1 + math.cos(math.pi * min(max(progress, 0.0), 1.0)))
    return lr
