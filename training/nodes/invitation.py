"""What a node on another machine must know to join a running job.

It stands in ``meeting.json`` of the run's folder while the job runs, readable by its owner only: whoever has the token
can give the job's processes work, and be given the program to run.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

from coplace.instances.base import Name, Positive, Record
from coplace.instances.errors import InputError, Problem
from coplace.instances.files import replace_file
from coplace.instances.reading import parse
from coplace.training.tasks.spec import Meeting

MEETING = "meeting.json"
"""Name of the file in a run's folder."""


class Invitation(Record):
    """Where a job meets.

    Attributes:
        job: name of the job.
        meeting: as the coordinator's own machine has it.
        patience: seconds without a sign of life of the coordinator after which an agent ends.
    """

    job: Name
    meeting: Meeting
    patience: Positive


def write_invitation(run: Path, invitation: Invitation) -> None:
    """Write it to the run's folder.

    Raises:
        OSError: it cannot be written.
    """

    def fill(temporary: Path) -> None:
        temporary.chmod(0o600)
        temporary.write_text(invitation.model_dump_json(indent=2) + "\n", encoding="utf-8")

    replace_file(run / MEETING, fill)


def read_invitation(path: Path) -> Invitation:
    """The invitation in a run's folder, or in a copy of its ``meeting.json``.

    Raises:
        InputError: there is none, or it is none.
    """
    file = path / MEETING if path.is_dir() else path
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if (path / "control.json").exists():
            mend = "with ray, they are the nodes of its Ray cluster"
            raise InputError([Problem("", "nodes do not join this job from outside", mend=mend)], str(path)) from None
        mend = f"give the folder of a run, or a copy of its {MEETING}"
        raise InputError([Problem("", "no job runs here", mend=mend)], str(path)) from None
    except OSError as error:
        raise InputError([Problem("", f"cannot be read: {error.strerror or error}")], str(file)) from None
    except ValueError:
        raise InputError([Problem("", f"is no {MEETING} of a run")], str(file)) from None
    return parse(Invitation, document, str(file))


def address_towards(coordinator: str) -> str:
    """Address of this machine on the way to a coordinator's ``tcp://host:port#...``; nothing is sent.

    Raises:
        OSError: there is no way.
    """
    where = coordinator.removeprefix("tcp://").partition("#")[0]
    host, _, port = where.rpartition(":")
    family, kind, protocol, _, target = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])
