"""The command line: ``python -m benchmarks [NAME] [--json FILE] [--smoke]``, and wishes of single benchmarks."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.measure import MeasurementError
from benchmarks.registry import WISHES, Benchmark, Figure, registered
from coplace.instances.consistency import nearest
from coplace.instances.files import write_atomically

app = typer.Typer(add_completion=False)


@app.command()
def main(
    name: Annotated[str | None, typer.Argument(help="The benchmark to run; without it, list them.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Draw pictures in this folder (scale).")] = None,
    most_nodes: Annotated[int | None, typer.Option(min=1, help="The largest cluster to run (scale).")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="How many rounds to play (rounds).")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The seed of all that is random (rounds).")] = None,
    only: Annotated[int | None, typer.Option(min=0, help="Play the chain with this number alone (rounds).")] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="Tiny sizes and no targets: does it run at all?")] = False,
) -> None:
    """List the benchmarks, or run one and say which targets it meets."""
    known = registered()
    if name is None:
        _list(known.values())
        return
    if name not in known:
        raise _refusal(f"no benchmark is called {name}; {nearest(name, known)}")
    if json_file is not None and not json_file.absolute().parent.is_dir():
        raise _refusal(f"{json_file}: its folder does not exist")
    if plots is not None and not plots.is_dir():
        raise _refusal(f"{plots}: no such folder")
    WISHES.plots, WISHES.most_nodes = plots, most_nodes
    WISHES.count, WISHES.seed, WISHES.only = count, seed, only
    try:
        figures = list(known[name].figures(smoke))
    except MeasurementError as error:
        raise _refusal(f"{name}: {error}", code=1) from None
    _print(figures)
    if json_file is not None:
        document = report(known[name], figures, smoke)
        try:
            write_atomically(json_file, lambda file: _dump(document, file))
        except OSError as error:
            raise _refusal(f"{json_file}: cannot be written: {error.strerror}", code=1) from None


def report(benchmark: Benchmark, figures: Iterable[Figure], smoke: bool = False) -> dict[str, Any]:
    """The figures with all that is needed to compare them."""
    named = {name: getattr(WISHES, name) for name in ("most_nodes", "count", "seed", "only")}
    wishes = "".join(f" --{name.replace('_', '-')} {value}" for name, value in named.items() if value is not None)
    return {
        "benchmark": benchmark.name,
        "command": f"python -m benchmarks {benchmark.name}{wishes}" + (" --smoke" if smoke else ""),
        "machine": {
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "python": platform.python_version(),
            "processor": _processor(),
        },
        "figures": [figure.to_document() for figure in figures],
    }


def _processor() -> str:
    """The processor's name; ``platform`` alone knows only its architecture on Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _dump(document: dict[str, Any], file: IO[str]) -> None:
    json.dump(document, file, ensure_ascii=False, indent=2)
    file.write("\n")


def _list(benchmarks: Iterable[Benchmark]) -> None:
    table = Table("name", "what it measures")
    for benchmark in benchmarks:
        table.add_row(benchmark.name, benchmark.summary)
    Console().print(table)


def _print(figures: Iterable[Figure]) -> None:
    table = Table("name")
    for column in ("value", "unit", "target", "met"):
        table.add_column(column, justify="right" if column in ("value", "target") else "left")
    for figure in figures:
        target = "" if figure.target is None else f"{figure.target.op} {figure.target.value:g}"
        met = "" if figure.met is None else "yes" if figure.met else "NO"
        table.add_row(figure.name, f"{figure.value:.3g}", figure.unit, target, met)
    Console().print(table)


def _refusal(message: str, code: int = 2) -> typer.Exit:
    """One line on standard error, and the exit code to end with."""
    typer.echo(f"benchmarks: {message}", err=True)
    return typer.Exit(code)


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
