"""How the processes of a job talk to each other: through a shared file system, through TCP, or through Ray."""

from __future__ import annotations

from pathlib import Path

from coplace.training.transport.endpoint import Endpoint, TransportError

KINDS = ("file", "tcp", "ray")
"""The kinds of transport."""

__all__ = ["KINDS", "Endpoint", "TransportError", "open_endpoint"]


def open_endpoint(
    kind: str,
    name: str,
    *,
    directory: Path | None = None,
    host: str = "127.0.0.1",
    token: str = "",
    patience: float = 30.0,
) -> Endpoint:
    """Open a mailbox for this process.

    Args:
        kind: ``file``, ``tcp`` or ``ray``; all processes of a job use the same.
        name: what receivers see as ``Message.sender``, e.g. ``worker-3``.
        directory: for ``file``, the directory that all processes of the job share; it is made if it is missing.
        host: for ``tcp``, the address of this machine, as the others reach it.
        token: for ``tcp``, the job's secret; who does not know it is not listened to. It must not be empty. For
            ``ray``, of which this process must be a driver or an actor's, it tells the job's actors from others.
        patience: seconds for which a slow or failing medium is waited for.

    Raises:
        ValueError: there is no such kind, or what it needs is missing.
        TransportError: the mailbox cannot be made.
    """
    if kind == "file":
        if directory is None:
            raise ValueError("the file transport needs a directory")
        from coplace.training.transport.file import FileEndpoint

        return FileEndpoint(name, directory, patience)
    if kind == "tcp":
        if not token:
            raise ValueError("the TCP transport needs a token")
        from coplace.training.transport.tcp import TcpEndpoint  # zmq is heavy

        return TcpEndpoint(name, host, token, patience)
    if kind == "ray":
        if not token:
            raise ValueError("the Ray transport needs a token")
        from coplace.training.transport.ray import RayEndpoint  # Ray is heavy, and may not be installed

        return RayEndpoint(name, token, patience)
    raise ValueError(f"there is no transport {kind!r}, only {', '.join(KINDS)}")
