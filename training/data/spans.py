"""Sets of positions as sorted spans [start, stop) that neither overlap nor touch."""

from __future__ import annotations

from bisect import bisect_left
from typing import TypeAlias

Spans: TypeAlias = tuple[tuple[int, int], ...]


def count(spans: Spans) -> int:
    """Positions in *spans*."""
    return sum(stop - start for start, stop in spans)


def take_first(spans: Spans, number: int) -> tuple[Spans, Spans]:
    """The first *number* positions, or all if there are fewer, and the rest."""
    for i, (start, stop) in enumerate(spans):
        if number < stop - start:
            if number <= 0:
                return spans[:i], spans[i:]
            cut = start + number
            return (*spans[:i], (start, cut)), ((cut, stop), *spans[i + 1 :])
        number -= stop - start
    return spans, ()


def take_last(spans: Spans, number: int) -> tuple[Spans, Spans]:
    """The last *number* positions, or all if there are fewer, and the rest."""
    for i in range(len(spans), 0, -1):
        start, stop = spans[i - 1]
        if number < stop - start:
            if number <= 0:
                return spans[i:], spans[:i]
            cut = stop - number
            return ((cut, stop), *spans[i:]), (*spans[: i - 1], (start, cut))
        number -= stop - start
    return spans, ()


def merge(spans: Spans, more: Spans) -> Spans:
    """The positions of both.

    Raises:
        ValueError: they have a position in common.
    """
    if len(spans) < len(more):
        spans, more = more, spans
    if not more:
        return spans
    result = list(spans)
    for start, stop in more:
        i = bisect_left(result, (start, stop))
        if (i and result[i - 1][1] > start) or (i < len(result) and result[i][0] < stop):
            raise ValueError(f"positions {start} to {stop} are there already, at least some of them")
        before, after = i - 1 if i and result[i - 1][1] == start else i, i
        if i < len(result) and result[i][0] == stop:
            stop, after = result[i][1], i + 1
        if before < i:
            start = result[before][0]
        result[before:after] = [(start, stop)]
    return tuple(result)


def complement(spans: Spans, total: int) -> Spans:
    """The positions of [0, total) that are not in *spans*, all of whose are."""
    edges = [0, *(edge for span in spans for edge in span), total]
    return tuple((start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True) if start < stop)
