"""The ledger of samples against a naive model, its journal, and the audit of that."""

from __future__ import annotations

import copy
import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from coplace.instances import InputError
from coplace.training.data.audit import audit
from coplace.training.data.journal import Journal
from coplace.training.data.ledger import Batch, Ledger, LedgerError
from coplace.training.data.partition import Partition
from coplace.training.data.permutation import indices, order
from coplace.training.data.spans import Spans, complement, count, merge, take_first, take_last

WORKERS = ["a", "b", "c", "d"]


def positions(spans: Spans) -> list[int]:
    return [position for start, stop in spans for position in range(start, stop)]


def spans_of(chosen: set[int]) -> Spans:
    result: list[list[int]] = []
    for position in sorted(chosen):
        if result and result[-1][1] == position:
            result[-1][1] += 1
        else:
            result.append([position, position + 1])
    return tuple((start, stop) for start, stop in result)


class Machine(RuleBasedStateMachine):
    """The ledger, and beside it for each opened epoch the set of used positions, and the batches as sets."""

    @initialize(
        samples=st.integers(1, 80),
        epochs=st.integers(1, 4),
        members=st.lists(st.sampled_from(WORKERS), unique=True),
    )
    def begin(self, samples: int, epochs: int, members: list[str]) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "journal.csv"
        self.journal = Journal(self.path)
        self.samples, self.epochs = samples, epochs
        self.ledger = Ledger(samples, 3, epochs, journal=self.journal)
        self.members = set(members)
        for member in members:
            self.ledger.join(member)
        self.used: list[set[int]] = [set()]
        self.flying: dict[int, tuple[str, int, set[int]]] = {}
        self.version = 0
        self.rolled_back = 0
        self.saved: tuple[str, list[set[int]], int] | None = None

    def free(self, epoch: int) -> set[int]:
        taken = set().union(*(chosen for _, e, chosen in self.flying.values() if e == epoch))
        return set(range(self.samples)) - self.used[epoch] - taken

    @rule(worker=st.sampled_from(WORKERS), weight=st.floats(0, 100))
    def join(self, worker: str, weight: float) -> None:
        if worker in self.members:
            with pytest.raises(LedgerError, match="member already"):
                self.ledger.join(worker, weight)
        else:
            self.ledger.join(worker, weight)
            self.members.add(worker)

    @rule(worker=st.sampled_from(WORKERS))
    def leave(self, worker: str) -> None:
        if worker not in self.members:
            with pytest.raises(LedgerError, match="not a member"):
                self.ledger.leave(worker)
        else:
            self.ledger.leave(worker)
            self.members.remove(worker)
            self.flying = {number: entry for number, entry in self.flying.items() if entry[0] != worker}

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def weigh(self, data: st.DataObject) -> None:
        chosen = data.draw(st.dictionaries(st.sampled_from(sorted(self.members)), st.floats(0, 1e6)))
        self.ledger.weigh(chosen)
        for worker, weight in chosen.items():
            assert self.ledger.members[worker] == weight

    @precondition(lambda self: self.members)
    @rule(data=st.data(), number=st.integers(1, 30), roll=st.booleans())
    def take_often(self, data: st.DataObject, number: int, roll: bool) -> None:
        for _ in range(data.draw(st.integers(1, 5))):
            self.take(data, number, roll)

    def take(self, data: st.DataObject, number: int, roll: bool) -> None:
        worker = data.draw(st.sampled_from(sorted(self.members)))
        oldest = next((epoch for epoch in range(len(self.used)) if self.free(epoch)), None)
        if oldest is None and roll and len(self.used) < self.epochs:
            oldest = len(self.used)
            self.used.append(set())
        batch = self.ledger.take(worker, number, roll)
        if oldest is None:
            assert batch is None
            return
        assert batch is not None
        assert (batch.worker, batch.epoch) == (worker, oldest)
        assert 1 <= batch.count <= number
        assert batch.number not in self.flying
        chosen = set(positions(batch.spans))
        assert len(chosen) == batch.count
        assert chosen <= self.free(oldest)
        self.flying[batch.number] = (worker, oldest, chosen)

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), later=st.integers(0, 2))
    def commit(self, data: st.DataObject, later: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.flying)))
        if self.saved is not None and self.saved[2] == self.version:
            later += 1  # a checkpoint has all of its update, so that a rollback to it voids later ones only
        self.version += later
        self.ledger.commit(number, self.version)
        _, epoch, chosen = self.flying.pop(number)
        assert not chosen & self.used[epoch]
        self.used[epoch] |= chosen
        with pytest.raises(LedgerError, match=f"batch {number} was committed by update {self.version}"):
            self.ledger.commit(number, self.version)

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.flying)))
        self.ledger.give_back(number)
        del self.flying[number]
        with pytest.raises(LedgerError, match=f"batch {number} was given back"):
            self.ledger.give_back(number)

    @rule()
    def save(self) -> None:
        self.saved = json.dumps(self.ledger.snapshot()), copy.deepcopy(self.used), self.version

    @precondition(lambda self: self.saved is not None)
    @rule(members=st.dictionaries(st.sampled_from(WORKERS), st.floats(0, 10)))
    def roll_back(self, members: dict[str, float]) -> None:
        assert self.saved is not None
        document, used, self.version = self.saved
        self.rolled_back += sum(map(len, self.used)) - sum(map(len, used))
        self.journal.close()
        self.journal = Journal(self.path)
        self.journal.rollback(self.version)
        first = self.ledger.next_batch
        self.ledger = Ledger.restore(json.loads(document), members, journal=self.journal, first_batch=first)
        assert self.ledger.next_batch == first
        assert self.ledger.snapshot() == {**json.loads(document), "next_batch": first}
        self.members, self.flying, self.used = set(members), {}, copy.deepcopy(used)

    @invariant()
    def every_position_is_in_one_place(self) -> None:
        ledger = self.ledger
        for epoch, used in enumerate(self.used):
            free = self.free(epoch)
            assert ledger.remaining(epoch) == len(free)
            assert ledger.used(epoch) == len(used)
            if self.members:
                parts = [
                    position for worker in sorted(self.members) for position in positions(ledger.part(worker, epoch))
                ]
                assert sorted(parts) == sorted(free)
        unfinished = [epoch for epoch, used in enumerate(self.used) if len(used) < self.samples]
        assert ledger.epoch == (unfinished[0] if unfinished else len(self.used))
        assert ledger.finished == (ledger.epoch == self.epochs)
        assert ledger.exhausted == (len(self.used) == self.epochs and not any(map(self.free, range(self.epochs))))
        assert set(ledger.members) == self.members
        assert set(ledger.batches) == set(self.flying)
        assert ledger.in_flight == sum(len(chosen) for _, _, chosen in self.flying.values())
        assert ledger.committed == sum(map(len, self.used))

    def teardown(self) -> None:
        if not hasattr(self, "ledger"):
            return
        found = audit(self.path, self.samples)
        assert found.exact
        assert (found.committed, found.rolled_back) == (self.ledger.committed, self.rolled_back)
        assert {e.epoch for e in found.epochs if e.finished} == {
            epoch for epoch, used in enumerate(self.used) if len(used) == self.samples
        }
        for epoch in found.epochs:
            assert epoch.missing == spans_of(set(range(self.samples)) - self.used[epoch.epoch])
        self.run_to_the_end()
        found = audit(self.path, self.samples, self.epochs)
        assert found.exact
        assert found.finished == self.epochs
        assert found.committed == self.samples * self.epochs
        self.journal.close()
        self.folder.cleanup()

    def run_to_the_end(self) -> None:
        for number in list(self.flying):
            self.ledger.give_back(number)
        worker = min(self.members, default="z")
        if not self.members:
            self.ledger.join(worker)
        while (batch := self.ledger.take(worker, 7, roll=True)) is not None:
            self.ledger.commit(batch.number, self.version)
        assert self.ledger.finished


