"""``coplace job``: see and change a training job that runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from coplace.instances.base import Record

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run, as `coplace train` prints it.")]
NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Name of a node.")]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as one JSON object.")]


def status(run: Run, as_json: Json = False) -> None:
    """Show what a job does: its tasks, how far it is, and what it wishes for."""
    from coplace.cli import output as out

    answer = _ask(run, "status")
    if as_json:
        out.emit_json(answer)
        return
    from coplace.cli.report.layout import Page
    from coplace.cli.report.training import status_report

    console = out.console()
    out.emit_rich(console, *status_report(answer, Page(console.width, out.symbols())))


def resize(
    run: Run,
    workers: Annotated[int | None, typer.Option(metavar="N", min=1, help="Workers in all, spread over nodes.")] = None,
    servers: Annotated[int | None, typer.Option(metavar="N", min=1, help="Servers in all, spread over nodes.")] = None,
    plan: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Tasks of each node instead: {NODE: {worker: N, ps: N}}, YAML or JSON."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Give a job other tasks; they are started and let go while training goes on."""
    from coplace.instances.errors import InputError, Problem

    if plan is not None:
        if workers is not None or servers is not None:
            raise InputError([Problem("--plan", "says all counts; leave out --workers and --servers")])
        answer = _ask(run, "resize", tasks=_read_plan(plan))
    elif workers is None and servers is None:
        raise InputError([Problem("", "say what to change by --workers, --servers or --plan")])
    else:
        answer = _ask(run, "resize", workers=workers, servers=servers)
    tasks = answer["tasks"]
    lines = [f"{node}: {_tasks(grant)}" for node, grant in sorted(tasks.items())]
    _tell(answer, as_json, "granted; the tasks start and end while training goes on", *lines)


def checkpoint(run: Run, as_json: Json = False) -> None:
    """Have a job write a checkpoint now."""
    answer = _ask(run, "checkpoint")
    version, folder = answer["version"], run / "checkpoints"
    _tell(answer, as_json, f"a checkpoint, as of update {version} or later, is being written to {folder}")


def stop(run: Run, as_json: Json = False) -> None:
    """End a job, with its model and a checkpoint written."""
    answer = _ask(run, "stop")
    _tell(answer, as_json, f"the job ends, {answer['epoch']:.2f} epochs done; `coplace train --resume` goes on")


def slow(
    run: Run,
    node: NodeName,
    share: Annotated[
        float | None,
        typer.Option(metavar="CORES", min=0.01, help="CPU that its tasks may use together."),
    ] = None,
    pause: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, max=3600, help="Let its tasks stand still for so long.")
    ] = None,
    delay: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, max=3600, help="Make each step of its workers longer.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a straggler of a node, for tests. Without options its tasks are as fast as before."""
    from coplace.instances.errors import InputError, Problem

    if sum(each is not None for each in (share, pause, delay)) > 1:
        raise InputError([Problem("", "give one of --share, --pause and --delay")])
    if share is None and pause is None and delay is None:
        _ask(run, "slow", node=node, delay=0.0)
        answer = _ask(run, "slow", node=node)
        _tell(answer, as_json, f"{node} is as fast as before")
        return
    answer = _ask(run, "slow", node=node, share=share, pause=pause, delay=delay)
    _tell(answer, as_json, f"{node} is slower now; `coplace job slow {run} {node}` ends that")


def join(
    run: Run,
    name: Annotated[str, typer.Option(help="Name of the node; no other of the job has it.")],
    cpu: Annotated[str, typer.Option(metavar="CORES", help="CPU that the job may use there: 2, or 500m.")] = "1",
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory that it may use there: 4Gi.")] = "4Gi",
    as_json: Json = False,
) -> None:
    """Start another node on the machine where the job runs; `coplace node` joins from elsewhere."""
    host = as_host(name, cpu, memory)
    # In the unit of the file of a job, as which the other side does not read it.
    answer = _ask(run, "join", host=host.model_dump())
    _tell(answer, as_json, f"{name} is being started")


def leave(run: Run, node: NodeName, as_json: Json = False) -> None:
    """Let a node go: first its tasks, whose work others take over, then its agent."""
    answer = _ask(run, "leave", node=node)
    _tell(answer, as_json, f"{node} leaves once its tasks have ended")


def as_host(name: str, cpu: str, memory: str) -> Record:
    """A node as options describe it.

    Raises:
        InputError: a name or a quantity is none.
    """
    from coplace.cli.arguments import named_as_options
    from coplace.instances.reading import parse
    from coplace.training.job import Host

    with named_as_options():
        return parse(Host, {"name": name, "cpu": cpu, "memory": memory})


def _ask(run: Path, verb: str, **fields: Any) -> dict[str, Any]:
    from coplace.cli.training_packages import need_training

    need_training()
    from coplace.training.coordinator.control import Control

    with Control(run) as control:
        return control.ask(verb, **fields)


def _tell(answer: dict[str, Any], as_json: bool, *lines: str) -> None:
    from coplace.cli import output as out

    if as_json:
        out.emit_json(answer)
    else:
        out.emit("".join(f"{out.printable(line)}\n" for line in lines))


def _read_plan(path: Path) -> dict[str, dict[str, int]]:
    from coplace.instances.base import Name, Record
    from coplace.instances.errors import InputError, Problem
    from coplace.instances.reading import load_document, parse
    from coplace.training.job import Grant

    class Plan(Record):
        tasks: dict[Name, Grant]

    document = load_document(str(path))
    if not isinstance(document, dict) or not document:
        raise InputError([Problem("", "a plan is a mapping {NODE: {worker: N, ps: N}}")], str(path))
    try:
        plan = parse(Plan, {"tasks": document})
    except InputError as error:
        problems = [replace(each, place=each.place.removeprefix("tasks.")) for each in error.problems]
        raise InputError(problems, str(path)) from None
    return {node: grant.model_dump() for node, grant in plan.tasks.items()}


def _tasks(grant: dict[str, int]) -> str:
    from coplace.cli.report.numbers import counted

    return f"{counted(grant['worker'], 'worker')}, {counted(grant['ps'], 'server')}"
