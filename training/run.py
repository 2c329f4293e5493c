"""Run a training job from its file to its model."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from coplace.instances.errors import InputError, Problem
from coplace.instances.files import replace_file, write_atomically
from coplace.training.checkpoint import Checkpoint
from coplace.training.coordinator.coordinator import Coordinator
from coplace.training.coordinator.outcome import Outcome
from coplace.training.coordinator.state import VALUES
from coplace.training.job import Host, TrainingJob
from coplace.training.nodes.agents import AgentLauncher
from coplace.training.parameters.layout import Layout
from coplace.training.tasks.spec import Meeting
from coplace.training.telemetry.terminal import Snapshot
from coplace.training.transport import Endpoint, open_endpoint

MODEL = "model.safetensors"
"""Name of the trained model in a run's folder."""


def train(
    job: TrainingJob,
    folder: str | os.PathLike[str],
    *,
    resume: bool = False,
    tensorboard: bool = True,
    show: Callable[[Snapshot], None] = lambda snapshot: None,
    say: Callable[[str], None] = lambda text: None,
    started: Callable[[Coordinator], None] = lambda coordinator: None,
) -> Outcome:
    """Train *job*, and write model, checkpoints, curves and telemetry to *folder*.

    Args:
        job: the job, as :func:`~coplace.training.job.read_job` reads it.
        folder: of the run; it must not hold another run, unless that is resumed.
        resume: go on from the newest checkpoint in the folder.
        tensorboard: write event files if TensorBoard is installed.
        show: gets what a terminal shows, a few times a second.
        say: gets a line on whatever happens.
        started: gets the coordinator before it runs, to be able to stop it.

    Raises:
        InputError: the job's program, or the folder, is at fault.
        coplace.training.coordinator.membership.JobError: the job cannot go on.
    """
    run = prepare(Path(folder), job, resume)
    with _meeting(job, run) as (meeting, endpoint):
        logs = run / "logs"
        logs.mkdir(exist_ok=True)
        hosts = job.nodes or (this_host(),)
        launcher = AgentLauncher(
            endpoint,
            meeting,
            logs,
            node_deadline=job.deadlines.node,
            agent_patience=max(3 * job.deadlines.node, 10.0),
        )
        try:
            for host in hosts:
                launcher.add_local(host)
            coordinator = Coordinator(
                job,
                run,
                meeting,
                endpoint,
                launcher,
                {host.name for host in hosts},
                resume=resume,
                tensorboard=tensorboard,
                show=show,
                say=say,
            )
            started(coordinator)
            outcome = coordinator.run()
        finally:
            launcher.close()
    kept = coordinator.state.kept
    assert kept is not None
    write_model(kept, run / MODEL)
    return outcome


def this_host() -> Host:
    """This machine as a node."""
    import psutil

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Host(name=socket.gethostname(), cpu=1000 * cores, memory=psutil.virtual_memory().total // 2**20)


def prepare(folder: Path, job: TrainingJob, resume: bool) -> Path:
    """Make the run's folder, or look whether it can be resumed; its absolute path.

    Raises:
        InputError: it holds another run, or cannot be made.
    """
    run = folder.resolve()
    source = str(folder)
    try:
        known = run.is_dir() and any(run.iterdir())
        if known and not resume:
            mend = "give another folder, or go on with --resume"
            raise InputError([Problem("", "holds something already", mend=mend)], source)
        if resume and not (run / "checkpoints").is_dir():
            raise InputError([Problem("", "holds no checkpoints to resume from")], source)
        run.mkdir(parents=True, exist_ok=True)
        document = job.model_dump_json(indent=2)
        write_atomically(run / "job.json", lambda file: file.write(document + "\n"))
    except OSError as error:
        raise InputError([Problem("", f"cannot be used: {error.strerror or error}")], source) from None
    for leftover in ("control", "messages"):
        shutil.rmtree(run / leftover, ignore_errors=True)
    return run


@contextlib.contextmanager
def _meeting(job: TrainingJob, run: Path) -> Iterator[tuple[Meeting, Endpoint]]:
    """Open the coordinator's endpoint; whatever the medium needs is removed afterwards."""
    token = secrets.token_hex(16)
    directory: Path | None = None
    if job.transport == "file":
        base = run if job.shared is None else Path(job.shared)
        base.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix="messages-", dir=base))
    host = "127.0.0.1"
    endpoint = open_endpoint(job.transport, "coordinator", directory=directory, host=host, token=token)
    try:
        meeting = Meeting(
            transport=job.transport,
            coordinator=endpoint.address,
            directory=None if directory is None else str(directory),
            host=host,
            token=token,
            patience=job.deadlines.transport,
        )
        yield meeting, endpoint
    finally:
        endpoint.close()
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)


def write_model(kept: Checkpoint, path: Path) -> None:
    """Write the parameters and buffers with safetensors, under the names that the module has for them.

    A tensor that has several names is written under the first. Buffers of whole numbers are written as float32, which
    ``load_state_dict`` turns back.
    """
    from safetensors.numpy import save_file

    layout = Layout.from_document(kept.layout)
    values = kept.state[VALUES]
    tensors: dict[str, Any] = {
        name: values[start:stop].reshape(shape)
        for name, shape, start, stop in zip(layout.names, layout.shapes, layout.starts, layout.starts[1:], strict=False)
    }
    replace_file(path, lambda temporary: save_file(tensors, temporary))
