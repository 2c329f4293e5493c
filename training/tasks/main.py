"""Run one task from its start to its end."""

from __future__ import annotations

import contextlib
import traceback

from coplace.instances.errors import InputError
from coplace.training.tasks.spec import TaskSpec
from coplace.training.transport import Endpoint, TransportError


def run_task(spec: TaskSpec) -> int:
    """Run the task until it is told to stop; the exit code of its process.

    A failure is told to the coordinator: its user's (2), or ours or the machine's (1).
    """
    endpoint = spec.meeting.open(spec.name)
    try:
        return run_at(spec, endpoint)
    finally:
        endpoint.close()


def run_at(spec: TaskSpec, endpoint: Endpoint) -> int:
    """As :func:`run_task`, at an endpoint that the caller opened and closes."""
    try:
        if spec.role == "ps":
            from coplace.training.tasks.server import Server

            Server(spec, endpoint).run()
        else:
            from coplace.training.tasks.worker import Worker

            Worker(spec, endpoint).run()
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        traceback.print_exc()
        by_user = isinstance(error, InputError)
        text = str(error) if by_user else f"{type(error).__name__}: {error}"
        with contextlib.suppress(TransportError):
            endpoint.send(spec.meeting.coordinator, "failed", {"task": spec.name, "error": text, "by_user": by_user})
        return 2 if by_user else 1
    return 0
