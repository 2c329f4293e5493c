"""What ``coplace solve`` prints for people: the plan, the cluster under it, who waits and why, and what is proven."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from coplace.cli.output import Symbols
from coplace.cli.report import summary
from coplace.cli.report.cluster import cluster_use, not_offered
from coplace.cli.report.layout import Page
from coplace.cli.report.running import running_jobs
from coplace.cli.report.waiting import waiting_jobs
from coplace.instances.instance import Instance
from coplace.solver.result import Result

MIN_WIDTH = 72
"""Columns below which the tables are not squeezed; a narrower terminal breaks their lines."""


def report(
    instance: Instance, result: Result, name: str, width: int, symbols: Symbols, *, show_all: bool = False
) -> Iterator[RenderableType]:
    """The parts of the report from top to bottom, for a page of *width* columns."""
    page = Page(max(width, MIN_WIDTH), symbols, show_all)
    yield summary.title(instance, result, name)
    yield summary.outcome(instance, result)
    ended = summary.displaced(result, page)
    if ended is not None:
        yield ended
    if result.plan.allocations:
        yield ""
        body, left_out = running_jobs(instance, result, page)
        yield body
        if left_out:
            yield _more(left_out, "run", page)
    yield ""
    yield cluster_use(instance, result.plan, page)
    unusable = not_offered(instance)
    if unusable is not None:
        yield unusable
    if result.pending:
        yield ""
        body, left_out = waiting_jobs(instance, result, page)
        yield body
        if left_out:
            yield _more(left_out, "wait", page)
    yield ""
    yield summary.ending(instance, result, page)


def _more(count: int, verb: str, page: Page) -> Text:
    does = f"{verb}s" if count == 1 else verb
    return Text(f"{page.symbols.ellipsis} {count:,} more {does}; --all shows them, --json too", style="italic")
