"""The training job as a file holds it: what is trained, how, and on which nodes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, model_validator

from coplace.instances.base import Count, Flag, Name, Number, Positive, Record
from coplace.instances.consistency import near
from coplace.instances.errors import InputError, Problem, shorten
from coplace.instances.quantities import CpuCapacity, MemoryCapacity
from coplace.instances.reading import load_document, parse
from coplace.training.parameters.settings import OptimizerSettings, Sgd

VERSION = "coplace.train/v1"
"""First line of a job file."""

Share = Annotated[Number, Field(ge=0, le=1)]
"""A share of a whole."""


class Bsp(Record):
    """Bulk-synchronous: every update sums the gradients of all workers."""

    name: Literal["bsp"] = "bsp"


class Asp(Record):
    """Asynchronous: every gradient is an update of its own, nobody waits."""

    name: Literal["asp"] = "asp"


class Ssp(Record):
    """Stale-synchronous: asynchronous, but nobody is more than ``staleness`` steps ahead of the slowest.

    Attributes:
        staleness: steps; ``auto`` chooses them from the observed speeds, up to ``most``.
        most: bound on what ``auto`` may choose.
    """

    name: Literal["ssp"] = "ssp"
    staleness: Annotated[int, Field(strict=True, ge=0, le=1000)] | Literal["auto"] = 3
    most: Annotated[int, Field(strict=True, ge=1, le=1000)] = 16


Sync: TypeAlias = Annotated[Bsp | Asp | Ssp, Field(discriminator="name")]


class NoCompression(Record):
    """Everything is sent as float32."""

    name: Literal["none"] = "none"


class Float16(Record):
    """Gradients and parameters travel as float16."""

    name: Literal["float16"] = "float16"


class TopK(Record):
    """Of each gradient only the share ``ratio`` of largest entries is sent; the rest is added to the next one."""

    name: Literal["topk"] = "topk"
    ratio: Annotated[Number, Field(gt=0, le=1)] = 0.01


Compression: TypeAlias = Annotated[NoCompression | Float16 | TopK, Field(discriminator="name")]


class Stop(Record):
    """When to end before the last epoch.

    Attributes:
        accuracy: target; training ends once the validation reaches it.
        hopeless: also end when the law of the accuracy curve says that the target is out of reach.
        least_gain: end when the gain foreseen for the rest of the epochs is below this; None = never.
    """

    accuracy: Share | None = None
    hopeless: Flag = False
    least_gain: Share | None = None


class Checkpoints(Record):
    """How often the state is kept, in seconds; at most that much work is lost by a failure of a server."""

    every_seconds: Positive = 60.0
    keep: Annotated[int, Field(strict=True, ge=1, le=100)] = 2


class Deadlines(Record):
    """How long is waited for what, in seconds; every wait has one.

    Attributes:
        start: from the start of a task until it is ready; a job that has had no worker or no complete set of servers
            for three times as long ends.
        step: for one step of a worker, at least; longer if its steps have been longer.
        node: without a sign of life of a node.
        server: for what is asked of a server.
        transport: for a slow or stale medium.
    """

    start: Positive = 120.0
    step: Positive = 60.0
    node: Positive = 10.0
    server: Positive = 60.0
    transport: Positive = 30.0


class Host(Record):
    """A node that the job may use: milli-cores and MiB granted to it there.

    With ``limit`` its agent holds the tasks there to that much CPU.
    """

    name: Name
    cpu: CpuCapacity = 1000
    memory: MemoryCapacity = 4096
    limit: Flag = False


class Grant(Record):
    """Tasks of the job on one node."""

    worker: Count = 0
    ps: Count = 0


class Bounds(Record):
    """Fewest and most tasks of a role."""

    min: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 1
    max: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 10_000

    @model_validator(mode="after")
    def _ordered(self) -> Bounds:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


class TrainingJob(Record):
    """A training job.

    Attributes:
        version: format of the file.
        name: name of the job.
        model: name of the network, by which jobs are relatives of each other in a history; default: the job's name.
        program: ``package.module:function`` or ``file.py:function``, relative to the job file; the function returns
            a :class:`~coplace.training.program.Program`.
        arguments: keyword arguments of the function.
        batch: samples of a step: of all workers together under ``bsp``, of one worker under ``asp`` and ``ssp``.
        epochs: passes over the data, at most.
        seed: of the initial parameters and the order of samples.
        sync: how updates of several workers follow each other.
        scheduling: who gets how much of each step. ``static``: all the same; ``dynamic``: by the resources that the
            monitors of the nodes sample; ``adaptive``: by measured speed.
        optimizer: the rule that servers update parameters by.
        schedule: ``constant``, or ``cosine``: the learning rate falls to 0 over the epochs.
        compression: of what is sent.
        transport: ``file`` (shared file system), ``tcp``, or ``ray``.
        shared: folder of the file transport; default: in the run's folder.
        host: address of this machine for tcp; for nodes on other machines, one under which they reach it.
        threads: of each worker; ``auto`` shares a node's CPUs among its workers.
        nodes: where tasks may run; default: this host or, with ``ray``, the nodes of the cluster.
        tasks: how many of which role run on which node.
        workers, servers: counts, spread over the nodes, where ``tasks`` is not given.
        worker, ps: bounds of the counts when the job is resized.
        elastic: whether the job, by itself, may use nodes that join, and others than granted when one is lost.
        autoscale: whether it grants itself, within the bounds and the nodes, the workers that it wishes for.
        restarts: how often a failed task is started again, in all.
        evaluate_every: epochs between validations.
        stop, checkpoints, deadlines: see there.
        telemetry_seconds: length of the intervals of the history.
    """

    version: Literal["coplace.train/v1"] = "coplace.train/v1"
    name: Name
    model: Name | None = None
    program: Name
    arguments: dict[str, Any] = {}
    batch: Annotated[int, Field(strict=True, ge=1, le=10**9)]
    epochs: Annotated[int, Field(strict=True, ge=1, le=10**6)] = 1
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**31)] = 0
    sync: Sync = Bsp()
    scheduling: Literal["static", "dynamic", "adaptive"] = "adaptive"
    optimizer: OptimizerSettings = Sgd(lr=0.1)
    schedule: Literal["constant", "cosine"] = "constant"
    compression: Compression = NoCompression()
    transport: Literal["file", "tcp", "ray"] = "file"
    shared: Name | None = None
    host: Name = "127.0.0.1"
    threads: Annotated[int, Field(strict=True, ge=1, le=1024)] | Literal["auto"] = "auto"
    nodes: Annotated[tuple[Host, ...], Field(min_length=1)] | None = None
    tasks: dict[Name, Grant] | None = None
    workers: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 1
    servers: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 1
    worker: Bounds = Bounds()
    ps: Bounds = Bounds()
    elastic: Flag = True
    autoscale: Flag = False
    restarts: Count = 20
    evaluate_every: Positive = 1.0
    stop: Stop = Stop()
    checkpoints: Checkpoints = Checkpoints()
    deadlines: Deadlines = Deadlines()
    telemetry_seconds: Positive = 5.0

    @model_validator(mode="after")
    def _consistent(self) -> TrainingJob:
        problems = list(self._problems())
        if problems:
            raise InputError(problems)
        return self

    def _problems(self) -> list[Problem]:
        names = [node.name for node in self.nodes or ()]
        twice = sorted({name for name in names if names.count(name) > 1})
        problems = [Problem("nodes", "names must differ", shorten(name)) for name in twice]
        if self.tasks is None:
            for key, wanted, limits in (("workers", self.workers, self.worker), ("servers", self.servers, self.ps)):
                if not limits.min <= wanted <= limits.max:
                    problems.append(Problem(key, f"must be from {limits.min} to {limits.max}", str(wanted)))
        else:
            problems += [
                Problem(f"tasks.{name}", "is not among the nodes", mend=near(name, names))
                for name in self.tasks
                if names and name not in names
            ]
            for role, word in (("worker", "workers"), ("ps", "servers")):
                count = sum(getattr(grant, role) for grant in self.tasks.values())
                bounds: Bounds = getattr(self, role)
                if not bounds.min <= count <= bounds.max:
                    rule = f"{word} must be from {bounds.min} to {bounds.max} in all"
                    problems.append(Problem("tasks", rule, str(count)))
        program, _, function = self.program.rpartition(":")
        if not program or not function.isidentifier():
            problems.append(Problem("program", "must be module:function or file.py:function", shorten(self.program)))
        if self.host in ("0.0.0.0", "::", "*"):
            rule = "must be an address of this machine under which others reach it"
            problems.append(Problem("host", rule, shorten(self.host)))
        return problems

    @property
    def network(self) -> str:
        """Name under which the job's history is kept."""
        return self.model or self.name


def read_job(path: str | os.PathLike[str]) -> TrainingJob:
    """Read a job file; a program, or a shared folder, that is named relative to it becomes absolute.

    Raises:
        InputError: the file cannot be read or breaks a rule; says where and how to mend it.
    """
    source = os.fspath(path)
    data = load_document(source)
    if not isinstance(data, dict):
        raise InputError([Problem("", "a training job is a mapping with name, program and batch")], source)
    if data.get("version") != VERSION:
        found = shorten(data["version"]) if "version" in data else ""
        raise InputError([Problem("version", f"must be {VERSION}", found, f"start with version: {VERSION}")], source)
    job = parse(TrainingJob, data, source)
    folder = Path(source).resolve().parent
    module, _, function = job.program.rpartition(":")
    update: dict[str, Any] = {}
    if module.endswith(".py"):
        update["program"] = f"{folder / module}:{function}"
    if job.shared is not None:
        update["shared"] = str(folder / job.shared)
    return job.model_copy(update=update)
