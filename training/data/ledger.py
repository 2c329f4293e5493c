"""The ledger of samples: in every epoch each is used exactly once, whoever comes, goes, slows down or fails."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from coplace.training.data.journal import Journal
from coplace.training.data.partition import Partition
from coplace.training.data.spans import Spans, complement, count, merge

LEAST_INCREMENT = 4
"""A worker that has used up its part gets at least this fraction (1/4) of the batch that it asks for, if that much is
left: its share of what is left would make the end of an epoch many tiny steps."""

_REMEMBERED = 4096  # batches of which an error can say what became of them


class LedgerError(ValueError):
    """What was asked does not agree with what the ledger knows; the ledger is as before."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Positions of one epoch, handed out to one worker for one step.

    Attributes:
        number: its own, counted over the run.
        worker: who has it.
        epoch: counted from 0.
        spans: positions [start, stop) in the epoch's order, ascending; see :func:`.permutation.order`.
    """

    number: int
    worker: str
    epoch: int
    spans: Spans

    @property
    def count(self) -> int:
        """Samples in the batch."""
        return count(self.spans)


class _Epoch:
    """An epoch that is open: not all of its samples were used."""

    def __init__(self, samples: int, committed: Spans, weights: Mapping[str, float]) -> None:
        self.committed = committed
        self.used = count(committed)
        self.partition = Partition(complement(committed, samples), weights)


class Ledger:
    """Hands out samples to workers and keeps account of what was used.

    Epoch 0 is open from the beginning; each further one opens when all before it are handed out and a worker asks for
    more. A new epoch is split at random by the latest weights. Every position of an open epoch is in exactly one place:
    the part of a worker, a batch in flight, or used. Times and memory grow with the number of spans, not of samples.

    A weight is a worker's speed relative to the others', at least 0, in any unit that all of them have in common.
    """

    def __init__(
        self, samples: int, seed: int = 0, epochs: int | None = None, *, journal: Journal | None = None
    ) -> None:
        """Begin with nothing used and no workers.

        Args:
            samples: in the data, at least 1.
            seed: of the orders, kept for whoever asks; the ledger deals in positions only.
            epochs: hand out so many, at least 1; None = without end.
            journal: to be told every commit and completed epoch.

        Raises:
            LedgerError: a number is out of range.
        """
        _at_least(samples, 1, "samples")
        _at_least(seed, 0, "seed")
        if epochs is not None:
            _at_least(epochs, 1, "epochs")
        self.samples, self.seed, self.epochs = samples, seed, epochs
        self.journal = journal
        self.version = 0
        """Of the last commit."""
        self.committed = 0
        """Samples used, over all epochs."""
        self.next_batch = 0
        """Number of the next batch."""
        self._weights: dict[str, float] = {}
        self._open: dict[int, _Epoch] = {}  # ascending
        self._opened = 0
        self._batches: dict[int, Batch] = {}
        self._fates: dict[int, str] = {}  # what became of the latest batches
        self._open_next()

    @property
    def members(self) -> Mapping[str, float]:
        """The workers and their latest weights."""
        return MappingProxyType(self._weights)

    @property
    def batches(self) -> Mapping[int, Batch]:
        """Batches in flight, by number, ascending."""
        return MappingProxyType(self._batches)

    @property
    def in_flight(self) -> int:
        """Samples in batches that were neither committed nor given back."""
        return sum(batch.count for batch in self._batches.values())

    @property
    def epoch(self) -> int:
        """The oldest epoch that is not completely committed; the number of epochs if there is none."""
        return next(iter(self._open), self._opened)

    @property
    def finished(self) -> bool:
        """Whether every sample of every epoch is committed."""
        return self.epochs is not None and self.epoch >= self.epochs

    @property
    def exhausted(self) -> bool:
        """Whether every sample of every epoch is handed out, so that :meth:`take` has nothing for anyone."""
        return self._opened == self.epochs and not any(epoch.partition.total for epoch in self._open.values())

    def remaining(self, epoch: int | None = None) -> int:
        """Samples of *epoch* that can be handed out: neither in flight nor used; of the oldest unfinished if None."""
        epoch = self.epoch if epoch is None else epoch
        if epoch in self._open:
            return self._open[epoch].partition.total
        if epoch < self._opened or (self.epochs is not None and epoch >= self.epochs):
            return 0
        return self.samples

    def used(self, epoch: int) -> int:
        """Samples of *epoch* that are committed."""
        return self._open[epoch].used if epoch in self._open else self.samples * (0 <= epoch < self._opened)

    def part(self, worker: str, epoch: int | None = None) -> Spans:
        """The positions of *epoch* that are *worker*'s and not handed out; of the oldest unfinished if None.

        Raises:
            LedgerError: there is no such worker.
        """
        self._member(worker)
        epoch = self.epoch if epoch is None else epoch
        return self._open[epoch].partition.part(worker) if epoch in self._open else ()

    def join(self, worker: str, weight: float = 1.0) -> None:
        """Add a worker, which gets a random increment in proportion of what is left of every open epoch.

        An epoch of which nothing was handed out yet is split anew instead, so that its split is exact.

        Raises:
            LedgerError: it is there already, or *weight* is negative or no number.
        """
        if worker in self._weights:
            raise LedgerError(f"worker {worker} is a member already")
        self._weights[worker] = _weight(worker, weight)
        for epoch in self._open.values():
            if epoch.partition.total == self.samples:
                epoch.partition.split(self._weights)
            else:
                epoch.partition.join(worker, self._weights)

    def leave(self, worker: str) -> None:
        """Remove a worker. What was left of its parts, and its batches in flight, go to the others.

        Raises:
            LedgerError: there is no such worker.
        """
        self._member(worker)
        for number in [batch.number for batch in self._batches.values() if batch.worker == worker]:
            self._return(number, f"went back when worker {worker} left")
        del self._weights[worker]
        for epoch in self._open.values():
            epoch.partition.leave(worker, self._weights)

    def weigh(self, weights: Mapping[str, float]) -> None:
        """Dynamic increment: re-split by new weights what is left, moving as few positions as possible.

        Workers that are not in *weights* keep their latest ones. Each call cuts parts into more spans, so it is best
        made when speeds have changed by more than their noise.

        Raises:
            LedgerError: a worker is unknown, or a weight is negative or no number.
        """
        checked = {}
        for worker, weight in weights.items():
            self._member(worker)
            checked[worker] = _weight(worker, weight)
        self._weights.update(checked)
        for epoch in self._open.values():
            epoch.partition.weigh(self._weights)

    def take(self, worker: str, count: int, roll: bool = False) -> Batch | None:
        """Hand out up to *count* samples of the oldest epoch that has any left.

        They come from the worker's part. If that is empty, it first gets a random increment: its share by weight of
        what is left to the others, or a part of a batch if that is more (:data:`LEAST_INCREMENT`).

        Args:
            worker: who asks.
            count: samples, at least 1. There may be fewer, as parts and epochs end.
            roll: open the next epoch if all open ones are handed out.

        Returns:
            The batch; None if nothing is left, or nothing before the next epoch.

        Raises:
            LedgerError: there is no such worker, or *count* is below 1.
        """
        self._member(worker)
        _at_least(count, 1, "count")
        found = next((number for number, epoch in self._open.items() if epoch.partition.total), None)
        if found is None:
            if not roll or self._opened == self.epochs:
                return None
            found = self._open_next()
        partition = self._open[found].partition
        if partition.count(worker) == 0:
            share = partition.total * _fraction(self._weights, worker)
            partition.increment(worker, max(int(share), -(-count // LEAST_INCREMENT)))
        batch = Batch(self.next_batch, worker, found, partition.take(worker, count))
        self.next_batch += 1
        self._batches[batch.number] = batch
        return batch

    def commit(self, batch: int, version: int) -> None:
        """Count the samples of a batch in flight as used, by the update *version*.

        Raises:
            LedgerError: the batch is not in flight, or *version* is before that of the last commit.
            OSError: the journal cannot be written. If it has the batch but not the end of the epoch, the batch is
                committed nonetheless.
        """
        known = self._in_flight(batch)
        if version < self.version:
            raise LedgerError(f"batch {batch} cannot be committed by update {version}, after update {self.version}")
        epoch = self._open[known.epoch]
        if self.journal is not None:
            self.journal.commit(version, batch, known.worker, known.epoch, known.spans)
        self._forget(batch, f"was committed by update {version}")
        self.version = version
        self.committed += known.count
        epoch.committed = merge(epoch.committed, known.spans)
        epoch.used += known.count
        if epoch.used == self.samples:
            del self._open[known.epoch]
            if self.journal is not None:
                self.journal.epoch(version, known.epoch)

    def give_back(self, batch: int) -> None:
        """Take back a batch in flight that was not used: its samples are its worker's again.

        Raises:
            LedgerError: the batch is not in flight.
        """
        self._in_flight(batch)
        self._return(batch, "was given back")

    def snapshot(self) -> dict[str, Any]:
        """What was used, for JSON. Batches in flight count as not used, since no update knows of them.

        Size grows with the number of spans of the unfinished epochs.
        """
        return {
            "samples": self.samples,
            "seed": self.seed,
            "epochs": self.epochs,
            "version": self.version,
            "committed": self.committed,
            "next_batch": self.next_batch,
            "opened": self._opened,
            "unfinished": [
                {"epoch": number, "committed": [list(span) for span in epoch.committed]}
                for number, epoch in self._open.items()
            ],
        }

    @classmethod
    def restore(
        cls,
        document: Mapping[str, Any],
        members: Mapping[str, float],
        *,
        journal: Journal | None = None,
        first_batch: int = 0,
    ) -> Ledger:
        """A ledger as of a snapshot, what was not used then split at random among *members*.

        The journal is not told: whoever restores writes the rollback.

        Args:
            document: from :meth:`snapshot`.
            members: the workers there are now, with their weights.
            journal: to be told every commit and completed epoch.
            first_batch: batches are numbered from here, or from the snapshot's number if that is more. With
                ``next_batch`` of the ledger rolled back, a late message cannot be taken for one about a new batch.

        Raises:
            LedgerError: *document* is no snapshot, or contradicts itself; or a weight is negative or no number.
        """
        weights = {worker: _weight(worker, weight) for worker, weight in members.items()}
        try:
            ledger = cls(int(document["samples"]), int(document["seed"]), document["epochs"], journal=journal)
            ledger.version = int(document["version"])
            ledger.next_batch = max(first_batch, int(document["next_batch"]))
            ledger._opened = int(document["opened"])
            used: dict[int, Spans] = {}
            for entry in document["unfinished"]:
                spans: Spans = ()
                for start, stop in entry["committed"]:
                    if not 0 <= start < stop <= ledger.samples:
                        raise ValueError(f"span {start} to {stop} is out of range")
                    spans = merge(spans, ((int(start), int(stop)),))
                if count(spans) == ledger.samples:
                    raise ValueError(f"epoch {entry['epoch']} is listed as unfinished, but is complete")
                used[int(entry["epoch"])] = spans
            ledger.committed = int(document["committed"])
            complete = ledger._opened - len(used)
            expected = complete * ledger.samples + sum(count(spans) for spans in used.values())
            if ledger.committed != expected:
                raise ValueError(f"{ledger.committed} samples are said to be committed, but {expected} are listed")
            if any(not 0 <= number < ledger._opened for number in used):
                raise ValueError("an unfinished epoch was not opened")
            if ledger.epochs is not None and ledger._opened > ledger.epochs:
                raise ValueError(f"{ledger._opened} of {ledger.epochs} epochs were opened")
        except LedgerError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise LedgerError(f"this is not a snapshot of a ledger: {reason}") from error
        ledger._weights = weights
        ledger._open = {number: _Epoch(ledger.samples, used[number], weights) for number in sorted(used)}
        return ledger

    def _open_next(self) -> int:
        number = self._opened
        self._open[number] = _Epoch(self.samples, (), self._weights)
        self._opened += 1
        return number

    def _member(self, worker: str) -> None:
        if worker not in self._weights:
            raise LedgerError(f"worker {worker} is not a member")

    def _in_flight(self, batch: int) -> Batch:
        if batch in self._batches:
            return self._batches[batch]
        if 0 <= batch < self.next_batch:
            raise LedgerError(f"batch {batch} {self._fates.get(batch, 'was committed or given back long ago')}")
        raise LedgerError(f"batch {batch} was never handed out")

    def _return(self, number: int, fate: str) -> None:
        batch = self._batches[number]
        self._forget(number, fate)
        self._open[batch.epoch].partition.put(batch.worker, batch.spans)

    def _forget(self, number: int, fate: str) -> None:
        del self._batches[number]
        self._fates[number] = fate
        if len(self._fates) > _REMEMBERED:
            del self._fates[next(iter(self._fates))]


def _fraction(weights: Mapping[str, float], worker: str) -> float:
    """Share of *worker*, in [0, 1]."""
    largest = max(weights.values())
    if largest == 0:
        return 1 / len(weights)
    return weights[worker] / largest / sum(weight / largest for weight in weights.values())


def _at_least(number: int, least: int, name: str) -> None:
    if number < least:
        raise LedgerError(f"{name} must be at least {least}; found {number}")


def _weight(worker: str, weight: float) -> float:
    if not (math.isfinite(weight) and weight >= 0):
        raise LedgerError(f"the weight of worker {worker} must be a number of at least 0; found {weight}")
    return float(weight)