def test_the_ledger_agrees_with_a_naive_model() -> None:
    run_state_machine_as_test(Machine, settings=settings(max_examples=80, stateful_step_count=50, deadline=None))


def take(ledger: Ledger, worker: str, number: int, roll: bool = False) -> Batch:
    batch = ledger.take(worker, number, roll)
    assert batch is not None
    return batch


def sizes(ledger: Ledger, epoch: int | None = None) -> dict[str, int]:
    return {worker: count(ledger.part(worker, epoch)) for worker in ledger.members}


def test_split_at_the_start_is_exact_whatever_the_order_of_joining() -> None:
    weights = {"a": 1.0, "b": 2.5, "c": 0.1, "d": 7.0}
    for names in ("abcd", "dcba", "bdac"):
        ledger = Ledger(1000)
        for name in names:
            ledger.join(name, weights[name])
        # 1000 · weight / 10.6 = 94.34, 235.85, 9.43, 660.38: the largest remainder is b's, then c's
        assert sizes(ledger) == {"a": 94, "b": 236, "c": 10, "d": 660}


def test_a_later_epoch_is_split_by_the_latest_weights() -> None:
    ledger = Ledger(90)
    ledger.join("a")
    ledger.join("b")
    for worker in "ab":
        take(ledger, worker, 90)
    ledger.weigh({"b": 2.0})
    assert ledger.take("a", 1) is None
    assert take(ledger, "a", 10, roll=True).epoch == 1
    assert sizes(ledger, 1) == {"a": 20, "b": 60}


