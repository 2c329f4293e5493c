"""What others ask of a job while it runs: the scheduler that grants it nodes, or a person.

A run's folder has a mailbox of the file transport in ``control/``, whose address stands in ``control.json``. A request
is a message ``request`` with the fields ``id``, ``reply`` (address for the answer) and ``verb``:

============= ============================================ =====================================================
verb          further fields                               does
============= ============================================ =====================================================
status                                                     answers with what the job does and wishes
resize        tasks {node: {worker, ps}}, or               grants other tasks; they are started and let go while
              workers and/or servers                       training goes on
join          host {name, cpu, memory}                     starts a node on the coordinator's host
leave         node                                         lets a node go: first its tasks, then its agent
slow          node; share, pause, delay                    makes a straggler of its tasks, for tests
checkpoint                                                 writes one
stop                                                       ends the job, with its parameters written
============= ============================================ =====================================================

The answer is a message ``reply`` with ``id`` and either ``error`` or ``answer``.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coplace.instances.errors import InputError, Problem, shorten
from coplace.instances.files import write_atomically
from coplace.training.transport import open_endpoint

ADDRESS = "control.json"
"""File in a run's folder that says where requests go to."""

Verb = Callable[[Mapping[str, Any]], dict[str, Any]]


class ControlServer:
    """The job's side: answers requests by the functions in *verbs*."""

    def __init__(self, folder: Path, verbs: Mapping[str, Verb]) -> None:
        self._verbs = verbs
        self._file = folder / ADDRESS
        self._endpoint = open_endpoint("file", "control", directory=folder / "control")
        document = {"address": self._endpoint.address}
        write_atomically(self._file, lambda file: json.dump(document, file))

    def poll(self) -> None:
        """Answer what has been asked."""
        while (message := self._endpoint.receive(0.0)) is not None:
            fields = message.fields
            reply, verb = fields.get("reply"), fields.get("verb")
            if message.kind != "request" or not isinstance(reply, str):
                continue
            answer: dict[str, Any] = {"id": fields.get("id")}
            try:
                function = self._verbs.get(verb) if isinstance(verb, str) else None
                if function is None:
                    known = ", ".join(sorted(self._verbs))
                    raise InputError([Problem("verb", f"must be one of {known}", shorten(verb))])
                answer["answer"] = function(fields)
            except InputError as error:
                answer["error"] = str(error)
            except (ValidationError, KeyError, TypeError, ValueError) as error:
                answer["error"] = f"the request is not understood: {' '.join(str(error).split())}"
            self._endpoint.send(reply, "reply", answer)

    def close(self) -> None:
        """Stop answering."""
        self._file.unlink(missing_ok=True)
        self._endpoint.close()


class Control:
    """The other side: asks things of a job that runs in *folder*.

    Raises:
        InputError: no job runs there.
    """

    def __init__(self, folder: Path, patience: float = 30.0) -> None:
        self._folder = folder
        self._patience = patience
        try:
            self._address = str(json.loads((folder / ADDRESS).read_text(encoding="utf-8"))["address"])
        except (OSError, ValueError, KeyError, TypeError):
            mend = "give the folder of a run, as `coplace train` prints it"
            raise InputError([Problem("", "no job runs here", mend=mend)], str(folder)) from None
        self._endpoint = open_endpoint("file", f"client-{secrets.token_hex(4)}", directory=folder / "control")

    def ask(self, verb: str, **fields: Any) -> dict[str, Any]:
        """The job's answer.

        Raises:
            InputError: the job refuses, or has not answered in time.
        """
        number = secrets.token_hex(8)
        request = {**fields, "id": number, "verb": verb, "reply": self._endpoint.address}
        self._endpoint.send(self._address, "request", request)
        deadline = time.monotonic() + self._patience
        while (left := deadline - time.monotonic()) > 0:
            message = self._endpoint.receive(min(left, 1.0))
            if message is not None and message.fields.get("id") == number:
                if "error" in message.fields:
                    raise InputError([Problem("", str(message.fields["error"]))], str(self._folder))
                answer: dict[str, Any] = message.fields["answer"]
                return answer
        rule = f"the job has not answered within {self._patience:g} s"
        raise InputError([Problem("", rule, mend="see whether it still runs")], str(self._folder))

    def close(self) -> None:
        """Give back the mailbox."""
        self._endpoint.close()

    def __enter__(self) -> Control:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
