"""Training jobs: what is asked of the cluster."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from coplace.instances.base import Amount, Count, Flag, Moment, Name, NonNegative, Number, Positive, Record
from coplace.instances.history import Observation
from coplace.instances.plan import PS, WORKER, Allocation, Role
from coplace.instances.quantities import CpuDemand, Gpus, MemoryDemand
from coplace.instances.speed import AtLeastOne, Speed, speed_types


class Profile(Record):
    """A request profile: CPU (milli-cores) and memory (MiB) of one task.

    ``slowdown`` ≥ 1 multiplies the step's computation (worker) or communication (ps) when tasks get this profile
    instead of a generous one; one number, or one per GPU type of the workers (types not named: 1).
    """

    cpu: CpuDemand
    memory: MemoryDemand = 0
    slowdown: Annotated[Number, Field(ge=1, le=1e6)] | dict[Name, Annotated[Number, Field(ge=1, le=1e6)]] = 1.0

    def slowdown_on(self, gpu_type: str) -> float:
        """The factor for workers on *gpu_type*."""
        return self.slowdown.get(gpu_type, 1.0) if isinstance(self.slowdown, dict) else self.slowdown


class RoleSpec(Record):
    """The tasks of one role.

    In a file, a role with a single profile may write its ``cpu`` and ``memory`` directly.

    Attributes:
        profiles: request profiles to choose from, one for all tasks of the role.
        intensity: what one task adds to the pressure of its node.
        min, max: allowed number of tasks.
    """

    profiles: Annotated[tuple[Profile, ...], Field(min_length=1, max_length=64)]
    intensity: Amount = 0
    min: AtLeastOne = 1
    max: AtLeastOne = 1

    @model_validator(mode="before")
    @classmethod
    def _single_profile(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not ({"cpu", "memory", "slowdown"} & data.keys()):
            return data
        if "profiles" in data:
            raise PydanticCustomError("profiles", "give either cpu, memory and slowdown, or profiles, not both")
        rest = {key: value for key, value in data.items() if key not in ("cpu", "memory", "slowdown")}
        return rest | {"profiles": ({key: data[key] for key in ("cpu", "memory", "slowdown") if key in data},)}


class WorkerSpec(RoleSpec):
    """Workers; each has ``gpu`` GPUs of one type, the same for all workers of the job."""

    gpu: Gpus = 1


class PsMemory(Record):
    """Memory of one parameter server in MiB, by model size, workers w and servers p.

    base + imbalance · (model / p) · copies + w · receive_buffer, fitted at ``quantile`` of what was observed.

    Attributes:
        model: size of the parameters.
        copies: parameters, optimiser states and gradient buffers, in multiples of the parameters.
        base: memory of an empty server.
        receive_buffer: buffer per worker.
        imbalance: largest shard over the mean shard.
        quantile: quantile at which the coefficients were fitted, for the record.
    """

    model: MemoryDemand
    copies: Annotated[Number, Field(ge=1, le=64)] = 2.0
    base: MemoryDemand = 0
    receive_buffer: MemoryDemand = 0
    imbalance: Annotated[Number, Field(ge=1, le=1000)] = 1.0
    quantile: Annotated[Number, Field(gt=0, lt=1)] = 0.95


class PsSpec(RoleSpec):
    """Parameter servers; they use no GPU and may run on any node.

    With a ``memory_model`` a server asks for what the model predicts for the counts, and at least for the
    profile's ``memory``.
    """

    memory_model: PsMemory | None = None


class Requested(Record):
    """The fixed counts that a user would have asked for; policies that do not choose counts decide from it."""

    workers: AtLeastOne
    servers: Count = 0
    gpu_type: Name | None = None


class Job(Record):
    """A training job.

    Attributes:
        name: unique in the instance.
        architecture: ``ps`` (workers and parameter servers) or ``allreduce`` (workers only).
        worker, ps: the tasks of each role.
        gpu_types: allowed GPU types; by default all that ``speed`` knows. ``none`` is a node without GPUs.
        node_selector: labels that every node of the job must carry.
        speed: form and coefficients, or measured table.
        remaining: remaining work W in samples; None if unknown.
        progress: samples done so far.
        requested: counts that a user would have fixed.
        attained_gpu_seconds: GPU-seconds used so far.
        age_seconds: seconds since submission.
        restarts: times that the job was started again or moved.
        weight: the job's own weight in every goal.
        tenant: whose quota it counts against.
        restart_seconds: δ, what a start or a move costs.
        deadline_seconds: seconds from now, for the goal ``deadline``.
        pinned: neither moved nor stopped while it runs.
        current: what runs where now; None for a job that waits.
        observations: recent measurements, newest last.
    """

    name: Name
    architecture: Literal["ps", "allreduce"]
    worker: WorkerSpec
    ps: PsSpec | None = None
    gpu_types: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None
    node_selector: dict[str, str] = {}
    speed: Speed
    remaining: Positive | None = None
    progress: NonNegative = 0.0
    requested: Requested | None = None
    attained_gpu_seconds: NonNegative = 0.0
    age_seconds: NonNegative = 0.0
    restarts: Count = 0
    weight: Positive = 1.0
    tenant: Name = "default"
    restart_seconds: NonNegative = 60.0
    deadline_seconds: Moment | None = None
    pinned: Flag = False
    current: Allocation | None = None
    observations: tuple[Observation, ...] = ()

    @cached_property
    def types(self) -> tuple[str, ...]:
        """Allowed GPU types for which a speed is known, sorted."""
        known = speed_types(self.speed)
        return known if self.gpu_types is None else tuple(t for t in known if t in self.gpu_types)

    @property
    def running(self) -> bool:
        """Whether the job runs now."""
        return self.current is not None

    def role(self, role: Role) -> WorkerSpec | PsSpec | None:
        """The tasks of *role*, None if the job has none."""
        return self.worker if role == WORKER else self.ps

    @property
    def roles(self) -> tuple[Role, ...]:
        """Roles that the job has."""
        return (WORKER,) if self.ps is None else (WORKER, PS)

    @property
    def min_servers(self) -> int:
        """Smallest allowed server count (0 for all-reduce)."""
        return 0 if self.ps is None else self.ps.min

    @property
    def max_servers(self) -> int:
        """Largest allowed server count (0 for all-reduce)."""
        return 0 if self.ps is None else self.ps.max
