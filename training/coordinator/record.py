"""What is written about a run: steps, curves, the history, events for TensorBoard; and what a terminal shows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path

from coplace.instances.history import Observation, read_history, write_history
from coplace.training.coordinator.roster import Roster, Server, Step, Worker
from coplace.training.coordinator.validation import Validation
from coplace.training.job import TrainingJob
from coplace.training.law import EarlyStop
from coplace.training.telemetry.curves import CurveLog, CurvePoint, read_curves
from coplace.training.telemetry.history import JobFacts, Summary
from coplace.training.telemetry.steps import SERVER, WORKER, StepLog, StepRecord
from coplace.training.telemetry.tensorboard import ScalarWriter
from coplace.training.telemetry.terminal import ServerRow, Snapshot, WorkerRow

MIB = 2**20
RECENT_SECONDS = 5.0
"""Over how long the speeds that are shown are averaged."""


class Record:
    """Takes note of every step and every validation.

    Args:
        job: the job.
        folder: where the files go.
        roster: the tasks.
        clock: seconds since the job started.
        tensorboard: whether to write events for TensorBoard.
        earlier: seconds and samples of the run that is resumed, up to its checkpoint; None if none is.
    """

    def __init__(
        self,
        job: TrainingJob,
        folder: Path,
        roster: Roster,
        clock: Callable[[], float],
        tensorboard: bool,
        earlier: tuple[float, int] | None = None,
    ) -> None:
        self._job = job
        self._folder = folder
        self._roster = roster
        self._clock = clock
        self._steps = StepLog(folder / "steps.csv")
        self._curves = CurveLog(folder / "curves.csv")
        self._scalars = ScalarWriter(folder / "tensorboard", say=lambda text: None) if tensorboard else None
        self._facts: JobFacts | None = None
        self._observations: list[Observation] = []
        self.points: list[CurvePoint] = []
        seconds, samples = earlier or (0.0, 0)
        if earlier is not None:
            self._read_earlier(seconds, samples)
        self._summary = Summary(None, every_seconds=job.telemetry_seconds, started=seconds, samples=samples)
        self._written = len(self._observations)
        self._flushed_at = 0.0
        self._closing = False
        self._recent: deque[tuple[float, str, int, float, float]] = deque()
        self._stop: EarlyStop | None = None
        self.model_mib: float | None = None
        self.samples = 0
        self.loss: float | None = None
        self.validation_loss: float | None = None
        self.accuracy: float | None = None
        self.outlook = ""
        self.further: float | None = None  # samples to the target, as foreseen
        self.samples_per_epoch = 0
        self._begun = 0.0
        self._losses = [0.0, 0.0]
        self.seconds = 0.0
        self.waited = 0.0
        self.communicated = 0.0
        self.computed = 0.0

    def begin(self, samples: int) -> None:
        """The size of the training set is known, and with it the budget."""
        stop = self._job.stop
        budget = float(samples * self._job.epochs)
        self._stop = EarlyStop(stop.accuracy, stop.least_gain, budget=budget, hopeless=stop.hopeless)
        for point in self.points:
            if point.accuracy is not None:
                self._stop.evaluated(float(point.samples), point.accuracy)
        self.samples_per_epoch = samples
        self._begun = self._clock()

    def _read_earlier(self, seconds: float, samples: int) -> None:
        """What was written before the checkpoint that the run starts from."""
        if (self._folder / "history.csv").exists():
            rows = read_history(self._folder / "history.csv")
            self._observations = [row for row in rows if row.at_seconds <= seconds]
        self._curves.flush()
        self.points = [point for point in read_curves(self._folder / "curves.csv") if point.samples <= samples]

    # --- Audience ---

    def step(self, worker: Worker, step: Step, version: int, ready: float) -> None:
        """A step of a worker was committed."""
        report = step.report or {}
        seconds = ready - step.released_at + step.waited
        compute = report.get("compute", 0.0)
        validate = report.get("validate", 0.0)
        communicated = max(0.0, seconds - step.waited - compute - validate)
        sent, received = int(report.get("sent", 0)), int(report.get("received", 0))
        record = StepRecord(
            at_seconds=ready,
            task=worker.name,
            role=WORKER,
            node=worker.node,
            step=step.number,
            version=step.version,
            epoch=step.batch[0].epoch if step.batch else 0,
            samples=sum(batch.count for batch in step.batch or ()),
            seconds=seconds,
            compute_seconds=compute,
            wait_seconds=step.waited,
            communicate_seconds=communicated,
            staleness=version - 1 - step.version,
            mib_sent=(sent - worker.sent) / MIB,
            mib_received=(received - worker.received) / MIB,
            rss_mib=report.get("rss", 0.0),
            share=step.share,
            threads=int(report.get("threads", 1)),
            loss=report.get("loss"),
        )
        worker.sent, worker.received = sent, received
        worker.row = {"share": step.share, "rss": record.rss_mib, "staleness": float(record.staleness)}
        self._take(record)
        self.seconds += seconds
        self.waited += step.waited
        self.communicated += communicated
        self.computed += compute
        self.samples += record.samples
        if record.loss is not None:
            self._losses[0] += record.loss * record.samples
            self._losses[1] += record.samples
        self._recent.append((ready, worker.name, record.samples, seconds, step.waited))

    def applied(self, server: Server, version: int, seconds: float, sent: int, received: int, rss: float) -> None:
        """A server has applied a commit."""
        self._take(
            StepRecord(
                at_seconds=self._clock(),
                task=server.name,
                role=SERVER,
                node=server.node,
                step=version,
                version=version,
                epoch=0,
                samples=0,
                seconds=seconds,
                compute_seconds=seconds,
                mib_sent=(sent - server.sent) / MIB,
                mib_received=(received - server.received) / MIB,
                rss_mib=rss,
            )
        )
        server.sent, server.received, server.rss = sent, received, rss

    def validated(self, validation: Validation) -> str | None:
        """A version was validated; the reason to end, if the job's rule says so."""
        self.validation_loss, self.accuracy = validation.result
        if self._losses[1]:
            self.loss = self._losses[0] / self._losses[1]
        self._losses = [0.0, 0.0]
        point = CurvePoint(
            at_seconds=self._clock(),
            epoch=validation.samples / self.samples_per_epoch,
            version=validation.version,
            samples=validation.samples,
            loss=self.loss,
            validation_loss=self.validation_loss,
            accuracy=self.accuracy,
        )
        self.points.append(point)
        self._curves.append(point)
        self._summary.evaluated(self.accuracy)
        if self._scalars is not None:
            self._scalars.point(point)
        assert self._stop is not None
        decision = self._stop.evaluated(float(validation.samples), self.accuracy)
        self.outlook = decision.reason
        self.further = decision.further
        return decision.reason if decision.stop else None

    # --- intervals ---

    def configure(self, workers: int, servers: int, span: int, cpu: tuple[int | None, int | None]) -> None:
        """The configuration, which starts another interval of the history if it is a new one."""
        job = self._job
        facts = JobFacts(
            model=job.network,
            sync=job.sync.name,
            workers=workers,
            servers=servers,
            batch=float(job.batch),
            span=span,
            model_mib=self.model_mib,
            job=job.name,
            worker_cpu=cpu[0],
            ps_cpu=cpu[1],
        )
        if facts != self._facts and workers:
            self._facts = facts
            self._observations += self._summary.change(self._clock(), facts)

    def flush(self) -> None:
        """Write the intervals of the history that have ended since."""
        self._observations += self._summary.until(self._clock())
        # The file is written whole: rarely where it is long.
        due = self._flushed_at + 0.01 * len(self._observations)
        if len(self._observations) > self._written and (self._closing or self._clock() >= due):
            self._flushed_at = self._clock()
            self._written = len(self._observations)
            write_history(self._observations, self._folder / "history.csv")

    def close(self) -> None:
        """Write all that is not written."""
        self._closing = True
        self._observations += self._summary.close(self._clock())
        self.flush()
        self._steps.close()
        self._curves.close()
        if self._scalars is not None:
            self._scalars.close()

    def _take(self, record: StepRecord) -> None:
        self._steps.append(record)
        self._observations += self._summary.add(record)
        if self._scalars is not None:
            self._scalars.step(record)

    # --- what is shown ---

    def recent(self) -> dict[str, tuple[float, float]]:
        """Samples/s and share of time waiting of each worker, lately."""
        now = self._clock()
        while self._recent and self._recent[0][0] < now - RECENT_SECONDS:
            self._recent.popleft()
        since = min(RECENT_SECONDS, max(now - self._begun, 0.1))
        sums: dict[str, list[float]] = {}
        for _, name, samples, seconds, waited in self._recent:
            entry = sums.setdefault(name, [0.0, 0.0, 0.0])
            entry[0] += samples
            entry[1] += seconds
            entry[2] += waited
        return {name: (entry[0] / since, entry[2] / entry[1] if entry[1] else 0.0) for name, entry in sums.items()}

    def snapshot(self, state: str, epoch: float) -> Snapshot:
        """The run as a terminal shows it."""
        recent = self.recent()
        workers = tuple(
            WorkerRow(
                worker.name,
                worker.node,
                worker.row.get("share", 0.0),
                recent.get(worker.name, (None, None))[0],
                recent.get(worker.name, (None, None))[1],
                worker.row.get("staleness"),
                worker.row.get("rss"),
                worker.threads,
            )
            for worker in self._roster.workers.values()
        )
        servers = tuple(
            ServerRow(server.name, server.node, (server.slice[1] - server.slice[0]) * 4 / MIB, server.rss or None)
            for server in self._roster.servers.values()
        )
        speed = sum(each for each, _ in recent.values())
        return Snapshot(
            job=self._job.name,
            state=state,
            at_seconds=self._clock(),
            epoch=epoch,
            epochs=float(self._job.epochs),
            samples=self.samples,
            samples_per_second=speed if recent else None,
            loss=self._losses[0] / self._losses[1] if self._losses[1] else self.loss,
            accuracy=self.accuracy,
            target=self._job.stop.accuracy,
            foreseen_samples=self.further,
            foreseen_seconds=self.further / speed if self.further is not None and speed else None,
            workers=workers,
            servers=servers,
        )
