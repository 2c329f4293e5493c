"""Where the parameters are: brought to the first servers, kept as checkpoints, moved, and brought back after a failure.

There are two operations, and everything is made of them. *Keep*: all servers send their slices as of one version,
which together with the ledger of that version are one consistent state. *Load*: the kept state is cut for a set of
servers and sent to them. A checkpoint is a keep that is also written; a move is a keep and a load while commits are
held back; a recovery is a load alone, and what was committed after the kept version is rolled back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from coplace.training.checkpoint import Checkpoint, CheckpointStore
from coplace.training.coordinator.roster import Roster, Server, Worker
from coplace.training.coordinator.training import Training
from coplace.training.messages import Message
from coplace.training.parameters.layout import Layout, shards
from coplace.training.parameters.recut import cut, gather
from coplace.training.parameters.settings import state_names
from coplace.training.transport import Endpoint

Phase = Literal["absent", "asking", "held", "loading", "broken"]

START = "start"
"""Why parameters are brought to the first servers, which interrupts nothing and so is no pause."""

VALUES = "values"
"""Name of the parameters and buffers in a checkpoint."""


@dataclass(slots=True)
class Pause:
    """A time during which nothing was committed, in seconds since the job started, and why."""

    at_seconds: float
    seconds: float
    why: str


@dataclass(slots=True)
class _Keep:
    """Slices that are on their way.

    Attributes:
        ticket: of this keep.
        ledger: as of the version that is kept.
        missing: servers that have not answered.
        move: servers that the state is brought to afterwards; None = it stays.
        write: whether it is written as a checkpoint.
    """

    ticket: int
    version: int
    ledger: dict[str, Any]
    missing: set[str]
    move: list[Server] | None
    write: bool
    parts: dict[str, Message] = field(default_factory=dict)


class State:
    """Moves the parameters.

    Attributes:
        phase: ``absent`` before there are any; ``asking`` a worker for the initial ones; ``loading`` to servers;
            ``held`` by them; ``broken`` while a server is missing.
        kept: the newest complete state; None before the first.
        kept_at: when it was asked for; loading_since, held_since: when the servers were sent, and got, what they hold.
        pauses: times in which training stood still for what is done here.
        rolled_back: samples whose updates were lost, in all.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        roster: Roster,
        training: Training,
        store: CheckpointStore,
        optimizer: Any,
        clock: Callable[[], float],
        say: Callable[[str], None],
        sync_journal: Callable[[], None] = lambda: None,
    ) -> None:
        self._sync_journal = sync_journal
        self._endpoint = endpoint
        self._roster = roster
        self._training = training
        self._store = store
        self._states = state_names(optimizer)
        self._clock = clock
        self._say = say
        self.phase: Phase = "absent"
        self.layout: Layout | None = None
        self.kept: Checkpoint | None = None
        self.kept_at = 0.0
        self.held_since = 0.0
        self.pauses: list[Pause] = []
        self.rolled_back = 0
        self._keep: _Keep | None = None
        self._tickets = 0
        self._loading: set[str] = set()
        self.loading_since = 0.0
        self._paused_since: float | None = None
        self._why = "start"
        self._rollback = False

    # --- the first state ---

    def meet(self, worker: Worker, fields: Mapping[str, Any]) -> None:
        """A worker is ready: its model must be the job's.

        Raises:
            InputError: it is another one.
        """
        layout = Layout.from_document(fields["layout"], worker.name)
        if self.layout is None:
            self.layout = layout
        self.layout.require_same(layout, worker.name)

    def ask(self, worker: Worker) -> None:
        """Have the initial parameters made by a worker."""
        self.phase = "asking"
        self._endpoint.send(worker.address, "initial")

    def asked_again(self) -> None:
        """Whoever was asked is gone."""
        if self.phase == "asking":
            self.phase = "absent"

    def on_initial(self, message: Message, servers: Sequence[Server]) -> None:
        """The initial parameters have come."""
        if self.phase != "asking" or self.layout is None:
            return
        values = np.array(message.arrays[0], np.float32)
        zeros = {name: np.zeros(self.layout.parameters, np.float32) for name in self._states}
        state = {VALUES: values, **zeros, "step": np.zeros(1, np.float32)}
        self.kept = self._checkpoint(0, state, self._books())
        self.kept_at = self._clock()
        if not servers:  # it has failed meanwhile; another one gets them
            self.phase = "absent"
            return
        self.load(servers, START)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Start from a state that was kept by an earlier run."""
        self.kept = checkpoint
        self.kept_at = self._clock()
        self.layout = Layout.from_document(checkpoint.layout, "the checkpoint")

    # --- load ---

    def load(self, servers: Sequence[Server], why: str) -> None:
        """Bring the kept state to *servers*; training stands still until they have it."""
        kept, layout = self.kept, self.layout
        assert kept is not None
        assert layout is not None
        self._pause(why)
        self._keep = None
        self.phase = "loading"
        self._training.generation += 1
        self._training.servers = list(servers)
        self._loading = {server.name for server in servers}
        self.loading_since = self._clock()
        elementwise = {name: array for name, array in kept.state.items() if name != VALUES}
        for server, (start, stop) in zip(servers, shards(layout.total, len(servers)), strict=True):
            server.slice = (start, stop)
            server.asked_at = self._clock()
            states = cut(elementwise, start, stop)
            fields = {
                "generation": self._training.generation,
                "version": self._training.version,
                "start": start,
                "stop": stop,
                "parameters": layout.parameters,
                "total": layout.total,
                "states": list(states),
            }
            arrays = [kept.state[VALUES][start:stop], *states.values()]
            self._endpoint.send(server.address, "load", fields, arrays)

    def on_loaded(self, message: Message) -> None:
        """A server has its slice; once all have, training goes on."""
        server = self._roster.servers.get(message.fields["task"])
        if server is None or message.fields["generation"] != self._training.generation or self.phase != "loading":
            return
        server.asked_at = None
        server.applied = self._training.version
        self._loading.discard(server.name)
        if self._loading:
            return
        self.phase = "held"
        self.held_since = self._clock()
        for worker in self._roster.workers.values():
            if worker.phase != "starting":
                self.introduce(worker, self._rollback)
        if not self._rollback:
            self._training.restage()
        self._rollback = False
        self._resume()

    def introduce(self, worker: Worker, rollback: bool = False) -> None:
        """Tell a worker who holds the parameters."""
        if self.phase == "held":
            fields = {
                "generation": self._training.generation,
                "servers": [[server.address, *server.slice] for server in self._training.servers],
                "rollback": rollback,
                "again": worker.step.number if worker.step is not None and worker.step.batch else None,
            }
            self._endpoint.send(worker.address, "layout", fields)

    # --- keep ---

    @property
    def keeping(self) -> bool:
        """Whether slices are on their way."""
        return self._keep is not None

    def keep(self, *, move: Sequence[Server] | None = None, write: bool = False, why: str = "") -> None:
        """Have the present version sent by all servers; then bring it to others, or write it."""
        if move is not None:
            self._pause(why)
        self._tickets += 1
        servers = self._training.servers
        self._keep = _Keep(
            self._tickets,
            self._training.version,
            self._books(),
            {server.name for server in servers},
            None if move is None else list(move),
            write,
        )
        for server in servers:
            server.asked_at = server.asked_at or self._clock()
        self._endpoint.send([server.address for server in servers], "snapshot", {"ticket": self._tickets})

    def on_state(self, message: Message) -> None:
        """A slice has come."""
        server = self._roster.servers.get(message.fields["task"])
        keep = self._keep
        if server is None or keep is None or message.fields["ticket"] != keep.ticket:
            return
        if server.applied >= self._training.version:
            server.asked_at = None
        keep.parts[server.name] = message
        keep.missing.discard(server.name)
        if keep.missing:
            return
        self._keep = None
        parts = sorted(keep.parts.values(), key=lambda part: (part.fields["start"], part.fields["stop"]))
        names = parts[0].fields["states"]
        state = {
            VALUES: np.concatenate([part.arrays[0] for part in parts]),
            **gather([dict(zip(names, part.arrays[1:], strict=True)) for part in parts]),
        }
        self.kept = self._checkpoint(keep.version, state, keep.ledger)
        self.kept_at = self._clock()
        if keep.write:
            self._sync_journal()
            self._store.write_later(self.kept)
        if keep.move is None:
            return
        if all(self._roster.servers.get(server.name) is server and server.phase == "ready" for server in keep.move):
            self.load(keep.move, self._why)
        else:  # one of them is gone or unwanted by now: what is there goes on, until others are ready
            self._resume()

    # --- failures ---

    def lost(self, server: Server) -> None:
        """A server is gone; if it held parameters, its slice is lost, and with it what was not kept."""
        if server not in self._training.servers or self.phase in ("absent", "asking"):
            return
        self._keep = None
        for each in self._training.servers:  # what they are asked is of no use any more
            each.asked_at = None
        if self.phase != "broken":
            self._pause(f"{server.name} failed")
        self.phase = "broken"
        self._rollback = True

    def recover(self, servers: Sequence[Server]) -> None:
        """Load what was kept, and give up what came after it."""
        kept = self.kept
        assert kept is not None
        lost = self._training.roll_back(kept.ledger) if self._training.ledger is not None else 0
        self.rolled_back += lost
        self._say(f"parameters are back at version {kept.version}; updates of {lost} samples were lost")
        self.load(servers, self._why)

    def settle(self) -> None:
        """End with what was kept, since there is nobody to bring it to."""
        kept = self.kept
        assert kept is not None
        self.rolled_back += self._training.roll_back(kept.ledger)
        self._training.version = kept.version
        if kept.version not in self._store.versions():
            self._store.write_later(kept)

    # --- small ones ---

    def _books(self) -> dict[str, Any]:
        ledger = self._training.ledger
        assert ledger is not None
        return ledger.snapshot()

    def _checkpoint(self, version: int, state: dict[str, Any], ledger: dict[str, Any]) -> Checkpoint:
        assert self.layout is not None
        facts = {"written_at": time.time(), "seconds": self._clock()}
        return Checkpoint(version, self.layout.to_document(), state, ledger, facts)

    def _pause(self, why: str) -> None:
        if self._paused_since is None:
            self._paused_since = self._clock()
            self._why = why
        self._training.paused = True

    def _resume(self) -> None:
        if self._paused_since is not None:
            if self._why == START:  # nobody has waited for anybody yet
                for worker in self._roster.workers.values():
                    worker.idle_since = self._clock()
            else:
                self.pauses.append(Pause(self._paused_since, self._clock() - self._paused_since, self._why))
            self._paused_since = None
        self._training.paused = False