def test_a_worker_that_joins_gets_its_share_of_what_is_left_in_proportion_from_the_tails() -> None:
    ledger = Ledger(1000)
    ledger.join("a", 1.0)
    ledger.join("b", 3.0)
    ledger.commit(take(ledger, "b", 150).number, 1)  # a has 250 left, b 600
    ledger.join("c", 1.0)  # 850 / 5 = 170: 50 from a, 120 from b
    assert ledger.part("a") == ((0, 200),)
    assert ledger.part("b") == ((400, 880),)
    assert ledger.part("c") == ((200, 250), (880, 1000))


def test_a_worker_whose_part_is_used_up_gets_more_from_the_others() -> None:
    ledger = Ledger(300)
    for worker in "abc":
        ledger.join(worker)
    take(ledger, "a", 100)
    take(ledger, "b", 40)
    batch = take(ledger, "a", 8)  # its share of the 160 left is 53: 20 from b, 33 from c
    assert batch.spans == ((180, 188),)
    assert sizes(ledger) == {"a": 45, "b": 40, "c": 67}


def test_an_increment_is_not_less_than_a_part_of_a_batch() -> None:
    ledger = Ledger(64)
    ledger.join("slow", 0.0)
    ledger.join("fast", 1.0)
    assert sizes(ledger) == {"slow": 0, "fast": 64}
    assert take(ledger, "slow", 32).count == 8
    assert take(ledger, "fast", 64).count == 56
    assert ledger.take("slow", 1) is None


def test_weighing_moves_no_more_than_it_must_and_is_exact() -> None:
    generator = random.Random(5)
    ledger = Ledger(10_000)
    for worker in WORKERS:
        ledger.join(worker)
    for _ in range(50):
        take(ledger, generator.choice(WORKERS), 20)
        before = {worker: set(positions(ledger.part(worker))) for worker in WORKERS}
        weights = {worker: generator.uniform(0.1, 10) for worker in WORKERS}
        ledger.weigh(weights)
        left, total = ledger.remaining(), sum(weights.values())
        for worker in WORKERS:
            after = set(positions(ledger.part(worker)))
            assert abs(len(after) - left * weights[worker] / total) < 1
            assert before[worker] <= after or after <= before[worker]


