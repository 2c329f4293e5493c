"""``coplace generate``: instances to try things on."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Switch(StrEnum):
    """Whether a feature of generated instances is wanted."""

    ON = "on"
    OFF = "off"


def generate(
    family: Annotated[
        str | None, typer.Argument(metavar="FAMILY", help="Kind of instance; without it, list the kinds.")
    ] = None,
    nodes: Annotated[int, typer.Option(help="Nodes.")] = 16,
    jobs: Annotated[int, typer.Option(help="Jobs, waiting and running.")] = 32,
    seed: Annotated[int, typer.Option(help="The same seed gives the same instance.")] = 0,
    pressure: Annotated[Switch, typer.Option(help="Interference between tasks on a node.")] = Switch.ON,
    moves: Annotated[Switch, typer.Option(help="Jobs that run already; off: all of them wait.")] = Switch.ON,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="File (.json, .yaml); without it, JSON is printed."),
    ] = None,
    list_families: Annotated[bool, typer.Option("--list", help="List the kinds of instances.")] = False,
) -> None:
    """Make an instance with speeds fitted to published measurements."""
    from coplace.cli import output as out
    from coplace.cli.arguments import named_as_options
    from coplace.cli.instance_output import check_instance_target, put_instance
    from coplace.instances.generation import FAMILIES
    from coplace.instances.generation import generate as make

    if family is None or list_families:
        width = max(map(len, FAMILIES))
        out.emit("".join(f"{name:{width}}  {each.description}\n" for name, each in FAMILIES.items()))
        return
    check_instance_target(output)
    with named_as_options(family="FAMILY"):
        instance = make(
            family, nodes=nodes, jobs=jobs, seed=seed, pressure=pressure is Switch.ON, moves=moves is Switch.ON
        )
    put_instance(instance, output)
