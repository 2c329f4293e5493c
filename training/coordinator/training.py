"""The steps of the training: samples are handed out, gradients committed, versions validated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from coplace.instances.errors import InputError, Problem
from coplace.training.coordinator.rate import rate
from coplace.training.coordinator.roster import Roster, Server, Step, Worker, number
from coplace.training.coordinator.validation import Validation
from coplace.training.data.journal import Journal
from coplace.training.data.ledger import Batch, Ledger
from coplace.training.data.shares import apportion
from coplace.training.data.spans import merge
from coplace.training.job import TrainingJob
from coplace.training.messages import Message
from coplace.training.scheduling.balance import Seen, balance
from coplace.training.scheduling.threads import threads_of
from coplace.training.sync import Pace, synchronisation
from coplace.training.transport import Endpoint

REWEIGH = 0.1
"""Relative change of a worker's weight from which on the rest of an epoch is split anew."""


LEAST_SAMPLES = 2
"""Least samples of a step, unless the job's batch or an epoch is smaller: batch normalisation can make nothing of a
single one."""


class Audience(Protocol):
    """Who is told what the training does."""

    def step(self, worker: Worker, step: Step, version: int, ready: float) -> None:
        """A worker's gradient was committed as, or as a part of, *version*."""

    def validated(self, validation: Validation) -> str | None:
        """A version was validated; the reason to end, if that is one."""
        ...


