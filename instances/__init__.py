"""What is to be scheduled: nodes, jobs, instances and plans; reading, writing, generating and importing them."""

from coplace.instances.cluster import NO_GPU, RESOURCES, Node, Resources
from coplace.instances.errors import InputError, Problem
from coplace.instances.history import Observation, read_history, write_history
from coplace.instances.instance import VERSION, Instance
from coplace.instances.job import Job, Profile, PsMemory, PsSpec, Requested, WorkerSpec
from coplace.instances.plan import PS, ROLES, WORKER, Allocation, Plan
from coplace.instances.reading import parse_instance, read_instance
from coplace.instances.rules import GOALS, Goal, Quota, SiteRules
from coplace.instances.schema import instance_schema
from coplace.instances.speed import (
    AllReduceCoefficients,
    AllReduceSpeed,
    Interference,
    PsAsyncSpeed,
    PsCoefficients,
    PsSyncSpeed,
    SpeedPoint,
    Spread,
    TableSpeed,
)
from coplace.instances.writing import instance_sha256, to_document, write_instance

__all__ = [
    "GOALS", "NO_GPU", "PS", "RESOURCES", "ROLES", "VERSION", "WORKER",
    "AllReduceCoefficients", "AllReduceSpeed", "Allocation", "Goal", "InputError", "Instance", "Interference", "Job",
    "Node", "Observation", "Plan", "Problem", "Profile", "PsAsyncSpeed", "PsCoefficients", "PsMemory", "PsSpec",
    "PsSyncSpeed", "Quota", "Requested", "Resources", "SiteRules", "SpeedPoint", "Spread", "TableSpeed",
    "WorkerSpec", "instance_schema", "instance_sha256", "parse_instance", "read_history", "read_instance",
    "to_document", "write_history", "write_instance",
]  # fmt: skip
