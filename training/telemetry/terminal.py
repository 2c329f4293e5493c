"""The state of a run, live on a terminal, and as one plain line now and then elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker: share of the global batch and of its time spent waiting (0 to 1), samples/s, steps, MiB."""

    name: str
    node: str
    share: float
    samples_per_second: float | None = None
    wait: float | None = None
    staleness: float | None = None
    rss_mib: float | None = None
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class ServerRow:
    """One server: MiB of parameters that it holds, and its resident set in MiB."""

    name: str
    node: str
    mib: float
    rss_mib: float | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a run is doing now.

    Attributes:
        job: name of the job.
        state: one word or a few, e.g. ``training``.
        at_seconds: seconds since the job started.
        epoch: epochs done, fractions included.
        epochs: epochs to do; None without a limit.
        samples: samples done.
        samples_per_second: all workers together.
        loss, accuracy: latest training loss and validation accuracy.
        target: validation accuracy to reach.
        foreseen_samples, foreseen_seconds: what is still to do until the target is reached.
        workers, servers: one row each.
    """

    job: str
    state: str
    at_seconds: float
    epoch: float
    epochs: float | None = None
    samples: int = 0
    samples_per_second: float | None = None
    loss: float | None = None
    accuracy: float | None = None
    target: float | None = None
    foreseen_samples: float | None = None
    foreseen_seconds: float | None = None
    workers: tuple[WorkerRow, ...] = ()
    servers: tuple[ServerRow, ...] = ()


def line(snapshot: Snapshot) -> str:
    """The run on one line, without the tasks."""
    return ", ".join([f"{snapshot.job}: {snapshot.state}", *_facts(snapshot)])


def plain(snapshot: Snapshot, width: int = 100) -> str:
    """What the terminal shows, without colours, at most *width* columns wide; ends with a line end."""
    import io

    from rich.console import Console

    text = io.StringIO()
    console = Console(file=text, width=width, color_system=None, force_terminal=False, legacy_windows=False)
    console.print(render(snapshot))
    return "".join(part.rstrip() + "\n" for part in text.getvalue().splitlines())


def render(snapshot: Snapshot) -> RenderableType:
    """What the terminal shows, for rich."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [
        Text.assemble((snapshot.job, "bold"), f"  {snapshot.state}"),
        Text(", ".join(_facts(snapshot))),
    ]
    if snapshot.workers:
        headings = ("worker", "node", "share", "samples/s", "wait", "staleness", "MiB", "threads")
        rows = [
            (
                worker.name,
                worker.node,
                _percent(worker.share),
                _speed(worker.samples_per_second),
                _percent(worker.wait),
                _number(worker.staleness, ".1f"),
                _number(worker.rss_mib, ",.0f"),
                _number(worker.threads, "d"),
            )
            for worker in snapshot.workers
        ]
        parts.append(_table(headings, rows))
    if snapshot.servers:
        rows_of_servers = [
            (server.name, server.node, _number(server.mib, ",.1f"), _number(server.rss_mib, ",.0f"))
            for server in snapshot.servers
        ]
        parts.append(_table(("server", "node", "MiB held", "MiB"), rows_of_servers))
    return Group(*parts)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    """A table without lines; names, in the first two columns, give way to the numbers."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for index, heading in enumerate(headings):
        width = max(len(heading), *(len(row[index]) for row in rows))
        if index < 2:
            table.add_column(heading, min_width=min(width, 12))  # rich narrows only columns that may wrap
        else:
            table.add_column(heading, justify="right", no_wrap=True, min_width=width)
    for row in rows:
        table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in row))
    return table


class Terminal:
    """Shows a run on *stream* (standard error): live where that is a terminal, else a plain line now and then.

    Args:
        stream: where to; by default standard error as it is when this is made.
        every_seconds: time between two plain lines; a new state has one at once, a new epoch within a second.
        live_seconds: least time between two live pictures.
        clock: monotonic seconds, for tests.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        every_seconds: float = 10.0,
        live_seconds: float = 0.25,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream: TextIO | None = sys.stderr if stream is None else stream
        self._every = every_seconds
        self._live_every = live_seconds
        self._clock = clock
        self._shown_at = -math.inf
        self._shown: Snapshot | None = None
        self._pending: Snapshot | None = None
        self._console: Console | None = None
        self._live: Live | None = None
        if self._stream is not None and self._stream.isatty():
            from rich.console import Console

            self._console = Console(file=self._stream)
            # dumb terminals cannot be painted over
            if not self._console.is_terminal or self._console.is_dumb_terminal:
                self._console = None

    def show(self, snapshot: Snapshot) -> None:
        """Show *snapshot*, unless one was shown a moment ago."""
        now = self._clock()
        due = now - self._shown_at >= (self._live_every if self._console else self._every)
        last = self._shown
        turned = last is None or last.state != snapshot.state
        passed = last is not None and int(last.epoch) != int(snapshot.epoch) and now - self._shown_at >= 1.0
        if due or turned or passed:
            self._shown_at, self._shown, self._pending = now, snapshot, None
            self._paint(snapshot)
        else:
            self._pending = snapshot

    def say(self, text: str) -> None:
        """Write a line of its own, above what is shown."""
        if self._stream is None:
            return
        try:
            if self._console is None:
                self._stream.write(text + "\n")
                self._stream.flush()
            else:
                self._console.print(text, markup=False, highlight=False)
        except (OSError, UnicodeEncodeError):
            self._stream = None
            self._live = None

    def close(self) -> None:
        """Show the last snapshot, and leave it standing; more than once does no harm."""
        if self._pending is not None:
            self._paint(self._pending)
            self._pending = None
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _paint(self, snapshot: Snapshot) -> None:
        if self._stream is None:
            return
        try:
            if self._console is None:
                self._stream.write(line(snapshot) + "\n")
                self._stream.flush()
                return
            if self._live is None:
                from rich.live import Live

                # No thread: the coordinator has one, and paints when it has something to say.
                self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False)
                self._live.start()
            self._live.update(render(snapshot), refresh=True)
        except (OSError, UnicodeEncodeError):  # nobody is there to read it, or cannot; the run goes on
            self._stream = None
            self._live = None


