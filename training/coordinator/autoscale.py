"""Whether more or fewer workers would help: what the job asks for or, stand-alone, grants itself."""

from __future__ import annotations

from collections.abc import Callable

from coplace.training.coordinator import grants as granting
from coplace.training.coordinator.membership import Membership
from coplace.training.coordinator.record import Record
from coplace.training.coordinator.roster import Roster
from coplace.training.coordinator.training import Training
from coplace.training.job import TrainingJob
from coplace.training.nodes.launcher import Launcher
from coplace.training.scheduling.wishes import Wish, wish

PATIENCE_SECONDS = 10.0
"""How long a wish must last before a job grants it to itself."""


class Autoscale:
    """Watches how the workers spend their time.

    Attributes:
        wish: what the job asks for at present; a scheduler reads it by the request ``status``.
    """

    def __init__(
        self,
        job: TrainingJob,
        launcher: Launcher,
        roster: Roster,
        training: Training,
        membership: Membership,
        record: Record,
        clock: Callable[[], float],
        say: Callable[[str], None],
    ) -> None:
        self._job = job
        self._launcher = launcher
        self._roster = roster
        self._training = training
        self._membership = membership
        self._record = record
        self._clock = clock
        self._say = say
        self.wish = Wish(0)
        self._since = 0.0

    def consider(self) -> None:
        """Find out what would help; stand-alone, take it once that has been so for some time."""
        weights = self._training.weights() if self._training.ledger is not None else {}
        record = self._record
        if weights and record.seconds > 0:
            least, most = self._job.worker.min, self._job.worker.max
            self.wish = wish(len(weights), record.computed / record.seconds, weights, least, most)
            if self.wish.workers == len(weights) or not self._job.autoscale:
                self._since = self._clock()
            elif self._clock() - self._since > PATIENCE_SECONDS:
                self._since = self._clock()
                self._grant()

    def _grant(self) -> None:
        """Stand-alone: take what the nodes allow."""
        grants, nodes = self._membership.grants, self._membership.nodes
        assert grants is not None
        room = sum(node.cpu // 1000 for node in nodes.values())
        workers = min(self.wish.workers, max(room, granting.total(grants, "worker")))
        if self.wish.without:  # the workers to give back are named, so that they go and no others
            for name in self.wish.without:
                worker = self._roster.workers.get(name)
                if worker is not None and worker.node in grants:
                    grants = {**grants, worker.node: granting.changed(grants[worker.node], "worker", -1)}
        elif workers != granting.total(grants, "worker"):
            grants = granting.spread(workers, granting.total(grants, "ps"), nodes, grants)
        if grants != self._membership.grants:
            self._say(f"{self.wish.reason}; now {granting.total(grants, 'worker')} workers")
            self._membership.grant(grants)
            self._record.seconds = self._record.computed = 0.0
