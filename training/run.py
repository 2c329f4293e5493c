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
from coplace.instances.files import replace_file
from coplace.training.checkpoint import Checkpoint
from coplace.training.coordinator.coordinator import Coordinator
from coplace.training.coordinator.outcome import Outcome
from coplace.training.coordinator.state import VALUES
from coplace.training.job import Host, TrainingJob
from coplace.training.nodes.agents import AgentLauncher
from coplace.training.nodes.invitation import MEETING, Invitation, write_invitation
from coplace.training.nodes.launcher import Launcher
from coplace.training.parameters.layout import Layout
from coplace.training.program import check_program
from coplace.training.run_folder import MODEL, prepared
from coplace.training.tasks.spec import Meeting
from coplace.training.telemetry.terminal import Snapshot
from coplace.training.transport import Endpoint, TransportError, open_endpoint


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
        InputError: the job's program, its transport's settings, or the folder is at fault.
        coplace.training.coordinator.membership.JobError: the job cannot go on.
    """
    check_program(job.program)
    with prepared(Path(folder), job, resume) as run:
        return _train(job, run, resume, tensorboard, show, say, started)


def _train(
    job: TrainingJob,
    run: Path,
    resume: bool,
    tensorboard: bool,
    show: Callable[[Snapshot], None],
    say: Callable[[str], None],
    started: Callable[[Coordinator], None],
) -> Outcome:
    with (
        _medium(job),
        _meeting(job, run) as (meeting, endpoint),
        _launcher(job, run, meeting, endpoint) as (launcher, expected),
    ):
        coordinator = Coordinator(
            job,
            run,
            meeting,
            endpoint,
            launcher,
            expected,
            resume=resume,
            tensorboard=tensorboard,
            show=show,
            say=say,
        )
        started(coordinator)
        outcome = coordinator.run()
    kept = coordinator.state.kept
    assert kept is not None
    write_model(kept, run / MODEL)
    return outcome


def this_host() -> Host:
    """This machine as a node."""
    import psutil

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Host(name=socket.gethostname(), cpu=1000 * cores, memory=psutil.virtual_memory().total // 2**20)


@contextlib.contextmanager
def _meeting(job: TrainingJob, run: Path) -> Iterator[tuple[Meeting, Endpoint]]:
    """Open the coordinator's endpoint; whatever the medium needs is removed afterwards."""
    token = secrets.token_hex(16)
    directory: Path | None = None
    if job.transport == "file":
        base = run if job.shared is None else Path(job.shared)
        try:
            base.mkdir(parents=True, exist_ok=True)
            directory = Path(tempfile.mkdtemp(prefix="messages-", dir=base))
        except OSError as error:
            rule = f"cannot be used: {error.strerror or error}"
            raise InputError([Problem("shared", rule, str(base))]) from None
    try:
        endpoint = open_endpoint(
            job.transport,
            "coordinator",
            directory=directory,
            host=job.host,
            token=token,
            patience=job.deadlines.transport,
        )
    except TransportError as error:
        raise InputError([Problem(job.transport, " ".join(str(error).split()))]) from None
    try:
        meeting = Meeting(
            transport=job.transport,
            coordinator=endpoint.address,
            directory=None if directory is None else str(directory),
            host=job.host,
            token=token,
            patience=job.deadlines.transport,
        )
        yield meeting, endpoint
    finally:
        endpoint.close()
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _medium(job: TrainingJob) -> Iterator[None]:
    """Have the medium there that messages go through: files and TCP always are."""
    if job.transport == "ray":
        from coplace.training.nodes.ray_cluster import connected

        with connected(job):
            yield
    else:
        yield


@contextlib.contextmanager
def _launcher(job: TrainingJob, run: Path, meeting: Meeting, endpoint: Endpoint) -> Iterator[tuple[Launcher, set[str]]]:
    """What starts the tasks, and the names of the nodes that are waited for; what it started ends with it."""
    if job.transport == "ray":
        from coplace.training.nodes.ray import RayLauncher

        with contextlib.closing(RayLauncher(job, meeting.token)) as cluster:
            yield cluster, {host.name for host in job.nodes} if job.nodes else set(cluster.nodes)
        return
    hosts = job.nodes or (this_host(),)
    patience = max(3 * job.deadlines.node, 10.0)
    launcher = AgentLauncher(endpoint, meeting, run / "logs", node_deadline=job.deadlines.node, agent_patience=patience)
    try:
        for host in hosts:
            launcher.add(host)
        write_invitation(run, Invitation(job=job.name, meeting=meeting, patience=patience))
        yield launcher, {host.name for host in hosts}
    finally:
        (run / MEETING).unlink(missing_ok=True)
        launcher.close()


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

    def save(temporary: Path) -> None:
        mode = temporary.stat().st_mode
        save_file(tensors, temporary)  # makes a file of its own, which nobody else may read
        temporary.chmod(mode)

    replace_file(path, save)