def test_what_a_leaving_worker_had_goes_to_those_below_their_share() -> None:
    ledger = Ledger(400)
    for worker in WORKERS:
        ledger.join(worker)
    take(ledger, "a", 60)
    lost = take(ledger, "d", 30)
    ledger.leave("d")
    assert sizes(ledger) == {"a": 114, "b": 113, "c": 113}
    with pytest.raises(LedgerError, match=f"batch {lost.number} went back when worker d left"):
        ledger.commit(lost.number, 1)


def test_an_older_epoch_is_served_first() -> None:
    ledger = Ledger(10, epochs=2)
    ledger.join("a")
    ledger.join("b")
    lost, other = take(ledger, "a", 5), take(ledger, "b", 5)
    assert take(ledger, "b", 2, roll=True).epoch == 1
    ledger.commit(other.number, 1)
    ledger.give_back(lost.number)
    again = take(ledger, "b", 5, roll=True)
    assert again.epoch == 0
    assert ledger.epoch == 0
    ledger.commit(again.number, 2)
    rest = take(ledger, "a", 5, roll=True)
    ledger.commit(rest.number, 3)
    assert ledger.epoch == 1
    assert ledger.used(0) == 10


def test_what_nobody_has_waits_for_the_next_worker() -> None:
    ledger = Ledger(10)
    ledger.join("a")
    take(ledger, "a", 3)
    ledger.leave("a")
    assert ledger.remaining() == 10
    ledger.join("b", 0.0)
    assert ledger.part("b") == ((0, 10),)


def test_an_epoch_that_is_not_open_yet_has_all_its_samples_left() -> None:
    ledger = Ledger(10, epochs=2)
    assert [ledger.remaining(epoch) for epoch in range(3)] == [10, 10, 0]
    assert ledger.used(1) == 0


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda ledger: ledger.commit(99, 5), "batch 99 was never handed out"),
        (lambda ledger: ledger.commit(-1, 5), "batch -1 was never handed out"),
        (lambda ledger: ledger.commit(1, 4), "batch 1 cannot be committed by update 4, after update 5"),
        (lambda ledger: ledger.give_back(0), "batch 0 was committed by update 5"),
        (lambda ledger: ledger.take("a", 0), "count must be at least 1; found 0"),
        (lambda ledger: ledger.take("z", 1), "worker z is not a member"),
        (lambda ledger: ledger.part("z"), "worker z is not a member"),
        (lambda ledger: ledger.weigh({"a": 3.0, "z": 1.0}), "worker z is not a member"),
        (lambda ledger: ledger.weigh({"a": float("nan")}), "weight of worker a must be a number"),
        (lambda ledger: ledger.join("z", -1.0), "weight of worker z must be a number of at least 0; found -1"),
        (lambda _: Ledger(0), "samples must be at least 1; found 0"),
        (lambda _: Ledger(1, -1), "seed must be at least 0; found -1"),
        (lambda _: Ledger(1, 0, 0), "epochs must be at least 1; found 0"),
    ],
)
def test_mistakes_are_named_and_change_nothing(attempt: Any, message: str) -> None:
    ledger = Ledger(100)
    ledger.join("a")
    ledger.commit(take(ledger, "a", 10).number, 5)
    take(ledger, "a", 10)
    before = ledger.snapshot(), dict(ledger.members), ledger.in_flight
    with pytest.raises(LedgerError, match=message):
        attempt(ledger)
    assert (ledger.snapshot(), dict(ledger.members), ledger.in_flight) == before


