"""The jobs that wait, each with its reason; those that ran until now first."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from coplace.cli.output import printable
from coplace.cli.report.layout import Page, elided, table, widest
from coplace.instances.instance import Instance
from coplace.solver.result import Pending, Result

MOST_ROWS = 20
"""Waiting jobs that are shown unless all are asked for; those that ran until now are always shown."""

_STYLE = {"stopped": "bold red", "displaced": "bold red", "": ""}


def waiting_jobs(instance: Instance, result: Result, page: Page) -> tuple[Table, int]:
    """The table of the waiting jobs, and how many it leaves out."""
    pending = sorted(result.pending, key=lambda entry: not _state(instance, result, entry))
    ended = sum(bool(_state(instance, result, entry)) for entry in pending)
    shown = pending if page.show_all else pending[: max(MOST_ROWS, ended)]
    names = min(widest([printable(entry.job) for entry in shown], "job"), page.width // 3)
    body = table(page)
    body.add_column("job", no_wrap=True)
    if ended:
        body.add_column("until now", no_wrap=True)
    body.add_column("why it waits")
    for entry in shown:
        state = _state(instance, result, entry)
        cells = [Text(elided(entry.job, names, page.symbols)), Text(printable(entry.reason))]
        if ended:
            cells.insert(
                1, Text({"stopped": "ran, stopped", "displaced": "ran, displaced", "": ""}[state], _STYLE[state])
            )
        body.add_row(*cells)
    return body, len(pending) - len(shown)


def _state(instance: Instance, result: Result, entry: Pending) -> str:
    """What ended the job's run; empty if it did not run."""
    if not instance.job[entry.job].running:
        return ""
    return "displaced" if entry.job in result.displaced else "stopped"
