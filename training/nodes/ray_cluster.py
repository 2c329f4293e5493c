"""The connection to a Ray cluster: the one that there is, or one that is started for the job."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import psutil

from coplace.instances.errors import InputError, Problem
from coplace.training.job import TrainingJob

CONNECT_SECONDS = 10.0
"""How long an address is tried; Ray itself would try for minutes."""

STORE_SHARE = 0.2
"""Share of the memory for the object stores of a cluster that is started here."""


@contextlib.contextmanager
def connected(job: TrainingJob) -> Iterator[None]:
    """Be connected to a Ray cluster, and end what was started for that afterwards.

    It is the cluster that this process is connected to already; or that of ``RAY_ADDRESS``; or the one that runs on
    this machine; or, if there is none, one is started on this machine with the nodes that the job lists, or one node.

    Raises:
        InputError: Ray is not installed, or nothing answers at ``RAY_ADDRESS``.
    """
    try:
        import ray
    except ImportError:
        mend = "pip install 'coplace[ray]'"
        raise InputError([Problem("transport", "needs Ray, which is not installed", "ray", mend)]) from None
    if ray.is_initialized():
        yield
        return
    with contextlib.ExitStack() as stack:
        stack.enter_context(_silent())
        address = os.environ.get("RAY_ADDRESS", "auto")
        quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": True}
        with _handlers_kept():
            try:
                _try(address)
                if address == "local":
                    raise ConnectionError
                ray.init(address=address, **quiet)
            except ConnectionError:
                if address not in ("auto", "local"):
                    mend = "start the cluster, or unset it to start one here"
                    raise InputError([Problem("RAY_ADDRESS", "no Ray cluster answers", address, mend)]) from None
                ray.init(**_local(job, stack), **quiet)
            stack.callback(ray.shutdown)
        yield


def _try(address: str) -> None:
    """Connect to the port, so that an address where nobody is costs seconds.

    Raises:
        ConnectionError: nobody answers.
        InputError: it is an address of Ray's client, for which this process would have to be in the cluster.
    """
    if "://" in address:
        mend = "start the job on a machine of the cluster"
        raise InputError([Problem("RAY_ADDRESS", "must be host:port", address, mend)])
    host, _, port = address.rpartition(":")
    if port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        except OSError as error:
            raise ConnectionError(str(error)) from None


def _local(job: TrainingJob, stack: contextlib.ExitStack) -> dict[str, Any]:
    """Start nodes on this machine for a job that lists several; how to connect, or to start a single one."""
    store = int(STORE_SHARE * psutil.virtual_memory().total / max(len(job.nodes or ()), 1))
    if job.nodes is None:
        return {"address": "local", "include_dashboard": False, "object_store_memory": store}
    from ray.cluster_utils import Cluster

    # At exit it ends by handlers of signals, which only a main thread can set.
    cluster = Cluster(shutdown_at_exit=threading.current_thread() is threading.main_thread())
    stack.callback(cluster.shutdown)
    for host in job.nodes:
        cluster.add_node(
            num_cpus=max(1, round(host.cpu / 1000)),
            memory=host.memory * 2**20,
            labels={"coplace.node": host.name},
            object_store_memory=max(store, 80 * 2**20),
            include_dashboard=False,
        )
    return {"address": cluster.address}


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
    """What the caller does on SIGTERM stays as it is; ``ray.init`` would change it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Nothing is printed of what Ray says on failures of tasks: the job says that itself.

    ``log_to_driver=False`` stops what tasks print, not what raylets say; there is no public way to stop that.
    """
    from ray._private import worker

    before = getattr(worker, "_worker_logs_enabled", True)
    worker._worker_logs_enabled = False
    try:
        yield
    finally:
        worker._worker_logs_enabled = before
