"""Who does which of an epoch's positions.

An epoch's order is random, so any set of positions is a random sample of the data, and any division of them a random
split: whom a position is given to says nothing about the sample. What is divided may therefore follow the workers'
speeds alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from coplace.training.data.shares import apportion
from coplace.training.data.spans import Spans, count, merge, take_first, take_last


class Partition:
    """The positions of an epoch that nobody has taken yet, divided into one part for each worker.

    Weights are given by name, for exactly the workers that have a part, at least 0 each; shares are in proportion to
    them by largest remainder, ties by name.
    """

    def __init__(self, spans: Spans, weights: Mapping[str, float]) -> None:
        """Random split: *spans* cut in proportion to *weights*; all spare if there are none."""
        self._parts: dict[str, Spans] = {}
        self._counts: dict[str, int] = {}
        self._spare: Spans = spans
        self.total = count(spans)
        """Positions in all parts, and spare ones."""
        self.split(weights)

    def part(self, worker: str) -> Spans:
        """The part of *worker*."""
        return self._parts[worker]

    def count(self, worker: str) -> int:
        """Positions in the part of *worker*."""
        return self._counts[worker]

    @property
    def spare(self) -> Spans:
        """What is nobody's, since there are no workers."""
        return self._spare

    def split(self, weights: Mapping[str, float]) -> None:
        """Random split anew, among the workers of *weights*, wherever the positions were before."""
        rest = self._spare
        for part in self._parts.values():
            rest = merge(rest, part)
        self._spare = ()
        self._parts, self._counts = {}, {}
        for worker, share in _shares(self.total, weights).items():
            self._parts[worker], rest = take_first(rest, share)
            self._counts[worker] = share
        if not weights:
            self._spare = rest

    def take(self, worker: str, number: int) -> Spans:
        """The first *number* positions, or all if there are fewer, leave the part of *worker* and the partition."""
        taken, self._parts[worker] = take_first(self._parts[worker], number)
        number = min(number, self._counts[worker])
        self._counts[worker] -= number
        self.total -= number
        return taken

    def put(self, worker: str, spans: Spans) -> None:
        """Positions come to the part of *worker* from outside."""
        self.total += count(spans)
        self._give(worker, spans)

    def join(self, worker: str, weights: Mapping[str, float]) -> None:
        """Give a new worker, which is in *weights*, its share: a random increment."""
        self._parts[worker], self._counts[worker] = (), 0
        if len(self._parts) == 1:
            self._give(worker, self._spare)
            self._spare = ()
        else:
            self.increment(worker, _shares(self.total, weights)[worker])

    def leave(self, worker: str, weights: Mapping[str, float]) -> None:
        """Deal the part of *worker*, which is not in *weights*, out to the others."""
        spans = self._parts.pop(worker)
        self.total -= self._counts.pop(worker)
        self.deal(spans, weights)

    def deal(self, spans: Spans, weights: Mapping[str, float]) -> None:
        """Positions come from outside to those that are below their shares of what there is then."""
        self.total += count(spans)
        if not weights:
            self._spare = merge(self._spare, spans)
            return
        below = {w: max(0, share - self._counts[w]) for w, share in _shares(self.total, weights).items()}
        for worker, number in zip(below, apportion(count(spans), list(below.values()), 0), strict=True):
            given, spans = take_first(spans, number)
            self._give(worker, given)

    def increment(self, worker: str, number: int) -> None:
        """Random increment: *number* positions, or all there are, from the tails of the others to *worker*.

        Each of the others gives in proportion to what it has left.
        """
        others = sorted(other for other in self._parts if other != worker)
        left = [self._counts[other] for other in others]
        for other, lost in zip(others, apportion(min(number, sum(left)), left, 0), strict=True):
            self._give(worker, self._cut(other, lost))

    def weigh(self, weights: Mapping[str, float]) -> None:
        """Dynamic increment: those above their shares of what is left give what is too much to those below."""
        shares = _shares(self.total, weights)
        moved: Spans = ()
        for worker, share in shares.items():
            moved = merge(moved, self._cut(worker, self._counts[worker] - share))
        for worker, share in shares.items():
            given, moved = take_first(moved, share - self._counts[worker])
            self._give(worker, given)

    def _give(self, worker: str, spans: Spans) -> None:
        self._parts[worker] = merge(self._parts[worker], spans)
        self._counts[worker] += count(spans)

    def _cut(self, worker: str, number: int) -> Spans:
        """The last *number* positions of a part, none if that is below 0."""
        if number <= 0:
            return ()
        cut, self._parts[worker] = take_last(self._parts[worker], number)
        self._counts[worker] -= number
        return cut


def _shares(total: int, weights: Mapping[str, float]) -> dict[str, int]:
    names = sorted(weights)
    return dict(zip(names, apportion(total, [weights[name] for name in names], 0), strict=True)) if names else {}
