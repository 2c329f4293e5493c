"""Scalars for TensorBoard, written without PyTorch or TensorFlow; off where TensorBoard is not installed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from coplace.training.telemetry.curves import CurvePoint
from coplace.training.telemetry.steps import WORKER, StepRecord


def _say(text: str) -> None:
    print(text, file=sys.stderr)


class ScalarWriter:
    """Writes loss, accuracy, speed, and each worker's share and wait to an event file.

    Curves stand against samples; shares, waits and speed against samples too, as averages over *every_seconds*, since
    an event for each step of each worker would be most of the file.

    Args:
        directory: folder of the run; it is made if it is not there.
        every_seconds: what the values of workers are averaged over.
        started: wall-clock time at which the job's seconds began, as of :func:`time.time`; by default now.
        say: gets one line if TensorBoard is not installed; by default it goes to standard error.

    Attributes:
        on: whether anything is written.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        every_seconds: float = 5.0,
        started: float | None = None,
        say: Callable[[str], object] = _say,
    ) -> None:
        self._every = every_seconds
        self._started = time.time() if started is None else started
        self._since: float | None = None
        self._at = 0.0
        self._samples = 0
        self._sums: dict[str, list[float]] = {}  # by worker: steps, seconds, waited, shares
        self._done = 0
        self._writer: Any = None
        try:
            event_pb2 = import_module("tensorboard.compat.proto.event_pb2")
            summary_pb2 = import_module("tensorboard.compat.proto.summary_pb2")
            writer = import_module("tensorboard.summary.writer.event_file_writer")
        except ImportError:
            say("TensorBoard is not installed, so nothing is written for it; pip install tensorboard")
            return
        self._event = event_pb2.Event
        self._summary = summary_pb2.Summary
        self._writer = writer.EventFileWriter(os.fspath(directory), max_queue_size=1000, flush_secs=5)

    @property
    def on(self) -> bool:
        """Whether anything is written."""
        return self._writer is not None

    def point(self, point: CurvePoint) -> None:
        """Write what one evaluation found."""
        self._samples = max(self._samples, point.samples)
        values = {
            "loss/training": point.loss,
            "loss/validation": point.validation_loss,
            "accuracy/validation": point.accuracy,
        }
        known = {tag: value for tag, value in values.items() if value is not None}
        self._write(known, point.samples, point.at_seconds)

    def step(self, record: StepRecord) -> None:
        """Take one step in; the steps of servers are passed over."""
        if not self.on or record.role != WORKER:
            return
        if self._since is None:
            self._since = max(0.0, record.at_seconds - record.seconds)
        self._at = max(self._at, record.at_seconds)
        self._samples += record.samples
        self._done += record.samples
        sums = self._sums.setdefault(record.task, [0.0, 0.0, 0.0, 0.0])
        for index, value in enumerate((1.0, record.seconds, record.wait_seconds, record.share)):
            sums[index] += value
        if record.at_seconds - self._since >= self._every:
            self._averages(record.at_seconds)

    def close(self) -> None:
        """Write what is left and close the file; more than once does no harm."""
        if self._writer is not None:
            if self._since is not None and self._at > self._since:
                self._averages(self._at)
            self._writer.close()
            self._writer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _averages(self, at_seconds: float) -> None:
        assert self._since is not None
        values = {"speed/samples_per_second": self._done / (at_seconds - self._since)}
        for task, (steps, seconds, waited, shares) in sorted(self._sums.items()):
            values[f"share/{task}"] = shares / steps
            values[f"wait/{task}"] = waited / seconds if seconds > 0 else 0.0
        self._write(values, self._samples, at_seconds)
        self._since, self._done = at_seconds, 0
        self._sums.clear()

    def _write(self, values: Mapping[str, float], samples: int, at_seconds: float) -> None:
        if self._writer is None or not values:
            return
        scalars = [self._summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        event = self._event(wall_time=self._started + at_seconds, step=samples, summary=self._summary(value=scalars))
        self._writer.add_event(event)