class Training:
    """Decides the order of commits and who starts what when.

    Args:
        job: what is trained.
        endpoint: the coordinator's.
        roster: the tasks.
        audience: who is told.
        clock: seconds that only grow.
        journal: of the ledger.
        nodes: milli-cores and sampled free cores of each node.

    Attributes:
        version: of the newest commit; it is never used twice, not even after a rollback.
        ledger: of the samples; None until the first worker has said how many there are.
        servers: those that hold the parameters, in order; commits go to them.
        generation: of the layout of parameters on servers.
        paused: whether nothing is committed or started, since parameters are being moved.
        ending: why training ends before the last epoch; None if it does not.
        finished: whether all is done, the last validation included.
    """

    def __init__(
        self,
        job: TrainingJob,
        endpoint: Endpoint,
        roster: Roster,
        audience: Audience,
        clock: Callable[[], float],
        journal: Journal,
        nodes: Callable[[], Mapping[str, tuple[int, float | None]]],
    ) -> None:
        self._job = job
        self._endpoint = endpoint
        self._roster = roster
        self._audience = audience
        self._clock = clock
        self._journal = journal
        self._nodes = nodes
        self._least = min(LEAST_SAMPLES, job.batch)
        self._sync = synchronisation(job.sync)
        self.balance = balance(job.scheduling)
        self._weighed: dict[str, float] = {}
        self.version = 0
        self._ticket = 0  # of the newest release of parameters
        self.ledger: Ledger | None = None
        self.servers: list[Server] = []
        self.generation = 0
        self.paused = True
        self.ending: str | None = None
        self.finished = False
        self._validation_size = 0
        self._validation: Validation | None = None
        self._validations = 0
        self._validated_version = -1
        self._next_validation = 0.0

    # --- data ---

    def begin(self, samples: int, validation: int, document: Mapping[str, Any] | None = None, version: int = 0) -> None:
        """Open the ledger, as of a snapshot if *document* is one, which then was kept as *version*.

        Raises:
            InputError: the snapshot is of another training set.
        """
        job = self._job
        if document is None:
            self.ledger = Ledger(samples, job.seed, job.epochs, journal=self._journal)
        else:
            if document["samples"] != samples:
                rule = f"the training set must have {document['samples']} samples to go on, as in the checkpoint"
                raise InputError([Problem("program", rule, str(samples))])
            document = {**document, "epochs": job.epochs}
            self.ledger = Ledger.restore(document, {}, journal=self._journal)
            self.version = max(version, self.ledger.version)
        self._validation_size = validation
        self._plan_validation()

    @property
    def _books(self) -> Ledger:
        assert self.ledger is not None
        return self.ledger

    @property
    def epochs_done(self) -> float:
        """Epochs whose samples are committed, fractions included."""
        return 0.0 if self.ledger is None else self.ledger.committed / self.ledger.samples

    def roll_back(self, document: Mapping[str, Any]) -> int:
        """Go back to a snapshot of the ledger; samples whose commits are lost."""
        before = self._books
        for worker in self._roster.workers.values():
            worker.step = None
            worker.idle_since = self._clock()
        members = dict(before.members)
        self.ledger = Ledger.restore(document, members, journal=self._journal, first_batch=before.next_batch)
        lost = before.committed - self.ledger.committed
        self._journal.rollback(self.ledger.version)
        self.version += 1  # what is gone back to is not what the last number stood for
        self._validation = None
        self._validated_version = -1
        self._plan_validation()
        self.finished = False
        return lost

    # --- workers ---

    def join(self, worker: Worker) -> None:
        """A worker is ready: it gets samples from now on."""
        # Before it counts itself: it starts where the slowest of the others is.
        slowest = min((pace.clock for name, pace in self._paces().items() if name != worker.name), default=0)
        weights = self.weights()
        others = [weight for name, weight in weights.items() if name != worker.name]
        mean = sum(others) / len(others) if others else 1.0
        self._books.join(worker.name, mean)
        self._weighed[worker.name] = mean
        worker.pace = Pace(clock=slowest)
        worker.idle_since = self._clock()

    def leave(self, worker: Worker) -> None:
        """A worker is gone: what it had goes back."""
        if self.ledger is not None and worker.name in self.ledger.members:
            self.ledger.leave(worker.name)
        self.balance.forget(worker.name)
        self._weighed.pop(worker.name, None)
        worker.step = None
        for server in self.servers:
            fields = {"worker": worker.name, "address": worker.address}
            self._endpoint.send(server.address, "discard", fields)
        if self._validation is not None and worker.name in self._validation.missing:
            self._validation = None
            self._next_validation = 0.0

    def weights(self) -> dict[str, float]:
        """Weight of each worker that can be given steps."""
        nodes = self._nodes()
        ready = self._roster.ready_workers()
        on = {node: sum(worker.node == node for worker in ready) for node in {worker.node for worker in ready}}
        cores = {worker.name: _cores(*nodes.get(worker.node, (1000, None))) / on[worker.node] for worker in ready}
        batch = self._job.batch * (1 if self._sync.grouped else len(ready))
        return self.balance.weights(cores, batch)

    # --- messages ---

    def on_staged(self, message: Message) -> None:
        """A server has a gradient."""
        fields = message.fields
        worker = self._roster.workers.get(fields["worker"])
        if worker is None:  # it was given up, and does not know yet
            for server in self.servers:
                self._endpoint.send(server.address, "discard", {"worker": fields["worker"]})
            return
        if worker.step is None or fields["generation"] != self.generation:
            return
        if worker.step.number == fields["step"]:
            worker.step.staged.add(fields["task"])
            self._notice(worker, worker.step)

    def on_pushed(self, message: Message) -> None:
        """A worker has sent its gradient to all servers."""
        worker = self._roster.workers.get(message.fields["task"])
        if worker is None or worker.step is None or worker.step.number != message.fields["step"]:
            return
        worker.step.report = message.fields
        worker.step.reported_at = self._clock()
        self._notice(worker, worker.step)

    def on_validated(self, message: Message) -> None:
        """A worker has validated its part."""
        worker = self._roster.workers.get(message.fields["task"])
        newest = message.fields["number"] == self._validations  # not one that was given up, and comes late
        if newest and worker is not None and worker.step is not None and worker.step.batch is None:
            worker.step = None
            worker.idle_since = self._clock()
        validation = self._validation
        if validation is None or not validation.add(message.fields["task"], message.fields):
            return
        self._validation = None
        self._validated_version = validation.version
        reason = self._audience.validated(validation)
        if reason is not None and self.ending is None and not validation.final:
            self.end(reason)

    def _notice(self, worker: Worker, step: Step) -> None:
        if step.ready_at is not None or step.report is None or step.batch is None:
            return
        if not step.staged.issuperset(server.name for server in self.servers):
            return
        step.ready_at = self._clock()
        report = step.report
        seconds = step.ready_at - step.released_at
        worker.seconds = max(worker.seconds, seconds)
        worker.threads = int(report["threads"])
        self.balance.saw(
            worker.name, Seen(int(report["samples"]), seconds - report["validate"], report["compute"], report["cpu"])
        )

    # --- what is done next ---

    def end(self, reason: str) -> None:
        """End before the last epoch: what is in flight is given up."""
        self.ending = reason
        for worker in self._roster.busy_workers():
            if worker.step is not None and worker.step.batch is not None:
                self._drop(worker)

    def restage(self) -> None:
        """Parameters are on other servers: gradients that are not committed must be pushed there."""
        for worker in self._roster.busy_workers():
            if worker.step is not None:
                worker.step.staged.clear()
                worker.step.ready_at = None

    def advance(self) -> None:
        """Commit what is complete, and start whoever may."""
        if self.paused or self.finished or self.ledger is None or not self.servers:
            return
        commits = [self._commit(group) for group in self._complete()]
        works = self._final() if self._over else self._assign()
        release = [worker.address for worker, _ in works]
        if release:
            self._ticket += 1
        for index, fields in enumerate(commits):
            fields["ticket"] = self._ticket
            fields["release"] = release if index == len(commits) - 1 else []
            self._order("commit", fields)
        if release and not commits:
            self._order("release", {"ticket": self._ticket, "release": release})
        for worker, fields in works:
            self._endpoint.send(worker.address, "work", {**fields, "ticket": self._ticket})

    @property
    def _over(self) -> bool:
        return self.ending is not None or self._books.finished

    def _order(self, kind: str, fields: dict[str, Any]) -> None:
        now = self._clock()
        for server in self.servers:
            if kind == "commit" and server.asked_at is None:
                server.asked_at = now
        self._endpoint.send([server.address for server in self.servers], kind, fields)

    def _complete(self) -> list[list[Worker]]:
        """Workers whose gradients are to be committed now, in groups that make one update each."""
        busy = [worker for worker in self._roster.busy_workers() if worker.step is not None and worker.step.batch]
        ready = [worker for worker in busy if worker.step is not None and worker.step.ready_at is not None]
        if self._sync.grouped:
            return [ready] if ready and len(ready) == len(busy) else []
        return [[worker] for worker in sorted(ready, key=lambda worker: (_ready_at(worker), worker.name))]

    def _commit(self, group: Sequence[Worker]) -> dict[str, Any]:
        """Book one update of the gradients of *group*; what servers are told."""
        progress = self._books.committed / (self._books.samples * self._job.epochs)
        self.version += 1
        counts = [_samples(worker) for worker in group]
        whole = sum(counts) if self._sync.grouped else self._job.batch
        now = self._clock()
        pushes = []
        for worker, count in zip(group, counts, strict=True):
            step = worker.step
            assert step is not None
            assert step.ready_at is not None
            assert step.batch is not None
            for batch in step.batch:
                self._books.commit(batch.number, self.version)
            pushes.append([worker.name, step.number, count / whole])
            seconds = step.ready_at - step.released_at
            pace = worker.pace
            pace.clock += 1
            pace.finished_at = now
            pace.step_seconds += (seconds - pace.step_seconds) * (0.3 if pace.step_seconds else 1.0)
            self._audience.step(worker, step, self.version, step.ready_at)
            worker.idle_since = step.ready_at
            worker.step = None
        lr = rate(self._job.schedule, self._job.optimizer.lr, progress)
        return {"version": self.version, "pushes": pushes, "rate": lr}

    def _paces(self) -> dict[str, Pace]:
        workers = self._roster.workers.values()
        return {
            worker.name: worker.pace
            for worker in workers
            if worker.step is not None or (worker.phase == "ready" and worker.name in self._books.members)
        }

    def _assign(self) -> list[tuple[Worker, dict[str, Any]]]:
        """Give samples to those who may start; each with what it is told."""
        idle = [worker for worker in self._roster.ready_workers() if worker.step is None]
        if self._sync.grouped:
            if self._roster.busy_workers():
                return []
            return self._round(idle)
        works: list[tuple[Worker, dict[str, Any]]] = []
        weights = self._reweigh()
        mean = sum(weights.values()) / max(len(weights), 1)
        for worker in sorted(idle, key=lambda each: (each.idle_since, each.name)):
            if not self._sync.may_start(worker.name, self._paces()):
                continue
            count = max(self._least, round(self._job.batch * weights[worker.name] / mean))
            batches = self._take(worker, count)
            if batches:
                parts = self._validation_parts([(worker, 1.0)])
                works.append((worker, self._work(worker, batches, weights[worker.name] / (mean * len(weights)), parts)))
        return works

    def _round(self, idle: Sequence[Worker]) -> list[tuple[Worker, dict[str, Any]]]:
        weights = self._reweigh()
        ledger = self._books
        epoch = ledger.epoch
        left = next((left for each in (epoch, epoch + 1) if (left := ledger.remaining(each))), 0)
        whole = left if left - self._job.batch < self._least else self._job.batch
        # Where there are few samples left, some workers have none rather than all too few.
        most = max(1, whole // self._least)
        idle = sorted(idle, key=lambda worker: (-weights[worker.name], number(worker.name)))[:most]
        counts = apportion(whole, [weights[worker.name] for worker in idle], self._least) if idle else []
        taken = [(worker, self._take(worker, count)) for worker, count in zip(idle, counts, strict=True) if count > 0]
        taken = [(worker, batches) for worker, batches in taken if batches]
        if not taken:
            return []
        sizes = {worker.name: sum(batch.count for batch in batches) for worker, batches in taken}
        parts = self._validation_parts([(worker, weights[worker.name]) for worker, _ in taken])
        whole = sum(sizes.values())
        return [(worker, self._work(worker, batches, sizes[worker.name] / whole, parts)) for worker, batches in taken]

    def _take(self, worker: Worker, count: int) -> tuple[Batch, ...]:
        """*count* samples of one epoch, or what is left of it; all of that rather than leave too few for a batch."""
        batches: list[Batch] = []
        while count > 0:
            batch = self._books.take(worker.name, count, roll=not batches)
            if batch is None:
                break
            if not batches and self._books.remaining(batch.epoch) - (count - batch.count) < self._least:
                count = batch.count + self._books.remaining(batch.epoch)
            if batches and batch.epoch != batches[0].epoch:
                self._books.give_back(batch.number)
                break
            batches.append(batch)
            count -= batch.count
        return tuple(batches)

    def _work(
        self, worker: Worker, batches: tuple[Batch, ...], share: float, parts: Mapping[str, dict[str, int]]
    ) -> dict[str, Any]:
        now = self._clock()
        part = parts.get(worker.name)
        worker.step = Step(
            number=worker.steps,
            version=self.version,
            batch=batches or None,
            share=share,
            released_at=now,
            waited=now - worker.idle_since,
            validates=part is not None,
        )
        worker.steps += 1
        spans: tuple[tuple[int, int], ...] = ()
        for batch in batches:
            spans = merge(spans, batch.spans)
        return {
            "step": worker.step.number,
            "version": self.version,
            "epoch": batches[0].epoch if batches else 0,
            "spans": [list(span) for span in spans],
            "threads": self._threads(worker),
            "validate": part,
        }

    def _threads(self, worker: Worker) -> int:
        cpu, free = self._nodes().get(worker.node, (1000, None))
        on_node = sum(other.node == worker.node for other in self._roster.ready_workers())
        return threads_of(self._job.threads, cpu, on_node, free, self._job.scheduling != "static")

    def _reweigh(self) -> dict[str, float]:
        """The weights now; where they have changed much, the rest of the epoch is split anew by them."""
        weights = self.weights()
        mean = sum(weights.values()) / len(weights) if weights else 1.0
        relative = {name: weight / mean for name, weight in weights.items()}
        known = {name: weight for name, weight in self._weighed.items() if name in relative}
        before = sum(known.values()) / len(known) if known else 1.0
        if any(abs(relative[name] - weight / before) > REWEIGH for name, weight in known.items()):
            self._books.weigh({name: weight for name, weight in weights.items() if name in self._books.members})
            self._weighed = dict(weights)
        return weights

    def _drop(self, worker: Worker) -> None:
        step = worker.step
        if step is not None and step.batch is not None:
            for batch in step.batch:
                self._books.give_back(batch.number)
        worker.step = None
        worker.idle_since = self._clock()

    # --- validation ---

    def _plan_validation(self) -> None:
        every = self._job.evaluate_every * self._books.samples
        self._next_validation = (self._books.committed // every + 1) * every

    def _validation_parts(self, workers: Iterable[tuple[Worker, float]], final: bool = False) -> dict[str, Any]:
        """The parts of a validation of this version, if one is due."""
        ledger = self._books
        due = final or ledger.committed >= self._next_validation
        if not due or self._validation is not None or not self._validation_size:
            return {}
        self._plan_validation()
        self._validations += 1
        validation = Validation(self._validations, self.version, ledger.committed, self._validation_size, final)
        self._validation = validation
        chosen = list(workers)
        sizes = apportion(validation.size, [weight for _, weight in chosen], 0)
        parts, start = {}, 0
        for (worker, _), size in zip(chosen, sizes, strict=True):
            if size:
                parts[worker.name] = validation.part(worker.name, start, start + size)
                start += size
        return parts

    def _final(self) -> list[tuple[Worker, dict[str, Any]]]:
        """Once nobody is busy: validate the last version, unless that is done; then all is finished."""
        if self._roster.busy_workers():
            return []
        if not self._validation_size or self._validated_version == self.version:
            self.finished = True
            return []
        self._validation = None
        idle = self._roster.ready_workers()
        if not idle:  # another one is on its way, or the job is given up in the end
            return []
        weights = self.weights()
        parts = self._validation_parts([(worker, weights[worker.name]) for worker in idle], final=True)
        return [(worker, self._work(worker, (), 0.0, parts)) for worker in idle if worker.name in parts]


def _cores(cpu: int, free: float | None) -> float:
    """Cores that the job can have on a node: what it may use there, and what the monitor finds free."""
    return cpu / 1000 if free is None else min(cpu / 1000, max(free, 0.05))


def _ready_at(worker: Worker) -> float:
    assert worker.step is not None
    return worker.step.ready_at or 0.0


def _samples(worker: Worker) -> int:
    assert worker.step is not None
    return sum(batch.count for batch in worker.step.batch or ())
