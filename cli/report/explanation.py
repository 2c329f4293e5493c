"""What ``coplace explain`` prints for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from coplace.cli.output import Symbols, printable
from coplace.cli.report import MIN_WIDTH
from coplace.cli.report.layout import Page, table
from coplace.cli.report.numbers import counted, speed
from coplace.formulations.evaluate import JobOutcome
from coplace.instances.plan import Allocation
from coplace.solver.explain import Alternative, Cluster, Counterfactual, Explanation, RunningJob, WaitingJob

MOST_NODES = 3
"""Nodes of a job that are named."""

MOST_NAMES = 8
"""Jobs that are named."""


def explanation_report(explanation: Explanation, name: str, width: int, symbols: Symbols) -> Iterator[RenderableType]:
    """The parts of the report from top to bottom, for a page of *width* columns; *name* is that of the instance."""
    page = Page(max(width, MIN_WIDTH), symbols)
    if isinstance(explanation, WaitingJob):
        yield from _waiting(explanation, page)
    elif isinstance(explanation, RunningJob):
        yield from _running(explanation, page)
    else:
        yield from _cluster(explanation, name, page)


# --- a waiting job --------------------------------------------------------------------------------------------------


def _waiting(waiting: WaitingJob, page: Page) -> Iterator[RenderableType]:
    yield Text(f"{printable(waiting.job)} waits ({waiting.pending.rule}): {printable(waiting.pending.reason)}")
    yield ""
    if waiting.counterfactuals:
        body = table(page)
        for head in ("what would admit it", "where it would run"):
            body.add_column(head)
        for head in ("share", "gain"):
            body.add_column(head, justify="right", no_wrap=True)
        for found in waiting.counterfactuals:
            body.add_row(*(Text(cell) for cell in _cells(found, waiting.job, page)))
        yield body
    else:
        yield Text("No single change was found that would admit it.")
    if waiting.not_tried:
        yield Text(f"Not tried for lack of time: {', '.join(waiting.not_tried)}; give it more with --time-limit.")


def _cells(found: Counterfactual, job: str, page: Page) -> tuple[str, str, str, str]:
    change = printable(found.change)
    if found.cost > 0:
        change += f" (which costs it {found.cost:.4g})"
    return change, _where(found.plan[job], found.outcome, page), _percent(found.share), f"{found.gain:+.4g}"


# --- a job that runs ------------------------------------------------------------------------------------------------


def _running(running: RunningJob, page: Page) -> Iterator[RenderableType]:
    outcome = running.outcome
    yield Text(f"{printable(running.job)} is {running.change}: {_where(running.allocation, outcome, page)}")
    yield ""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    grid.add_row("value", Text(f"{outcome.value:.6g} at {speed(outcome.speed)} samples/s"))
    costs = [f"restart {running.restart_cost:.4g}"] if running.restart_cost > 0 else []
    costs += [f"pressure on others {running.pressure_cost:.4g}"] if running.pressure_cost > 0 else []
    grid.add_row("costs", Text("; ".join(costs) or "nothing"))
    grid.add_row("gain", Text(f"{running.gain:.6g}: what the plan would lose if it ran nothing"))
    if running.stayed is not None:
        grid.add_row("as it was", Text(_alternative(running.stayed, running.gain, page)))
    elif running.stayed_held is not None:
        grid.add_row("as it was", Text(f"it could not stay: {printable(running.stayed_held)}"))
    if running.runner_up is not None:
        grid.add_row("runner-up", Text(_alternative(running.runner_up, running.gain, page)))
    else:
        grid.add_row("runner-up", Text("none was found, or it may not be moved"))
    if running.gave_way:
        entries = [f"{printable(job)} ({change})" for job, change in list(running.gave_way.items())[:MOST_NAMES]]
        left = len(running.gave_way) - len(entries)
        grid.add_row("gave way", Text(", ".join(entries) + (f" and {left} more" if left else "")))
    if running.next_in_line is not None:
        name = printable(running.next_in_line)
        grid.add_row("next in line", Text(f"{name}, which would gain {running.next_gain:.4g} if this one ran nothing"))
    yield grid


def _alternative(other: Alternative, gain: float, page: Page) -> str:
    counts = _counts(other.allocation, other.gpu_type)
    return f"{counts} on {_nodes(other.allocation, page)}: gain {other.gain:.6g}, {other.gain - gain:+.4g}"


# --- the cluster ----------------------------------------------------------------------------------------------------


def _cluster(cluster: Cluster, name: str, page: Page) -> Iterator[RenderableType]:
    objective, bound = f"objective {cluster.objective:.6g}", f"no plan is worth more than {cluster.bound:.6g}"
    yield Text(f"{printable(name)}: {objective}; {bound}")
    if not cluster.what_ifs:
        return
    yield ""
    body = table(page)
    body.add_column("what if there were")
    body.add_column("estimate", justify="right", no_wrap=True)
    measured = any(what_if.measured is not None for what_if in cluster.what_ifs)
    if measured:
        body.add_column("measured", justify="right", no_wrap=True)
    for what_if in cluster.what_ifs:
        cells = [printable(what_if.change), _change(what_if.estimate, cluster.objective)]
        if measured:
            missing = page.symbols.none
            cells.append(missing if what_if.measured is None else _change(what_if.measured, cluster.objective))
        body.add_row(*(Text(cell) for cell in cells))
    yield body
    yield ""
    yield Text("estimate: by how much the bound rises, by prices; the objective may gain less or more.")
    if cluster.searched is not None:
        found = f"{cluster.searched:.6g}"
        yield Text(f"measured: best plan found with the change, less the best found without it ({found}).")


# --- words ----------------------------------------------------------------------------------------------------------


def _where(allocation: Allocation, outcome: JobOutcome, page: Page) -> str:
    return f"{_counts(allocation, outcome.gpu_type)} on {_nodes(allocation, page)}"


def _counts(allocation: Allocation, gpu_type: str) -> str:
    tasks = counted(allocation.workers, "worker")
    if allocation.servers:
        tasks += f", {counted(allocation.servers, 'server')}"
    return f"{printable(gpu_type)}: {tasks}"


def _nodes(allocation: Allocation, page: Page) -> str:
    """The nodes with the most tasks."""
    tasks = {node: sum(placed.get(node, 0) for placed in allocation.tasks.values()) for node in allocation.nodes}
    order = sorted(tasks, key=lambda node: (-tasks[node], node))
    shown = [f"{printable(node)}{page.symbols.times}{tasks[node]}" for node in order[:MOST_NODES]]
    return ", ".join(shown) + (f" +{len(order) - MOST_NODES}" if len(order) > MOST_NODES else "")


def _percent(share: float) -> str:
    """A share in percent, 0 only if it is."""
    return f"{100 * share:.0f} %" if share == 0 or share >= 0.1 else f"{100 * share:.2g} %"


def _change(amount: float, objective: float) -> str:
    of = f" ({100 * amount / objective:+.2g} %)" if objective > 0 else ""
    return f"{amount:+.4g}{of}"
