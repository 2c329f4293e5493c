"""The child process: reads tasks from standard input, writes events to standard output, pickled, each after its
length in 8 bytes.

Solvers print to the same descriptors, so the protocol moves to private copies first.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys
from typing import BinaryIO

from coplace.solver.exact.task import Ended, Event, Task


def main(memory_mib: int) -> None:
    """Serve tasks until the input ends, within *memory_mib* of address space (0 = no limit)."""
    tasks = os.fdopen(os.dup(0), "rb")
    events = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    if memory_mib:
        resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        try:
            task = pickle.load(tasks)
        except EOFError:
            return
        _say(events, _serve(task, events))


def _serve(task: Task, events: BinaryIO) -> Ended:
    from coplace.solver.exact.staged import Staged

    try:
        return Staged(task, lambda event: _say(events, event)).run()
    except MemoryError:
        return Ended("memory", "out of memory")
    except Exception as error:
        return Ended("failure", f"{type(error).__name__}: {error}")


def _say(events: BinaryIO, event: Event) -> None:
    data = pickle.dumps(event, protocol=pickle.HIGHEST_PROTOCOL)
    events.write(len(data).to_bytes(8, "little") + data)
    events.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
