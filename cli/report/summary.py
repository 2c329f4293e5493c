"""The first and the last lines of a report."""

from __future__ import annotations

from collections import Counter

from rich.table import Table
from rich.text import Text

from coplace.cli.output import printable
from coplace.cli.report.layout import Page
from coplace.cli.report.numbers import counted, duration, share
from coplace.cli.report.running import ORDER
from coplace.instances.instance import Instance
from coplace.solver.result import Result, change_of

_GOALS = {
    "jct": "mean completion time",
    "throughput": "sum of relative speeds",
    "fairness": "fair shares",
    "makespan": "earliest end of the last job",
    "deadline": "deadlines",
}
_REASONS = {
    "finished": "the method ran to its end",
    "gap": "the gap asked for was reached",
    "time": "the time limit was reached",
    "memory": "the memory limit was reached",
    "interrupted": "interrupted",
    "backend_failure": "a solver failed",
}


def title(instance: Instance, result: Result, name: str) -> Text:
    """What was solved, and how."""
    text = Text(printable(name), style="bold")
    size = f"{counted(len(instance.nodes), 'node')}, {counted(len(instance.jobs), 'job')}"
    text.append(f": {size}; goal {instance.goal} ({_GOALS[instance.goal]}); method {result.method}", style="not bold")
    return text


def outcome(instance: Instance, result: Result) -> Text:
    """How many jobs run and wait, and what changes."""
    changes = Counter(change_of(instance, job, planned) for job, planned in result.plan.allocations.items())
    what = ", ".join(f"{changes[change]:,} {change}" for change in ORDER if changes[change])
    runs = f"{counted(len(result.plan), 'job')} {'runs' if len(result.plan) == 1 else 'run'}"
    text = f"{runs} ({what})" if what else "No job runs"
    waiting = len(result.pending)
    if waiting:
        text += f", {waiting:,} {'waits' if waiting == 1 else 'wait'}"
        stopped = sum(instance.job[entry.job].running for entry in result.pending)
        if stopped:
            text += f" ({stopped:,} of them ran until now)"
    return Text(text + ".")


MOST_DISPLACED = 20
"""Displaced jobs that are named unless all are asked for; those that wait stand in the table below anyway."""


def displaced(result: Result, page: Page) -> Text | None:
    """The jobs whose run lost capacity or a tightened rule has ended, and what becomes of them."""
    if not result.displaced:
        return None
    shown = result.displaced if page.show_all else result.displaced[:MOST_DISPLACED]
    names = [f"{printable(job)} ({'runs again' if job in result.plan else 'waits'})" for job in shown]
    if len(shown) < len(result.displaced):
        names.append(f"and {len(result.displaced) - len(shown):,} more")
    return Text(f"Displaced by lost capacity or a tightened rule: {', '.join(names)}.")


def ending(instance: Instance, result: Result, page: Page) -> Table:
    """What the plan is worth, what is proven, and how the solve ended."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    optimal = ", optimal within the gap asked for" if result.status == "optimal" else ""
    grid.add_row("objective", Text(f"{result.objective:.6g}{optimal}"))
    grid.add_row("bound", Text(_bound(result)))
    budget = instance.rules.move_budget
    allowed = f" (allowed: {budget:,})" if budget is not None else ""
    grid.add_row("moves", Text(f"{counted(len(result.moved), 'running job')} moved, resized or stopped{allowed}"))
    found = f"found by {result.found_by}, {duration(result.wall_seconds)} in all"
    detail = "" if result.detail is None else f" ({printable(result.detail)})"
    grid.add_row("ended", Text(f"{_REASONS[result.reason]}{detail}; {found}"))
    return grid


def _bound(result: Result) -> str:
    text = "not known" if result.bound is None else f"{result.bound:.6g}"
    text += "; gap not known" if result.gap is None else f"; gap {share(result.gap)}"
    if result.certified_gap is not None:
        text += f", certified {share(result.certified_gap)}"
    return text
