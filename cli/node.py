"""``coplace node``: let this machine take part in a job that runs elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from coplace.training.nodes.invitation import Invitation
    from coplace.training.tasks.spec import Meeting


def node(
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="Folder of the run, if this machine sees it.")
    ] = None,
    meeting: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead of RUN: a copy of the meeting.json in it.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the node; default: that of the machine.")] = None,
    cpu: Annotated[
        str | None, typer.Option(metavar="CORES", help="CPU that the job may use: 2, or 500m; default: all.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory that it may use: 4Gi; default: all.")
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="For tcp: this machine's address for the others; default: found."),
    ] = None,
) -> None:
    """Join a running job as a node, until the job ends.

    Ctrl-C leaves it: first its tasks end, and others take over their work; a second one leaves at once.
    """
    from coplace.cli import output as out
    from coplace.cli.interrupts import Interrupts
    from coplace.cli.job import as_host
    from coplace.cli.training_packages import need_training
    from coplace.instances.errors import InputError, Problem

    if (run is None) == (meeting is None):
        raise InputError([Problem("", "give the folder of the run, or --meeting")])
    need_training()
    from coplace.training.nodes.invitation import read_invitation

    path = run if run is not None else meeting
    assert path is not None
    invitation = read_invitation(path)
    here = _this(name, cpu, memory)
    machine = as_host(*here)
    where = _meeting(invitation, host, str(path))
    logs = path / "logs" if path.is_dir() else None

    from coplace.training.job import Host
    from coplace.training.nodes.agent import Agent, AgentError, load_torch
    from coplace.training.transport import TransportError

    assert isinstance(machine, Host)

    def say(text: str) -> None:
        out.note(f"{machine.name}: {text}")

    load_torch()
    agents: list[Agent] = []
    with Interrupts(lambda: agents[0].leave()) as interrupts:
        try:
            agents.append(Agent(machine, where, logs, invitation.patience, say))
            interrupts.defer()
            why = agents[0].run()
        except AgentError as error:
            raise InputError([Problem("", str(error))], str(path)) from None
        except TransportError as error:
            raise InputError([Problem("", f"the job cannot be reached: {error}")], str(path)) from None
    say(why)


def _this(name: str | None, cpu: str | None, memory: str | None) -> tuple[str, str, str]:
    from coplace.training.run import this_host

    all_of_it = this_host()
    return name or all_of_it.name, cpu or f"{all_of_it.cpu}m", memory or f"{all_of_it.memory}Mi"


def _meeting(invitation: Invitation, host: str | None, source: str) -> Meeting:
    """Where the job meets, as this machine has to take it.

    Raises:
        InputError: it cannot be reached from here.
    """
    from coplace.instances.errors import InputError, Problem
    from coplace.training.nodes.invitation import address_towards

    meeting = invitation.meeting
    if meeting.directory is not None and not Path(meeting.directory).is_dir():
        mend = "run this where the folder is shared under the same path, or let the job use tcp"
        rule = f"the job's messages go through {meeting.directory}, which is not here"
        raise InputError([Problem("", rule, mend=mend)], source)
    if meeting.transport != "tcp":
        return meeting
    try:
        return meeting.model_copy(update={"host": host or address_towards(meeting.coordinator)})
    except OSError as error:
        problem = Problem("", f"{meeting.coordinator} cannot be reached: {error.strerror or error}")
        raise InputError([problem], source) from None
