"""The search is compiled once for a machine, beside solves that cannot wait for it, wherever there is room for it.

The processes here run it in plain Python where compiling is not what is looked at.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from coplace.solver.kernel.compiled import directory
from coplace.solver.kernel.warm_up import warm_up

PLAIN = {"NUMBA_DISABLE_JIT": "1"}

COUNTED = """
import coplace.instances.generation as generation
made = generation.generate
def generate(*arguments, **options):
    print("compiles", flush=True)
    return made(*arguments, **options)
generation.generate = generate
from coplace.solver.kernel.warm_up import ready, warm_up
warm_up()
assert ready()
"""

SOLVED = """
import time
from coplace.instances.generation import generate
from coplace.solver import check, solve
problem = generate("ps-mix", nodes=6, jobs=12, seed=1)
began = time.monotonic()
result = solve(problem, method="prices", time_limit=3)
assert time.monotonic() - began < 3 + 2, "late"
assert check(problem, result.plan).feasible
assert result.bound >= result.objective > 0
assert result.reason == "time"
print(result.detail)
"""

HOMELESS = """
from coplace.solver.kernel.compiled import directory
from coplace.solver.kernel.warm_up import warm_up
from coplace.solver.kernel.warm_up import ready, wait
print(directory().parent.parent)
assert not ready()
assert wait(lambda: False)
assert ready()
"""


def started(script: str, home: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env=os.environ | {"XDG_CACHE_HOME": str(home)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(process: subprocess.Popen[str]) -> str:
    said, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return said


def test_of_two_processes_at_once_one_compiles(tmp_path: Path) -> None:
    both = [started(COUNTED, tmp_path, **PLAIN) for _ in range(2)]
    assert "".join(output(process) for process in both) == "compiles\n"
    assert output(started(COUNTED, tmp_path, **PLAIN)) == ""


def test_a_solve_whose_time_is_over_before_it_is_compiled_says_so(tmp_path: Path) -> None:
    """Another process holds the lock meanwhile, so that nothing is compiled."""
    place = tmp_path / "coplace" / directory().name
    place.mkdir(parents=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "compiled for this machine" in output(started(SOLVED, tmp_path))
        (place / "done").touch()  # so that the process that waits for the lock has nothing to do


def test_where_the_cache_cannot_be_written_a_process_has_its_own(tmp_path: Path) -> None:
    """The process that compiled had another than the solve that waited for it."""
    home = tmp_path / "home"
    home.write_text("no folder", encoding="utf-8")
    place = Path(output(started(HOMELESS, home, **PLAIN)).strip())
    assert place != home
    assert not place.exists()
    assert home.read_text(encoding="utf-8") == "no folder"


SEVERAL = """
import sys
import numba
from coplace.instances.generation import FAMILIES, generate
from coplace.solver import solve
from tests.oracle.tiny import wide_instance
problems = [wide_instance(seed) for seed in range(12)]
for pressure in (True, False):
    problems += [generate(family, nodes=16, jobs=30, seed=1, pressure=pressure) for family in FAMILIES]
for problem in problems:
    solve(problem, method="prices", time_limit=0.2)
for name in [name for name in sys.modules if name.startswith("coplace.solver.kernel")]:
    for function in vars(sys.modules[name]).values():
        if isinstance(function, numba.core.dispatcher.Dispatcher) and function.stats.cache_misses:
            print(name, function.__name__, list(function.stats.cache_misses))
print("done")
"""


def test_no_solve_compiles_what_was_not_compiled_before() -> None:
    """It would be for other types of the arguments, and take far more than the time that the solve has."""
    root = str(Path(__file__).parent.parent)
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    warm_up()
    assert output(started(SEVERAL, Path(home), PYTHONPATH=root)) == "done\n"
