"""What the tables have in common."""

from __future__ import annotations

from dataclasses import dataclass

from rich.box import Box
from rich.cells import cell_len
from rich.table import Table

from coplace.cli.output import ASCII, Symbols, printable

_RULE_BELOW_HEAD = "    \n    \n ── \n    \n    \n    \n    \n    \n"


@dataclass(frozen=True, slots=True)
class Page:
    """How wide the output is and which characters it may use; *show_all* forbids to cut long tables."""

    width: int
    symbols: Symbols
    show_all: bool = False


def table(page: Page) -> Table:
    """An empty table: a rule below its head and nothing else."""
    ascii_only = page.symbols is ASCII
    box = Box(_RULE_BELOW_HEAD.replace("─", "-") if ascii_only else _RULE_BELOW_HEAD, ascii=ascii_only)
    return Table(box=box, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")


def elided(name: str, width: int, symbols: Symbols) -> str:
    """*name* in at most *width* columns, its middle left out: beginnings and ends tell names apart."""
    name = printable(name)
    if cell_len(name) <= width:
        return name
    keep = max(width - len(symbols.ellipsis), 2)
    head, tail = name[: (keep + 1) // 2], name[len(name) - keep // 2 :]
    while cell_len(head) + cell_len(tail) > keep and len(head) > 1:  # characters that are two columns wide
        head, tail = head[:-1], tail[1:] if len(tail) > 1 else tail
    return head + symbols.ellipsis + tail


def widest(texts: list[str], head: str = "") -> int:
    """Columns that the widest of *texts* and the column's head need."""
    return max([cell_len(head), *(cell_len(text) for text in texts)])
