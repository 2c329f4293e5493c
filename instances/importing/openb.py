"""The openb tables: nodes and pods of a production GPU cluster, as published with a Kubernetes simulator.

Source: github.com/hkust-adsl/kubernetes-scheduler-simulator (Apache-2.0); described in Weng et al., "Beware of
Fragmentation", USENIX ATC 2023. Columns of the nodes: ``node, cpu_milli, memory_mib, num_gpus, gpu_model``; of the
pods: ``pod, submit_s, scheduled_s, deleted_s, duration_s, cpu_milli, memory_mib, num_gpus, gpu_milli, qos, phase``.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from coplace.instances.base import LARGEST
from coplace.instances.cluster import NO_GPU, Node
from coplace.instances.errors import InputError, Problem, plain, shorten
from coplace.instances.importing.imported import Imported, PodSpeed, build, imported, pod_job
from coplace.instances.job import Job
from coplace.instances.quantities import format_cpu, format_memory

NODE_COLUMNS = ("node", "cpu_milli", "memory_mib", "num_gpus", "gpu_model")
POD_COLUMNS = (
    "pod", "submit_s", "scheduled_s", "deleted_s", "duration_s", "cpu_milli", "memory_mib", "num_gpus", "gpu_milli",
    "qos", "phase",
)  # fmt: skip
_WHOLE = re.compile(r"\d{1,15}", re.ASCII)


def import_openb(
    nodes_csv: str | os.PathLike[str],
    pods_csv: str | os.PathLike[str] | None = None,
    *,
    at_seconds: float | None = None,
    max_jobs: int | None = None,
    phases: Collection[str] = ("Running", "Pending"),
) -> Imported:
    """Nodes and pods of the openb tables as an instance in which every pod is a waiting job of one worker.

    The tables do not say on which node a pod runs, so all wait, with their whole duration ahead (1 sample/s, so
    remaining samples are seconds; unknown for pods that never ran). Pods with GPUs may run on every GPU type, pods
    without on every node. A share of a GPU is rounded up to one GPU.

    Args:
        nodes_csv: table of nodes.
        pods_csv: table of pods; None: no jobs.
        at_seconds: a moment of the trace: only pods submitted by then and deleted after it, with their age; None:
            all pods.
        max_jobs: take only so many pods, the earliest submitted ones; None: all.
        phases: phases of the pods to take; the others (failed, succeeded) are left out and counted.

    Raises:
        InputError: a file cannot be read, a column is missing, or a cell is no number; names line and column.
        ValueError: *max_jobs* is negative or *at_seconds* is no number.
    """
    if max_jobs is not None and max_jobs < 0:
        raise ValueError(f"max_jobs must be at least 0, not {max_jobs}")
    if at_seconds is not None and not math.isfinite(at_seconds):
        raise ValueError(f"at_seconds must be a finite number, not {at_seconds}")
    nodes = [_node(row) for row in _rows(nodes_csv, NODE_COLUMNS)]
    report: Counter[str] = Counter()
    jobs: list[Job] = []
    if pods_csv is not None:
        speed = PodSpeed(nodes)
        pods = sorted(_chosen(_rows(pods_csv, POD_COLUMNS), at_seconds, phases, report), key=lambda pod: pod[0])
        if max_jobs is not None and len(pods) > max_jobs:
            report[f"pods after the first {max_jobs}, left out"] = len(pods) - max_jobs
            pods = pods[:max_jobs]
        for submitted, row in pods:
            jobs += _job(row, 0.0 if at_seconds is None else at_seconds - submitted, speed, report)
    return imported(nodes, jobs, "openb", report, os.fspath(nodes_csv if pods_csv is None else pods_csv))


def _node(row: _Row) -> Node:
    gpu = row.whole("num_gpus")
    return build(
        Node, row.place, row.source, name=row["node"], gpu=gpu, gpu_type=(row["gpu_model"] or "gpu") if gpu else NO_GPU,
        cpu=format_cpu(row.whole("cpu_milli")), memory=format_memory(row.whole("memory_mib")),
    )  # fmt: skip


def _chosen(
    rows: Iterator[_Row], at_seconds: float | None, phases: Collection[str], report: Counter[str]
) -> Iterator[tuple[float, _Row]]:
    for row in rows:
        submitted, deleted = row.seconds("submit_s"), row.seconds("deleted_s")
        if submitted is None:
            raise row.error("submit_s", "is missing")
        if row["phase"] not in phases:
            report[f"pods {row['phase'].lower() or 'without phase'}, left out"] += 1
        elif at_seconds is not None and (submitted > at_seconds or (deleted is not None and deleted <= at_seconds)):
            report["pods of another time, left out"] += 1
        else:
            yield submitted, row


def _job(row: _Row, age: float, speeds: PodSpeed, report: Counter[str]) -> Iterator[Job]:
    gpu, share, duration = row.whole("num_gpus"), row.whole("gpu_milli"), row.seconds("duration_s")
    speed = speeds.of(gpu)
    if speed is None:
        report["pods with GPUs in a cluster without, left out"] += 1
        return
    if gpu and share < 1000:
        report["pods with a share of a GPU, rounded up to one"] += 1
    if not duration:
        report["pods of unknown duration"] += 1
    demand = (gpu, row.whole("cpu_milli"), row.whole("memory_mib"))
    yield pod_job(row.place, row.source, row["pod"], speed, demand, remaining=duration or None, age_seconds=age)


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a table that knows where it stands."""

    cells: dict[str, str]
    source: str
    line: int

    @property
    def place(self) -> str:
        return f"line {self.line}"

    def __getitem__(self, column: str) -> str:
        return self.cells[column]

    def error(self, column: str, rule: str, found: str = "") -> InputError:
        return InputError([Problem(f"{self.place}.{column}", rule, found)], self.source)

    def whole(self, column: str) -> int:
        """A whole number of at least 0."""
        if not _WHOLE.fullmatch(self.cells[column]):
            raise self.error(column, "must be a whole number of at least 0", shorten(self.cells[column]))
        return int(self.cells[column])

    def seconds(self, column: str) -> float | None:
        """A time of at least 0, None for an empty cell."""
        text = self.cells[column]
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value <= LARGEST:
            raise self.error(column, f"must be a number of seconds from 0 to {plain(LARGEST)}", shorten(text))
        return value


def _rows(path: str | os.PathLike[str], columns: tuple[str, ...]) -> Iterator[_Row]:
    """The rows of a table, whose first column is a name that stands once."""
    source = os.fspath(path)
    lines: dict[str, int] = {}
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            header = tuple(rows.fieldnames or ())
            for column in columns:
                if column not in header:
                    found = shorten(",".join(header)) if header else "an empty file"
                    raise InputError([Problem("line 1", f"column {column} is missing", found)], source)
            for cells in rows:
                row = _Row(cells, source, rows.line_num)
                if None in cells or None in cells.values():
                    raise InputError([Problem(row.place, f"must have {len(header)} cells, as the header has")], source)
                name = row[columns[0]]
                if name in lines:
                    raise row.error(columns[0], f"must be unique, but stands on line {lines[name]} too", shorten(name))
                lines[name] = row.line
                yield row
    except OSError as error:
        raise InputError([Problem("", f"cannot be read: {error.strerror or error}")], source) from None
    except (ValueError, csv.Error) as error:  # also: no UTF-8
        raise InputError([Problem("", f"cannot be read as CSV: {error}")], source) from None
