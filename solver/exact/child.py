"""The child process: reads tasks from standard input, writes events to standard output, pickled, each after its
length in 8 bytes.

Solvers print to the same descriptors, so the protocol moves to private copies first.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, BinaryIO

from coplace.solver.exact.task import Ended, Event, Task

if TYPE_CHECKING:
    from coplace.solver.neighbourhoods.repair import Repair

WATCH_SECONDS = 0.5
"""How often a child looks whether its parent is still there."""


def main(memory_mib: int) -> None:
    """Serve tasks until the input ends or the parent is gone, within *memory_mib* of address space (0 = no limit)."""
    tasks = os.fdopen(os.dup(0), "rb")
    events = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    if memory_mib:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = memory_mib << 20
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        try:
            task = pickle.load(tasks)
        except EOFError:
            return
        except Exception as error:  # where the next task would begin is unknown then
            _say(events, _failure(error))
            return
        _say(events, _serve(task, events))


def _end_with(parent: int) -> None:
    """Kill this process and the solvers that it has started once *parent* is gone.

    Between tasks the end of the input says so; during a search, which may last long, nothing else does. Linux could
    send a signal, but already when the thread ends that started us.
    """
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _serve(task: Task | Repair, events: BinaryIO) -> Ended:
    try:
        if not isinstance(task, Task):
            return task.run(lambda event: _say(events, event))
        if task.by_class:
            from coplace.solver.classes.driver import solve_by_class

            return solve_by_class(task, lambda event: _say(events, event))
        from coplace.solver.exact.staged import Staged

        return Staged(task, lambda event: _say(events, event)).run()
    except Exception as error:
        return _failure(error)


def _failure(error: Exception) -> Ended:
    """Whether it was memory. Libraries that cannot be mapped for lack of it say so in words only."""
    words = f"{type(error).__name__}: {error}"
    signs = ("cannot allocate memory", "failed to map segment", "can't start new thread", "bad_alloc")
    if isinstance(error, MemoryError) or any(sign in words.lower() for sign in signs):
        return Ended("memory", words if str(error) else "out of memory")
    return Ended("failure", words)


def _say(events: BinaryIO, event: Event) -> None:
    data = pickle.dumps(event, protocol=pickle.HIGHEST_PROTOCOL)
    events.write(len(data).to_bytes(8, "little") + data)
    events.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
