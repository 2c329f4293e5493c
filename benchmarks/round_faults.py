"""What may happen to the solver process of a round: it dies, hangs, writes nonsense, lies, or has no memory."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coplace.solver.exact.worker import Worker

HEAD = """
import os, pickle, signal, sys, time
from coplace.instances import Allocation, Plan
from coplace.solver.exact.task import Bounded, Ended, Found

def say(event):
    data = pickle.dumps(event)
    write(len(data).to_bytes(8, "little") + data)

def write(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()

task = pickle.load(sys.stdin.buffer)
"""
"""The head of a child that speaks the protocol of solver processes."""

DEATHS = (
    "os.kill(os.getpid(), signal.SIGKILL)",
    "os.kill(os.getpid(), signal.SIGABRT)",
    "sys.exit(1)",
    "raise RuntimeError('no such luck')",
    "say(Bounded(1e12)); os.kill(os.getpid(), signal.SIGSEGV)",
    "time.sleep(60)",
    "while True: say(Bounded(1e12))",
    "write(b'garbage' * 99)",
    "write((99).to_bytes(8, 'little') + b'half'); sys.exit(0)",
    "os.close(1); time.sleep(60)",
    "say(Ended('done'))",
    "say(Ended('memory', 'no more'))",
)
"""Children that say nothing wrong."""

LIES = (
    "say(Bounded(task.objective * 0.5)); say(Ended('done'))",
    "say(Bounded(float('nan')))",
    "say(Bounded(-1.0)); time.sleep(60)",
    "say(Found(Plan(allocations={'stranger': Allocation(tasks={'worker': {'nowhere': 1}})}))); say(Ended('done'))",
    "say(Bounded(task.objective)); say(Found(Plan())); say(Ended('done'))",
)
"""Children whose bounds are not to be asked about."""

FAULTS = ("death", "lie", "kill", "memory")


@contextmanager
def faulty(draw: random.Random, fault: str, limit: float) -> Iterator[Worker]:
    """A worker to which *fault* happens during a solve of *limit* seconds."""
    from coplace.solver.exact.worker import Worker

    if fault == "memory":
        with Worker(memory_mib=draw.choice((16, 300, 500))) as worker:
            yield worker
    elif fault == "kill":
        with Worker() as worker:
            timer = threading.Timer(draw.uniform(0.0, limit), _kill, [worker])
            timer.start()
            try:
                yield worker
            finally:
                timer.cancel()
                timer.join()
    else:
        script = HEAD + draw.choice(DEATHS if fault == "death" else LIES)
        with Worker(command=[sys.executable, "-c", script]) as worker:
            yield worker


def _kill(worker: Worker) -> None:
    process = worker._process
    if process is not None and process.poll() is None:
        with contextlib.suppress(OSError):
            os.kill(process.pid, signal.SIGKILL)
