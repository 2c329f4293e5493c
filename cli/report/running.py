"""The jobs that run: what changes, where, and how fast."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from rich.table import Table
from rich.text import Text

from coplace.cli.output import printable
from coplace.cli.report.layout import Page, elided, table, widest
from coplace.cli.report.numbers import ratio, speed
from coplace.formulations.reference import references
from coplace.formulations.speed import StatedSpeeds
from coplace.instances.instance import Instance
from coplace.instances.job import Job
from coplace.instances.plan import WORKER, Allocation
from coplace.solver.result import Result, change_of

MOST_ROWS = 40
"""Running jobs that are shown unless all are asked for."""

Change = Literal["moved", "resized", "started", "kept"]
ORDER: tuple[Change, ...] = ("moved", "resized", "started", "kept")
"""What may become of a job that runs, most changed first."""

_STYLE = {"moved": "yellow", "resized": "cyan", "started": "green", "kept": "dim"}


@dataclass(frozen=True, slots=True)
class _Row:
    job: str
    change: str
    detail: str
    gpu_type: str
    new_type: str
    workers: str
    servers: str
    allocation: Allocation
    speed: str
    speedup: str


def running_jobs(instance: Instance, result: Result, page: Page) -> tuple[Table, int]:
    """The table of the running jobs, most changed first, and how many it leaves out."""
    jobs = sorted(
        (job for job in instance.jobs if job.name in result.plan), key=lambda job: _rank(instance, result, job)
    )
    shown = jobs if page.show_all else jobs[:MOST_ROWS]
    return _table(_rows(instance, result, shown, page), page), len(jobs) - len(shown)


def _rank(instance: Instance, result: Result, job: Job) -> tuple[int, int]:
    planned = result.plan[job.name]
    change = change_of(instance, job.name, planned)
    if change != "resized" or job.current is None:
        return ORDER.index(change), 0
    return ORDER.index(change), -abs(planned.workers - job.current.workers) - abs(planned.servers - job.current.servers)


def _rows(instance: Instance, result: Result, jobs: list[Job], page: Page) -> list[_Row]:
    arrow = f" {page.symbols.arrow} "
    # Of the shown jobs only: for thousands of jobs this costs more than all the rest of the report.
    reference = references(instance.model_copy(update={"jobs": tuple(jobs)}), StatedSpeeds())
    rows = []
    for job, base in zip(jobs, reference, strict=True):
        planned, outcome = result.plan[job.name], result.jobs[job.name]
        change = change_of(instance, job.name, planned)
        workers, servers, gpu_type = str(planned.workers), str(planned.servers or page.symbols.none), outcome.gpu_type
        detail = ""
        if job.current is not None:
            if job.current.workers != planned.workers:
                workers = f"{job.current.workers}{arrow}{workers}"
            if job.current.servers != planned.servers:
                servers = f"{job.current.servers}{arrow}{servers}"
            before = instance.node[next(iter(job.current.tasks[WORKER]))].gpu_type
            if before != gpu_type:
                gpu_type = f"{before}{arrow}{gpu_type}"
            if change == "resized" and job.current.shape[:2] == planned.shape[:2]:
                detail = " (profile)"
        rows.append(
            _Row(
                job=printable(job.name),
                change=change,
                detail=detail,
                gpu_type=printable(gpu_type),
                new_type=printable(outcome.gpu_type),
                workers=workers,
                servers=servers,
                allocation=planned,
                speed=speed(outcome.speed),
                speedup=ratio(outcome.speed / base.speed) if base.speed > 0 else page.symbols.none,
            )
        )
    return rows


@dataclass(frozen=True, slots=True)
class _Column:
    head: str
    cells: list[Text]
    right: bool = False

    @property
    def width(self) -> int:
        return widest([cell.plain for cell in self.cells], self.head)


def _table(rows: list[_Row], page: Page) -> Table:
    all_names, all_nodes = widest([row.job for row in rows], "job"), widest([_nodes(row, 10_000, page) for row in rows])
    columns: list[_Column] = []
    rest = 0
    for cramped in range(4):  # on a narrow page what a reader misses least goes first
        columns = _fixed_columns(rows, page, cramped)
        rest = page.width - sum(column.width + 2 for column in columns) - 2
        if rest >= min(all_names, 24) + min(all_nodes, 14):
            break
    names = min(all_names, max(rest * 3 // 5, rest - all_nodes))
    if rest < 30 and cramped == 3:
        names = rest + 2
    else:
        columns.append(_Column("nodes", [Text(_nodes(row, rest - names, page)) for row in rows]))
    columns.insert(0, _Column("job", [Text(elided(row.job, names, page.symbols)) for row in rows]))

    body = table(page)
    for column in columns:
        body.add_column(column.head, justify="right" if column.right else "left", no_wrap=True)
    for cells in zip(*(column.cells for column in columns), strict=True):
        body.add_row(*cells)
    return body


def _fixed_columns(rows: list[_Row], page: Page, cramped: int) -> list[_Column]:
    """The columns between job and nodes; *cramped* 1 leaves out former GPU types, 2 also the speed-up, 3 details."""
    types = [row.new_type if cramped else row.gpu_type for row in rows]
    columns = [
        _Column(
            "change", [Text(row.change + (row.detail if cramped < 3 else ""), style=_STYLE[row.change]) for row in rows]
        ),
        _Column("GPU type", [Text(elided(gpu_type, 22, page.symbols)) for gpu_type in types]),
        _Column("workers", [Text(row.workers) for row in rows], right=True),
    ]
    if any(row.allocation.servers for row in rows):
        columns.append(_Column("servers", [Text(row.servers) for row in rows], right=True))
    columns.append(_Column("samples/s", [Text(row.speed) for row in rows], right=True))
    if cramped < 2:
        columns.append(_Column("speed-up", [Text(row.speedup) for row in rows], right=True))
    return columns


def _nodes(row: _Row, width: int, page: Page) -> str:
    """Nodes with their tasks (workers and servers together), those with the most tasks first, as far as they fit."""
    tasks: Counter[str] = Counter()
    for placed in row.allocation.tasks.values():
        tasks.update(placed)
    entries = [
        (name, f"{page.symbols.times}{count}") for name, count in sorted(tasks.items(), key=lambda e: (-e[1], e[0]))
    ]
    text = ""
    for index, (name, count) in enumerate(entries):
        left = len(entries) - index - 1
        more = f" +{left}" if left else ""
        entry = (", " if text else "") + elided(name, width, page.symbols) + count
        if len(text) + len(entry) + len(more) <= width:
            text += entry
        elif text:
            return f"{text} +{left + 1}"
        else:
            return elided(name, width - len(count) - len(more), page.symbols) + count + more
    return text