def test_the_fate_of_a_batch_is_forgotten_at_last() -> None:
    ledger = Ledger(10_000)
    ledger.join("a")
    for version in range(5000):
        ledger.commit(take(ledger, "a", 1).number, version)
    with pytest.raises(LedgerError, match="batch 0 was committed or given back long ago"):
        ledger.commit(0, 5000)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": None}, "not a snapshot"),
        ({"committed": 11}, "11 samples are said to be committed, but 10 are listed"),
        ({"unfinished": [{"epoch": 0, "committed": [[0, 101]]}]}, "span 0 to 101 is out of range"),
        ({"unfinished": [{"epoch": 0, "committed": [[0, 6], [5, 10]]}]}, "are there already"),
        ({"unfinished": [{"epoch": 0, "committed": [[0, 100]]}]}, "is listed as unfinished, but is complete"),
        ({"unfinished": [{"epoch": 1, "committed": [[0, 10]]}]}, "was not opened"),
        ({"opened": 4, "committed": 310}, "4 of 3 epochs"),
        ({"samples": 0}, "samples must be at least 1"),
    ],
)
def test_a_snapshot_that_contradicts_itself_is_refused(change: dict[str, Any], message: str) -> None:
    ledger = Ledger(100, 0, 3)
    ledger.join("a")
    ledger.commit(take(ledger, "a", 10).number, 1)
    document = ledger.snapshot()
    Ledger.restore(document, {})
    with pytest.raises(LedgerError, match=message):
        Ledger.restore({**document, **change}, {})
    with pytest.raises(LedgerError, match="'opened' is missing"):
        Ledger.restore({key: value for key, value in document.items() if key != "opened"}, {})


# Spans and partitions


sets = st.sets(st.integers(0, 30))


@given(sets, sets, st.integers(0, 35))
def test_spans_are_sets(first: set[int], second: set[int], number: int) -> None:
    spans = spans_of(first)
    assert count(spans) == len(first)
    for taken, rest, expected in [
        (*take_first(spans, number), set(sorted(first)[:number])),
        (*take_last(spans, number), set(sorted(first, reverse=True)[:number])),
    ]:
        assert taken == spans_of(expected)
        assert rest == spans_of(first - expected)
    if first & second:
        with pytest.raises(ValueError, match="are there already"):
            merge(spans, spans_of(second))
    else:
        assert merge(spans, spans_of(second)) == spans_of(first | second)
    assert complement(spans, 31) == spans_of(set(range(31)) - first)


def test_an_increment_takes_no_more_than_there_is() -> None:
    partition = Partition(((0, 10),), {"a": 0.0, "b": 1.0, "c": 1.0})
    partition.increment("a", 99)
    assert [partition.part(worker) for worker in "abc"] == [((0, 10),), (), ()]
    partition.increment("a", 99)
    assert partition.total == 10


# Orders


def test_order_is_the_same_on_every_machine_and_numpy() -> None:
    assert order(12, 1, 0).tolist() == [4, 11, 6, 1, 3, 10, 9, 8, 2, 0, 5, 7]
    assert order(12, 1, 1).tolist() == [5, 3, 11, 2, 8, 7, 0, 10, 1, 4, 9, 6]
    assert order(12, 2, 0).tolist() == [11, 6, 1, 2, 4, 3, 8, 5, 10, 7, 9, 0]


def test_order_is_a_permutation_that_nobody_can_change() -> None:
    shuffled = order(1000, 0, 7)
    assert shuffled.dtype == np.int64
    assert sorted(shuffled.tolist()) == list(range(1000))
    assert order(0, 0, 0).tolist() == []
    with pytest.raises(ValueError, match="read-only"):
        shuffled[0] = 1
    with pytest.raises(ValueError, match="at least 0"):
        order(10, -1, 0)
    assert indices(shuffled, ((2, 4), (9, 10))).tolist() == shuffled[[2, 3, 9]].tolist()
    assert indices(shuffled, ()).tolist() == []


def test_orders_are_uniform() -> None:
    table = np.zeros((8, 8))
    for epoch in range(4000):
        table[np.arange(8), order(8, 11, epoch)] += 1
    assert chi_square(table) < 85.4  # 99.9 % quantile, 49 degrees of freedom


def chi_square(table: np.ndarray[Any, Any]) -> float:
    """Statistic of the independence of rows and columns."""
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
    return float(((table - expected) ** 2 / expected).sum())


