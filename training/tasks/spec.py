"""What a task must know to start: who it is, whom it works for, and how they talk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from coplace.instances.base import Name, Positive, Record
from coplace.training.job import TrainingJob
from coplace.training.transport import Endpoint, open_endpoint

Role = Literal["worker", "ps"]


class Meeting(Record):
    """Where the processes of a job meet.

    Attributes:
        transport: ``file``, ``tcp`` or ``ray``.
        coordinator: address of the coordinator's endpoint.
        directory: folder of the file transport, which all nodes see.
        host: address that this node listens on, for tcp.
        token: what processes of the job prove that they belong to it, for tcp.
        patience: seconds that a slow medium is waited for.
    """

    transport: Literal["file", "tcp", "ray"]
    coordinator: str
    directory: str | None = None
    host: str = "127.0.0.1"
    token: Annotated[str, Field(repr=False)] = ""
    patience: Positive = 30.0

    def open(self, name: str) -> Endpoint:
        """An endpoint for the process called *name*."""
        directory = None if self.directory is None else Path(self.directory)
        return open_endpoint(
            self.transport, name, directory=directory, host=self.host, token=self.token, patience=self.patience
        )


class TaskSpec(Record):
    """One task: its name, which is used once in a job, its role, its node, and the job it belongs to."""

    name: Name
    role: Role
    node: Name
    meeting: Meeting
    job: TrainingJob

    @property
    def number(self) -> int:
        """The number at the end of the name: the order of the starts."""
        return int(self.name.rpartition("-")[2])
