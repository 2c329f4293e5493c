"""``coplace solve``: decide what the cluster runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def solve(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Instance, YAML or JSON.")],
    method: Annotated[str, typer.Option(help="How to search; `coplace methods` lists the choices.")] = "auto",
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="Wall time after which the best plan is taken.")
    ] = (60.0),
    gap: Annotated[float, typer.Option(metavar="SHARE", help="Relative gap at which a proven plan is good enough.")] = (
        1e-4
    ),
    seed: Annotated[int, typer.Option(help="The same seed gives the same plan.")] = 0,
    goal: Annotated[
        str | None,
        typer.Option(help="jct, throughput, fairness, makespan or deadline, instead of the goal in FILE."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="RESULT.json", help="Also write that object to a file.")
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show every job, however many there are.")] = False,
) -> None:
    """Decide which jobs run, how large, and where.

    Ctrl-C while it solves ends with the best plan so far; a second one gives that up. What is printed for people
    calls speed-up the predicted speed over the best one at the job's smallest worker count.
    """
    from coplace.cli.interrupts import Interrupts
    from coplace.cli.progress import Progress

    progress = Progress()
    with Interrupts(progress.stopping) as interrupts:
        from coplace import solver
        from coplace.cli import output as out
        from coplace.cli.arguments import check_goal, named_as_options, with_goal
        from coplace.instances import read_instance

        check_goal(goal)
        out.check_target(output, file)
        instance = with_goal(read_instance(file), goal)
        interrupts.defer()
        try:
            with named_as_options():
                result = solver.solve(
                    instance, method=method, time_limit=time_limit, gap=gap, seed=seed,
                    interrupted=interrupts, progress=progress.rung,
                )  # fmt: skip
        finally:
            progress.clear()
        document = result.to_document(instance) if as_json or output is not None else None
        if output is not None:
            out.write_json(output, document)
        if as_json:
            out.emit_json(document)
        else:
            from coplace.cli.report import report

            console = out.console()
            name = instance.name or file.stem
            parts = report(instance, result, name, console.width, out.symbols(), show_all=show_all)
            out.emit_rich(console, *parts)