def test_unequal_and_changing_weights_do_not_bias_the_sample() -> None:
    """In every epoch each sample is used once, and which worker used it says nothing about its index.

    Data files are often sorted by class: with a share of the file for each worker, a slow one would have its classes
    under-represented in every update.
    """
    samples, epochs = 20_000, 3
    generator = random.Random(2)
    ledger = Ledger(samples, 17, epochs)
    for i, worker in enumerate(WORKERS):
        ledger.join(worker, 8.0**i)
    by_worker = np.zeros((4, 10))  # by tenth of the indices
    by_time = np.zeros((5, 10))  # a fifth of each epoch
    uses = np.zeros((epochs, samples), int)
    positions_by_worker = np.zeros((4, 10))
    while not ledger.finished:
        for i, worker in enumerate(WORKERS):
            batch = ledger.take(worker, 1 + 3**i, roll=True)
            if batch is None:
                continue
            if generator.random() < 0.1:
                ledger.give_back(batch.number)
                continue
            fifth = min(4, 5 * ledger.used(batch.epoch) // samples)
            used = indices(order(samples, 17, batch.epoch), batch.spans)
            uses[batch.epoch, used] += 1
            np.add.at(by_worker[i], used * 10 // samples, 1)
            np.add.at(by_time[fifth], used * 10 // samples, 1)
            np.add.at(positions_by_worker[i], np.array(positions(batch.spans)) * 10 // samples, 1)
            ledger.commit(batch.number, 0)
        if generator.random() < 0.05:
            ledger.weigh({worker: generator.choice([0.01, 1.0, 30.0]) for worker in WORKERS})
    assert (uses == 1).all()
    assert (by_worker.sum(axis=1) > 500).all()
    assert chi_square(by_worker) < 55.5  # 99.9 % quantile, 27 degrees of freedom
    assert chi_square(by_time) < 67.9  # 36
    assert chi_square(positions_by_worker) > 1000  # it does depend on the position: the order is what makes it random


# Journal and audit


def write(path: Path, *lines: str) -> Path:
    path.write_text("event,version,batch,worker,epoch,spans\n" + "".join(line + "\n" for line in lines))
    return path


GOOD = ("commit,1,0,a,0,0-30 60-100", "commit,2,1,b,0,30-60", "epoch,2,,,0,", "commit,3,2,a,1,0-10")


def test_journal_is_read_back_by_the_audit(tmp_path: Path) -> None:
    path = tmp_path / "journal.csv"
    journal = Journal(path)
    journal.commit(1, 0, 'node 1, worker "x"', 0, ((0, 5), (7, 10)))
    journal.commit(2, 1, "b", 0, ((5, 7),))
    journal.rollback(1)
    journal.close()
    journal.close()
    journal = Journal(path)
    journal.commit(2, 2, "c", 0, ((5, 7),))
    journal.epoch(2, 0)
    journal.sync()
    assert path.read_text().splitlines() == [
        "event,version,batch,worker,epoch,spans",
        'commit,1,0,"node 1, worker ""x""",0,0-5 7-10',
        "commit,2,1,b,0,5-7",
        "rollback,1,,,,",
        "commit,2,2,c,0,5-7",
        "epoch,2,,,0,",
    ]
    found = audit(path, 10)
    assert (found.exact, found.version, found.committed, found.rolled_back) == (True, 2, 10, 2)
    assert found.by_worker == {"c": 2, 'node 1, worker "x"': 8}
    assert found.finished == 1
    journal.close()


@pytest.mark.parametrize("torn", ["c", "commit,3,2,a,1,0-1", "x" * 200_000])
def test_a_line_cut_short_by_a_crash_does_not_count(tmp_path: Path, torn: str) -> None:
    path = write(tmp_path / "journal.csv", *GOOD[:3])
    whole = path.read_bytes()
    path.write_bytes(whole + torn.encode())
    assert audit(path, 100).committed == 100
    Journal(path).close()
    assert path.read_bytes() == whole


def test_a_file_that_is_all_torn_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal.csv"
    path.write_text("event,ver")
    assert audit(path, 5).exact
    Journal(path).close()
    assert path.read_text() == "event,version,batch,worker,epoch,spans\n"


@pytest.mark.parametrize(
    ("lines", "samples", "faults"),
    [
        (GOOD, 100, []),
        (GOOD[:1], 100, []),
        (GOOD, 90, ["epoch 0: 40 positions (60-100) out of range"]),
        (
            (GOOD[0], "commit,2,1,b,0,30-50 55-60", GOOD[2]),
            100,
            ["epoch 0: 5 positions (50-55) used by no update"],
        ),
        (
            (*GOOD, "commit,4,3,b,1,5-12"),
            100,
            ["epoch 1: 5 positions (5-10) used more than once"],
        ),
        ((*GOOD, GOOD[3]), 100, ["epoch 1: 10 positions (0-10) used more than once"]),
        (
            (GOOD[0], "commit,2,1,b,0,25-59", GOOD[2]),
            100,
            ["epoch 0: 1 positions (59-60) used by no update", "epoch 0: 5 positions (25-30) used more than once"],
        ),
        (("rollback,0,,,,", "epoch,1,,,0,"), 100, ["epoch 0: 100 positions (0-100) used by no update"]),
        ((*GOOD, "rollback,1,,,,", GOOD[1], GOOD[2]), 100, []),
        ((*GOOD, "rollback,1,,,,"), 100, []),
        (
            (*GOOD, "rollback,2,,,,", GOOD[1]),  # the checkpoint did not know of the last update before it
            100,
            ["epoch 0: 30 positions (30-60) used more than once"],
        ),
        (("commit,1,0,a,0,9-9 8-3",), 10, ["epoch 0: 0 positions (8-3, 9-9) out of range"]),
    ],
)
def test_audit_finds_what_is_wrong(tmp_path: Path, lines: tuple[str, ...], samples: int, faults: list[str]) -> None:
    found = audit(write(tmp_path / "journal.csv", *lines), samples)
    assert list(found.faults) == faults
    assert found.exact == (not faults)


def test_audit_of_a_run_that_should_have_more_epochs(tmp_path: Path) -> None:
    found = audit(write(tmp_path / "journal.csv", *GOOD), 100, epochs=3)
    assert found.faults == (
        "epoch 1: 90 positions (10-100) used by no update",
        "epoch 2: 100 positions (0-100) used by no update",
    )


def test_audit_names_only_some_of_many_faults(tmp_path: Path) -> None:
    spans = " ".join(f"{i}-{i + 1}" for i in range(0, 100, 2))
    found = audit(write(tmp_path / "journal.csv", f"commit,1,0,a,0,{spans}", "epoch,1,,,0,"), 100)
    assert found.faults == ("epoch 0: 50 positions (1-2, 3-4, 5-6, 7-8, 9-10, …) used by no update",)


@pytest.mark.parametrize("line", ["commit,1,0,a,0", "commit,1,0,a,0,3", "commit,one,0,a,0,0-3", "other,1,,,,", ""])
def test_audit_refuses_what_is_no_journal(tmp_path: Path, line: str) -> None:
    with pytest.raises(InputError, match=r"journal.csv: line 3: an event of the journal is"):
        audit(write(tmp_path / "journal.csv", GOOD[0], line), 100)
    (tmp_path / "other.csv").write_text("a,b\n")
    with pytest.raises(InputError, match=r"other.csv: line 1: a journal begins with event,version"):
        audit(tmp_path / "other.csv", 100)


def test_a_commit_that_a_full_disk_refuses_is_in_neither_journal_nor_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.csv"
    journal = Journal(path)
    ledger = Ledger(100, journal=journal)
    ledger.join("a")
    batch = take(ledger, "a", 10)
    whole = path.read_bytes()
    pwrite = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda file, line, offset: pwrite(file, line[:5], offset))
        with pytest.raises(OSError, match="the disk took 5 of 20 bytes"):
            ledger.commit(batch.number, 1)
    assert path.read_bytes() == whole
    assert (ledger.committed, ledger.in_flight) == (0, 10)
    ledger.commit(batch.number, 1)
    assert audit(path, 100).committed == 10
    journal.close()