def _facts(snapshot: Snapshot) -> list[str]:
    of = "" if snapshot.epochs is None else f"/{snapshot.epochs:g}"
    facts = [f"epoch {math.floor(snapshot.epoch * 100) / 100:.2f}{of}", f"{snapshot.samples:,} samples"]
    if snapshot.samples_per_second is not None:
        facts.append(f"{_speed(snapshot.samples_per_second)} samples/s")
    if snapshot.loss is not None:
        facts.append(f"loss {snapshot.loss:.4g}")
    if snapshot.accuracy is not None:
        aim = "" if snapshot.target is None else f" of {100 * snapshot.target:.4g} %"
        facts.append(f"accuracy {100 * snapshot.accuracy:.2f} %{aim}")
    facts.append(f"after {_duration(snapshot.at_seconds)}")
    if snapshot.foreseen_samples is not None and math.isfinite(snapshot.foreseen_samples):
        still = f"target in about {_rough(snapshot.foreseen_samples)} samples"
        if snapshot.foreseen_seconds is not None and math.isfinite(snapshot.foreseen_seconds):
            still += f" ({_duration(snapshot.foreseen_seconds)})"
        facts.append(still)
    return facts


def _number(value: float | None, form: str) -> str:
    return UNKNOWN if value is None or not math.isfinite(value) else format(value, form)


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{100 * share:.1f} %"


def _speed(samples_per_second: float | None) -> str:
    if samples_per_second is None:
        return UNKNOWN
    return f"{samples_per_second:,.0f}" if samples_per_second >= 100 else f"{samples_per_second:.3g}"


def _rough(count: float) -> str:
    """Two significant digits, which is more than a forecast knows."""
    if count < 100:
        return f"{count:.0f}"
    digits = math.floor(math.log10(count)) - 1
    return f"{round(count, -digits):,.0f}"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    if minutes < 100:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} h"
