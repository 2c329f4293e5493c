"""Short builders for tests, with defaults that bind nothing."""

from __future__ import annotations

from typing import Any

from coplace.instances import Instance, parse_instance

A100 = {"a": 0.001, "b": 0.01, "c": 0.01, "d": 0.001, "e": 0.002}


def node(name: str = "n", **changes: Any) -> dict[str, Any]:
    """A node of 4 GPUs, 32 cores and 128 GiB."""
    return {"name": name, "gpu_type": "a100", "gpu": 4, "cpu": 32, "memory": "128Gi"} | changes


def ps_job(name: str = "j", **changes: Any) -> dict[str, Any]:
    """A synchronous parameter-server job of 1 to 4 workers and 1 to 2 servers."""
    return {
        "name": name,
        "architecture": "ps",
        "worker": {"gpu": 1, "cpu": 2, "memory": "8Gi", "max": 4},
        "ps": {"cpu": 1, "memory": "2Gi", "max": 2},
        "speed": {"form": "ps-sync", "batch": 128, "types": {"a100": A100}},
        "remaining": 1e6,
    } | changes


def ring_job(name: str = "j", **changes: Any) -> dict[str, Any]:
    """An all-reduce job of 1 to 4 workers."""
    ring = {"a": 0.001, "b": 0.01, "transfer_intra": 0.002, "transfer_inter": 0.02}
    return {
        "name": name,
        "architecture": "allreduce",
        "worker": {"gpu": 1, "cpu": 2, "memory": "8Gi", "max": 4},
        "speed": {"form": "allreduce", "batch": 128, "types": {"a100": ring}},
        "remaining": 1e6,
    } | changes


def instance(nodes: list[dict[str, Any]], jobs: list[dict[str, Any]], **changes: Any) -> Instance:
    """An instance for throughput of these nodes and jobs."""
    return parse_instance({"version": "coplace/v1", "goal": "throughput", "nodes": nodes, "jobs": jobs} | changes)
