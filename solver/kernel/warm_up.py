"""Compiling everything once for a machine, before it is needed or beside a solve that cannot wait for it."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from coplace.solver.environment import child_environment
from coplace.solver.kernel.compiled import directory

POLL_SECONDS, DAYS_KEPT = 0.05, 30
"""Time between two looks at the compiling process; days after which what other versions compiled is removed."""


def ready() -> bool:
    """Whether the search of this version has been compiled on this machine."""
    return _done().exists()


def wait(stopped: Callable[[], bool]) -> bool:
    """Have it compiled by a process of its own, which goes on if *stopped*; whether it is ready."""
    if ready():
        return True
    child = subprocess.Popen(
        [sys.executable, "-m", "coplace.solver.kernel"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=child_environment()
        | {"XDG_CACHE_HOME": str(directory().parent.parent)},  # which may be for this process only
    )
    while child.poll() is None and not stopped():
        time.sleep(POLL_SECONDS)
    child.returncode = child.returncode if child.returncode is not None else 0  # it is left to itself
    return ready()


def warm_up() -> None:
    """Compile everything, or wait for the process that does."""
    from coplace.formulations.relaxation import Relaxation, all_choices
    from coplace.formulations.scoring import Scoring
    from coplace.instances.generation import generate
    from coplace.solver.kernel.build import game
    from coplace.solver.kernel.search import KernelSearch

    with (directory() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if ready():
            return
        instance = generate("ps-mix", nodes=6, jobs=10, seed=0)
        scoring = Scoring(instance)
        relaxation = Relaxation(all_choices(instance, scoring))
        prices = relaxation.best_prices()
        search = KernelSearch(game(scoring, relaxation, prices, relaxation.bound(prices)), seed=0)
        search.start()
        looks = iter((1.0, 1.0, 0.0))
        search.improve(lambda: next(looks, 0.0), float("inf"))
        _done().touch()
        _forget_old()


def _forget_old() -> None:
    """Remove what other versions left that nobody has touched for long."""
    long_ago = time.time() - DAYS_KEPT * 86400
    for other in directory().parent.glob("kernel-*"):
        with suppress(FileNotFoundError):  # another process may be at it
            if other != directory() and other.stat().st_mtime < long_ago:
                shutil.rmtree(other, ignore_errors=True)


def _done() -> Path:
    return directory() / "done"
