"""Agents on this host: one process that has loaded PyTorch forks an agent for each node that it is told of.

    python -m coplace.training.nodes.local

reads lines of JSON, ``{"host": ..., "meeting": ..., "logs": ..., "patience": ...}``, and ends, with all agents and
their tasks, when its standard input does. It is started by the coordinator, whose end ends it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from coplace.training.job import Host
from coplace.training.nodes.agent import Agent, AgentError, fork, load_torch
from coplace.training.tasks.spec import Meeting


def main() -> None:
    """Fork an agent for each line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # agents that end need no burial
    load_torch()
    for line in sys.stdin:
        settings = json.loads(line)
        fork(partial(_be_agent, settings))


def _be_agent(settings: dict[str, Any]) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.close(0)
    logs = None if settings["logs"] is None else Path(settings["logs"])
    host, meeting = Host.model_validate(settings["host"]), Meeting.model_validate(settings["meeting"])
    try:
        Agent(host, meeting, logs, settings["patience"]).run()
    except AgentError as error:
        print(f"coplace: node {host.name}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    main()
