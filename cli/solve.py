"""``coplace solve``: decide what the cluster runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from coplace.instances import Instance

MODEL_SUFFIXES = (".pb", ".pbtxt", ".mps", ".lp")
"""Endings of model files: CP-SAT's, binary and text, then those of MIP solvers."""


def solve(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Instance, YAML or JSON.")],
    method: Annotated[str, typer.Option(help="How to search; `coplace methods` lists the choices.")] = "auto",
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="Wall time after which the best plan is taken.")
    ] = (10.0),
    gap: Annotated[float, typer.Option(metavar="SHARE", help="Relative gap at which a proven plan is good enough.")] = (
        1e-4
    ),
    seed: Annotated[
        int, typer.Option(help="Seed of the random numbers; with --replay the same one gives the same plan.")
    ] = 0,
    backend: Annotated[
        str, typer.Option(help="Solver of the methods mip and classes: highs, cbc, scip, gurobi or cplex.")
    ] = "highs",
    replay: Annotated[
        bool, typer.Option("--replay", help="The same plan on every run, whatever the clock says; slower.")
    ] = False,
    memory: Annotated[
        int | None,
        typer.Option(metavar="MIB", min=0, help="Memory limit of the solver; default: 3/4 of the machine's, 0: none."),
    ] = None,
    goal: Annotated[
        str | None,
        typer.Option(help="jct, throughput, fairness, makespan or deadline, instead of the goal in FILE."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="RESULT.json", help="Also write that object to a file.")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option("--write-model", metavar="FILE", help="Write the exact model: .pb, .pbtxt, .mps or .lp."),
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
        from coplace.instances import InputError, Problem, read_instance

        check_goal(goal)
        _check_backend(backend)
        out.check_target(output, file)
        if output is not None and out.is_standard_output(output):
            rule, mend = "must be another file than standard output", "leave it out: the plan is printed there anyway"
            raise InputError([Problem("--output", rule, repr(str(output)), mend)])
        _check_model_target(model, file, output)
        instance = with_goal(read_instance(file), goal)
        if model is not None:
            _write_model(instance, model)
        interrupts.defer()
        try:
            with named_as_options(memory_mib="--memory"):
                result = solver.solve(
                    instance, method=method, time_limit=time_limit, gap=gap, seed=seed, backend=backend, replay=replay,
                    memory_mib=memory, interrupted=interrupts, progress=progress.rung,
                )  # fmt: skip
        finally:
            progress.clear()

        def show() -> None:
            if as_json:
                out.emit_json(result.to_document(instance))
                return
            from coplace.cli.report import report

            console = out.console()
            parts = report(
                instance, result, instance.name or file.stem, console.width, out.symbols(), show_all=show_all
            )
            out.emit_rich(console, *parts)

        def write() -> None:
            if output is not None:
                out.write_json(output, result.to_document(instance))

        _all_of(show, write)


def _all_of(*steps: Callable[[], None]) -> None:
    """Take every step, so that a plan that took long is not lost because one of two places cannot hold it.

    Raises:
        InputError: what any of them has raised.
    """
    from coplace.instances import InputError, Problem

    errors = []
    for step in steps:
        try:
            step()
        except InputError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise InputError(Problem("", str(error)) for error in errors)


def _check_backend(backend: str) -> None:
    from coplace.instances import InputError, Problem
    from coplace.instances.consistency import near
    from coplace.solver.solve import BACKENDS

    if backend not in BACKENDS:
        rule = f"must be one of {', '.join(BACKENDS)}"
        raise InputError([Problem("--backend", rule, repr(backend), near(backend, BACKENDS))])


def _check_model_target(path: Path | None, file: Path, output: Path | None) -> None:
    """Refuse a model file whose name does not say its format, or that cannot be written."""
    from coplace.cli import output as out
    from coplace.instances import InputError, Problem

    if path is None:
        return
    if path.suffix not in MODEL_SUFFIXES:
        rule = "the name of a model file ends in .pb or .pbtxt (CP-SAT), .mps or .lp (MIP)"
        raise InputError([Problem("--write-model", rule, repr(path.name))])
    out.check_target(path, file)
    if output is not None and output.absolute() == path.absolute():
        raise InputError([Problem("--write-model", "must be another file than --output", repr(str(path)))])


def _write_model(instance: Instance, path: Path) -> None:
    """Write the exact formulation over all columns; raises :class:`InputError`."""
    from coplace.cli import output as out
    from coplace.formulations.columns import column_set

    columns = column_set(instance)
    if path.suffix in (".pb", ".pbtxt"):
        from coplace.formulations.cpsat import CpsatModel

        out.replace(path, CpsatModel(columns).write)
    else:
        from coplace.formulations.mip import MipModel

        out.replace(path, MipModel(columns).write)
