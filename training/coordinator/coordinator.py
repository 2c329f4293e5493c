"""The loop of a job: passes on messages and events, and does what is due by time."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from coplace.instances.errors import InputError, Problem
from coplace.training.checkpoint import CheckpointStore
from coplace.training.coordinator import grants as granting
from coplace.training.coordinator.autoscale import Autoscale
from coplace.training.coordinator.control import ControlServer
from coplace.training.coordinator.membership import JobError, Membership, NeverBegan
from coplace.training.coordinator.outcome import Outcome
from coplace.training.coordinator.record import Record
from coplace.training.coordinator.requests import Requests
from coplace.training.coordinator.resuming import check_resumable
from coplace.training.coordinator.roster import Roster
from coplace.training.coordinator.state import State
from coplace.training.coordinator.training import Training
from coplace.training.data.journal import Journal
from coplace.training.job import TrainingJob
from coplace.training.messages import Message
from coplace.training.nodes.launcher import Launcher, LauncherError
from coplace.training.parameters.settings import state_names
from coplace.training.tasks.spec import Meeting
from coplace.training.telemetry.terminal import Snapshot
from coplace.training.transport import Endpoint, TransportError

TICK_SECONDS = 0.05
"""How often is looked at what is due."""


class Coordinator:
    """Runs one job to its end.

    Raises:
        InputError: it is to be resumed, and its checkpoint is of another job.

    Args:
        job: the job.
        folder: of the run; what is written about it goes there.
        meeting: where its tasks meet.
        endpoint: the coordinator's own.
        launcher: of the tasks; its nodes are being started.
        expected: nodes that are waited for before anything is granted.
        resume: start from the newest checkpoint in the folder.
        show: gets a snapshot a few times a second.
        say: gets a line on whatever happens.
    """

    def __init__(
        self,
        job: TrainingJob,
        folder: Path,
        meeting: Meeting,
        endpoint: Endpoint,
        launcher: Launcher,
        expected: set[str],
        *,
        resume: bool = False,
        tensorboard: bool = True,
        show: Callable[[Snapshot], None] = lambda snapshot: None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._started = time.monotonic()
        self._job = job
        self._folder = folder
        self._endpoint = endpoint
        self._launcher = launcher
        self._expected = expected
        self._show = show
        self.say = say
        self._roster = Roster()
        self._store = CheckpointStore(folder / "checkpoints", job.checkpoints.keep)
        checkpoint = self._store.latest() if resume else None
        if resume and checkpoint is None:
            raise InputError([Problem("", "holds no sound checkpoint to resume from")], str(folder))
        if checkpoint is not None:  # before anything is opened that would have to be closed
            check_resumable(checkpoint, job, state_names(job.optimizer))
        self._journal = Journal(folder / "ledger.csv")
        earlier = None
        if checkpoint is not None:
            earlier = (float(checkpoint.facts["seconds"]), int(checkpoint.ledger["committed"]))
            self._started -= earlier[0]
        self._began_at = self.clock()
        self._record = Record(job, folder, self._roster, self.clock, tensorboard, earlier)
        self._training = Training(
            job, endpoint, self._roster, self._record, self.clock, self._journal, self._node_cores
        )
        self._state = State(
            endpoint,
            self._roster,
            self._training,
            self._store,
            job.optimizer,
            self.clock,
            self.say,
            self._journal.sync,
        )
        self._membership = Membership(
            job, meeting, endpoint, launcher, self._roster, self._training, self._state, self.clock, self.say
        )
        self._began: float | None = None
        self._before = 0  # samples of an earlier run that is resumed
        self._stopping: str | None = None
        self._final = False
        self._settled = False
        self._ticked = 0.0
        self._autoscale = Autoscale(
            job, launcher, self._roster, self._training, self._membership, self._record, self.clock, say
        )
        self._requests = Requests(
            job,
            endpoint,
            launcher,
            self._roster,
            self._membership,
            self._training,
            self._state,
            self._record,
            self._autoscale,
            self,
        )
        self._handlers: dict[str, Callable[[Message], Any]] = {
            "ready": self._membership.on_ready,
            "failed": self._membership.on_failed,
            "initial": lambda message: self._state.on_initial(message, self._roster.ready_servers()),
            "loaded": self._state.on_loaded,
            "state": self._state.on_state,
            "staged": self._training.on_staged,
            "pushed": self._training.on_pushed,
            "validated": self._on_validated,
            "applied": self._on_applied,
            "departs": self._requests.on_departs,
        }
        if checkpoint is not None:
            self._state.resume(checkpoint)
            self._membership.resumes = checkpoint
            self._journal.rollback(int(checkpoint.ledger["version"]))
        self._control = ControlServer(folder, self._requests.verbs)

    def clock(self) -> float:
        """Seconds since the job started, without those between a run and the one that resumes it."""
        return time.monotonic() - self._started

    def stop(self, reason: str = "stopped") -> None:
        """Ask the job to end; safe in a signal handler."""
        self._stopping = reason

    def run(self) -> Outcome:
        """Run the job to its end.

        Raises:
            InputError: the user's program is at fault.
            JobError: the job cannot go on.
        """
        try:
            while not self._done():
                message = self._receive()
                if message is not None:
                    self._dispatch(message)
                if self.clock() - self._ticked >= TICK_SECONDS:
                    self._ticked = self.clock()
                    self._tick()
                self._training.advance()
            return self._outcome()
        except (LauncherError, TransportError) as error:
            raise JobError(str(error)) from error
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
                raise
            raise JobError(f"{error.filename or self._folder} cannot be written: {error.strerror}") from error
        finally:
            self._control.close()
            self._record.close()
            self._journal.close()
            self._store.close()

    def _receive(self) -> Message | None:
        try:
            return self._endpoint.receive(TICK_SECONDS / 2)
        except TransportError as error:
            if not error.peer:
                raise
            self.say(str(error))  # who cannot be heard any more will miss a deadline
            return None

    def _dispatch(self, message: Message) -> None:
        if not self._launcher.handle(message):
            handler = self._handlers.get(message.kind)
            if handler is not None:
                handler(message)

    def _on_validated(self, message: Message) -> None:
        self._note_configuration()  # a run that is resumed may begin with this
        self._training.on_validated(message)

    def _on_applied(self, message: Message) -> None:
        fields = message.fields
        server = self._roster.servers.get(fields["task"])
        if server is None:
            return
        server.applied = fields["version"]
        if server.applied >= self._training.version and not self._state.keeping:
            server.asked_at = None
        elif server.asked_at is not None:
            server.asked_at = self.clock()
        self._record.applied(
            server, fields["version"], fields["seconds"], fields["sent"], fields["received"], fields["rss"]
        )

    # --- what is due by time ---

    def _tick(self) -> None:
        for event in self._launcher.poll():
            self._membership.on_event(event)
        self._control.poll()
        nodes = self._launcher.nodes
        late = self.clock() - self._began_at > self._job.deadlines.start
        if self._membership.grants is None and nodes and (self._expected <= nodes.keys() or late):
            self._membership.grants = granting.initial(self._job, nodes)
        if late and not nodes and self._membership.grants is None:
            raise JobError(f"no node is there after {self._job.deadlines.start:g} s")
        self._membership.overdue()
        self._membership.reconcile()
        self._requests.part_with_nodes()
        self._note_configuration()
        self._keep_if_due()
        if self._stopping is not None and self._training.ending is None:
            self._stop_now(self._stopping)
        self._record.flush()
        self._show(self._record.snapshot(self.word, self._training.epochs_done))
        self._autoscale.consider()

    def _note_configuration(self) -> None:
        training, roster = self._training, self._roster
        if training.ledger is None or self._state.phase != "held":
            return
        if self._record.samples_per_epoch == 0:
            self._record.begin(training.ledger.samples)
            self._before = training.ledger.committed - self._record.samples
            self._record.samples = training.ledger.committed
            if self._state.layout is not None:
                self._record.model_mib = self._state.layout.parameters * 4 / 2**20
        if self._began is None:
            self._began = self.clock()
        workers = roster.ready_workers()
        nodes = self._launcher.nodes
        shares = [
            nodes[worker.node].cpu // sum(other.node == worker.node for other in workers)
            for worker in workers
            if worker.node in nodes
        ]
        span = {*(worker.node for worker in workers), *(server.node for server in training.servers)}
        self._record.configure(len(workers), len(training.servers), len(span), (min(shares, default=None), None))

    def _keep_if_due(self) -> None:
        state = self._state
        if not self._training.finished:  # also: not any more, since a server failed at the very end
            self._final = False
        if state.phase != "held" or state.keeping:
            return
        if self._training.finished and not self._final:
            self._final = True
            state.keep(write=True)
            return
        due = self._requests.keep or self.clock() - state.kept_at >= self._job.checkpoints.every_seconds
        if due and not self._final:
            self._requests.keep = False
            state.keep(write=True)

    def _stop_now(self, reason: str) -> None:
        if self._state.phase == "held":
            self._training.end(reason)
        elif self._state.phase == "broken" and not self._launcher.nodes and not self._settled:
            self._state.settle()
            self._training.ending = reason
            self._settled = True
        elif self._state.phase in ("absent", "asking"):
            raise NeverBegan(f"{reason} before the training began")

    def _node_cores(self) -> Mapping[str, tuple[int, float | None]]:
        return {
            name: (node.cpu, None if node.sample is None else node.sample.smooth_free_cores)
            for name, node in self._launcher.nodes.items()
        }

    @property
    def word(self) -> str:
        """What the job is doing, in a word or two."""
        if self._training.finished:
            return "ending"
        loading = "starting" if self._began is None else "moving parameters"
        words = {"absent": "starting", "asking": "starting", "loading": loading, "broken": "recovering"}
        return words.get(self._state.phase, "training")

    # --- the end ---

    def _done(self) -> bool:
        """All is committed, validated and kept."""
        kept = self._state.kept
        return self._settled or (
            self._final
            and self._state.phase == "held"
            and not self._state.keeping
            and kept is not None
            and kept.version == self._training.version
        )

    def _outcome(self) -> Outcome:
        record, state, training = self._record, self._state, self._training
        end = self.clock()
        began = self._began if self._began is not None else end
        busy = max(record.seconds, 1e-9)
        ending = training.ending
        return Outcome(
            ended=ending or "all epochs are done",
            complete=self._stopping is None,
            seconds=end - self._began_at,
            training_seconds=end - began,
            epochs=training.epochs_done,
            samples=0 if training.ledger is None else training.ledger.committed,
            version=training.version,
            loss=record.loss,
            validation_loss=record.validation_loss,
            accuracy=record.accuracy,
            speed=(record.samples - self._before) / max(end - began, 1e-9),
            waited=record.waited / busy,
            communicated=record.communicated / busy,
            rolled_back=state.rolled_back,
            pauses=tuple(state.pauses),
            failures=tuple(self._membership.failures),
        )

    @property
    def began(self) -> bool:
        """Whether the first step could start."""
        return self._began is not None

    @property
    def state(self) -> State:
        """Where the parameters are; after the run, ``state.kept`` has them."""
        return self._state
