"""From steps to the history of observations that learning reads: one row for each interval of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from coplace.instances.cluster import NO_GPU
from coplace.instances.history import Observation
from coplace.training.telemetry.steps import SERVER, WORKER, StepRecord


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What stays the same during an interval; attributes as in :class:`coplace.instances.history.Observation`.

    Workers without GPUs are of GPU type ``none``, as nodes without GPUs are in an instance.
    """

    model: str | None
    sync: Literal["bsp", "asp", "ssp"]
    workers: int
    servers: int
    batch: float
    span: int
    model_mib: float | None = None
    job: str | None = None
    gpu_type: str = NO_GPU
    gpus_per_worker: int = 0
    worker_cpu: int | None = None
    ps_cpu: int | None = None
    worker_memory: int | None = None
    ps_memory: int | None = None
    pressure: float | None = None


@dataclass(slots=True)
class _Sums:
    """What the steps of the open interval add up to."""

    records: int = 0
    steps: int = 0
    samples: int = 0
    staleness: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    mib_sent: float = 0.0
    worker_rss: float = 0.0
    ps_rss: float = 0.0
    loss_sum: float = 0.0
    loss_samples: int = 0


class Summary:
    """Gathers steps into one observation per interval.

    An interval ends when *every_seconds* are over and whenever the configuration changes. A step counts where it ends;
    one that is reported late, in the interval that is open then. Rows come from :meth:`until`, :meth:`change` and
    :meth:`close`, in order of time.

    Args:
        facts: the configuration at the start; None if the job does not run yet.
        every_seconds: length of a whole interval, in seconds.
        started: start of the first interval, in seconds since the job was submitted.
        samples: samples that were done before, by an earlier run.
    """

    def __init__(
        self, facts: JobFacts | None, *, every_seconds: float = 60.0, started: float = 0.0, samples: int = 0
    ) -> None:
        if not every_seconds > 0:
            raise ValueError("every_seconds must be above 0")
        self._facts = facts
        self._every = every_seconds
        self._start = started
        self._samples = samples
        self._loss: float | None = None
        self._accuracy: float | None = None
        self._sums = _Sums()

    def add(self, record: StepRecord) -> list[Observation]:
        """Take one step in; gives the intervals that ended before it did."""
        if record.role not in (WORKER, SERVER):
            raise ValueError(f"the role of a step is worker or server, not {record.role!r}")
        ended = self.until(record.at_seconds)
        self._sums.records += 1
        self._sums.mib_sent += record.mib_sent
        if record.role == SERVER:
            self._sums.ps_rss = max(self._sums.ps_rss, record.rss_mib)
            return ended
        self._sums.worker_rss = max(self._sums.worker_rss, record.rss_mib)
        self._sums.steps += 1
        self._sums.samples += record.samples
        self._sums.seconds += record.seconds
        self._sums.waited += record.wait_seconds
        self._sums.staleness += record.staleness
        if record.loss is not None and math.isfinite(record.loss):
            self._sums.loss_sum += record.loss * record.samples
            self._sums.loss_samples += record.samples
        return ended

    def evaluated(self, accuracy: float | None) -> None:
        """Remember the latest validation accuracy."""
        if accuracy is not None and math.isfinite(accuracy):
            self._accuracy = accuracy

    def until(self, at_seconds: float) -> list[Observation]:
        """Observations of the whole intervals that have ended by *at_seconds*; empty ones have speed 0."""
        ended = []
        while at_seconds - self._start >= self._every:
            ended += self._end(self._start + self._every, whole=True)
        return ended

    def change(self, at_seconds: float, facts: JobFacts | None) -> list[Observation]:
        """End the interval, since the configuration is another one from here on.

        With None the job stands still, for a checkpoint or a move, and the time until the next change is not counted.
        """
        ended = self.until(at_seconds) + self._end(max(at_seconds, self._start), whole=False)
        self._facts = facts
        return ended

    def close(self, at_seconds: float) -> list[Observation]:
        """End the last interval."""
        return self.change(at_seconds, None)

    def _end(self, at: float, *, whole: bool) -> list[Observation]:
        """Close the interval at *at*; a part of one in which no step ended says nothing and is left out.

        What is reported while the job stands still counts towards its samples only.
        """
        seconds = at - self._start
        if seconds <= 0:
            return []
        self._samples += self._sums.samples
        if self._sums.loss_samples:
            self._loss = self._sums.loss_sum / self._sums.loss_samples
        observations = []
        if self._facts is not None and (whole or self._sums.records):
            observations.append(self._observation(self._facts, at, seconds))
        self._start = at
        self._sums = _Sums()
        return observations

    def _observation(self, facts: JobFacts, at: float, seconds: float) -> Observation:
        return Observation(
            at_seconds=at,
            seconds=seconds,
            job=facts.job,
            model=facts.model,
            architecture="ps",
            sync=facts.sync,
            gpu_type=facts.gpu_type,
            workers=facts.workers,
            servers=facts.servers,
            gpus_per_worker=facts.gpus_per_worker,
            worker_cpu=facts.worker_cpu,
            ps_cpu=facts.ps_cpu,
            worker_memory=facts.worker_memory,
            ps_memory=facts.ps_memory,
            batch=facts.batch,
            span=facts.span,
            pressure=facts.pressure,
            speed=self._sums.samples / seconds,
            worker_rss=self._sums.worker_rss or None,
            ps_rss=self._sums.ps_rss or None,
            model_mib=facts.model_mib,
            sync_wait_share=min(1.0, self._sums.waited / self._sums.seconds) if self._sums.seconds > 0 else None,
            staleness=self._sums.staleness / self._sums.steps if self._sums.steps else None,
            mib_sent=self._sums.mib_sent,
            samples=self._samples,
            loss=self._loss,
            accuracy=self._accuracy,
        )
