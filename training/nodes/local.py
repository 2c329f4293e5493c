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
import traceback
from pathlib import Path
from typing import Any

from coplace.training.job import Host
from coplace.training.nodes.agent import Agent, AgentError, die_with_parent, torch_ready
from coplace.training.tasks.spec import Meeting


def main() -> None:
    """Fork an agent for each line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # agents that end need no burial
    with torch_ready():
        for line in sys.stdin:
            if os.fork() == 0:
                _be_agent(json.loads(line))


def _be_agent(settings: dict[str, Any]) -> None:
    code = 1
    try:
        die_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(0)
        logs = None if settings["logs"] is None else Path(settings["logs"])
        Agent(
            Host.model_validate(settings["host"]),
            Meeting.model_validate(settings["meeting"]),
            logs,
            settings["patience"],
        ).run()
        code = 0
    except AgentError as error:
        print(f"coplace: node {settings['host']['name']}: {error}", file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
