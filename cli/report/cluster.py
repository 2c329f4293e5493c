"""The cluster: per GPU type how much of it the plan uses."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.table import Table
from rich.text import Text

from coplace.cli.output import Symbols
from coplace.cli.report.layout import Page, elided, table
from coplace.cli.report.numbers import counted, percent
from coplace.instances.cluster import NO_GPU, Node
from coplace.instances.demand import task_demand
from coplace.instances.instance import Instance
from coplace.instances.plan import Plan

_BAR = 10


@dataclass(slots=True)
class _Use:
    """Sums over nodes; amounts are GPUs, milli-cores, MiB.

    Attributes:
        nodes: nodes of which anything is left.
        total: capacity that has not failed.
        others: of it, what others use.
        planned: of it, what the plan uses.
    """

    nodes: int = 0
    total: list[int] = field(default_factory=lambda: [0, 0, 0])
    others: list[int] = field(default_factory=lambda: [0, 0, 0])
    planned: list[int] = field(default_factory=lambda: [0, 0, 0])

    def add(self, node: Node, planned: list[int]) -> None:
        """Count *node*, of which the plan uses *planned*."""
        if node.lost == "all":
            return
        self.nodes += 1
        for r, (has, lost, free) in enumerate(zip(node.capacity, node.lost.vector, node.free, strict=True)):
            self.total[r] += has - lost
            self.others[r] += has - lost - free
            self.planned[r] += planned[r]

    def share(self, r: int, symbols: Symbols) -> str:
        """How much of resource *r* is used, by whomever."""
        return percent(self.others[r] + self.planned[r], self.total[r]) if self.total[r] else symbols.none


def cluster_use(instance: Instance, plan: Plan, page: Page) -> Table:
    """A row per GPU type, and one for the whole cluster if there are several."""
    planned: dict[str, list[int]] = {node.name: [0, 0, 0] for node in instance.nodes}
    for job in instance.jobs:
        allocation = plan.get(job.name)
        if allocation is None:
            continue
        for role, placed in allocation.tasks.items():
            demand = task_demand(job, role, allocation)
            for name, count in placed.items():
                for r, amount in enumerate(demand):
                    planned[name][r] += count * amount
    types = [gpu_type for gpu_type in instance.gpu_types if gpu_type != NO_GPU]
    if NO_GPU in instance.gpu_types:
        types.append(NO_GPU)
    uses = {gpu_type: _Use() for gpu_type in types}
    everything = _Use()
    for node in instance.nodes:
        uses[node.gpu_type].add(node, planned[node.name])
        everything.add(node, planned[node.name])

    body = table(page)
    shared = everything.others[0] > 0
    body.add_column("GPU type", no_wrap=True)
    for head in ("nodes", "GPUs", "used", *(("by others",) if shared else ()), "free"):
        body.add_column(head, justify="right", no_wrap=True)
    body.add_column("full", no_wrap=True)
    body.add_column("CPU", justify="right", no_wrap=True)
    body.add_column("memory", justify="right", no_wrap=True)
    rows = [*uses.items(), *([("all", everything)] if len(uses) > 1 else [])]
    for gpu_type, use in rows:
        with_gpus = use.total[0] > 0
        free = use.total[0] - use.others[0] - use.planned[0]
        gpus = [use.total[0], use.planned[0], *([use.others[0]] if shared else []), free]
        cells = [
            elided("no GPU" if gpu_type == NO_GPU else gpu_type, max(12, page.width - 80), page.symbols),
            f"{use.nodes:,}",
            *(f"{amount:,}" if with_gpus else page.symbols.none for amount in gpus),
            _full(use, page),
            use.share(1, page.symbols),
            use.share(2, page.symbols),
        ]
        style = "bold" if use is everything and len(uses) > 1 else ""
        body.add_row(*(Text(cell) for cell in cells), style=style)
    return body


def _full(use: _Use, page: Page) -> str:
    """How many of the GPUs are used, as a bar too where the page has room for it."""
    if not use.total[0]:
        return page.symbols.none
    share = (use.others[0] + use.planned[0]) / use.total[0]
    full = min(_BAR, round(share * _BAR))
    bar = f"{page.symbols.full * full}{page.symbols.empty * (_BAR - full)} " if page.width >= 90 else ""
    return f"{bar}{use.share(0, page.symbols):>5}"


def not_offered(instance: Instance) -> Text | None:
    """How many nodes get no new tasks, or none at all."""
    lost = sum(node.lost == "all" for node in instance.nodes)
    cordoned = sum(node.cordoned and node.lost != "all" for node in instance.nodes)
    parts = []
    if cordoned:
        parts.append(f"{counted(cordoned, 'node')} cordoned")
    if lost:
        parts.append(f"{counted(lost, 'node')} lost and not counted")
    return Text(f"{', '.join(parts)}.") if parts else None
