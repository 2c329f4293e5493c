"""One solver for many rounds: what one round has found out makes the next one quick."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from coplace.formulations.speed import SpeedModel
from coplace.instances.instance import Instance
from coplace.solver.memory import RoundMemory
from coplace.solver.result import Result
from coplace.solver.solve import solve

if TYPE_CHECKING:
    from coplace.solver.exact.worker import Worker


class RoundSolver:
    """Solves round after round; keeps prices, columns and the solver process, and starts from what runs.

    A round after small changes takes a small part of the time, and moves few jobs: it lets all that runs go on first
    and looks for what is better from there. Use it as a context manager, or call :meth:`close`.
    """

    def __init__(
        self, *, method: str = "auto", backend: str = "highs", memory_mib: int | None = None,
        model: SpeedModel | None = None,
    ) -> None:  # fmt: skip
        """Keyword arguments as those of :func:`coplace.solver.solve`."""
        self._method, self._backend, self._memory_mib, self._model = method, backend, memory_mib, model
        self._memory = RoundMemory()
        self._worker: Worker | None = None

    def solve(
        self,
        instance: Instance,
        *,
        time_limit: float = 10.0,
        gap: float = 1e-4,
        seed: int = 0,
        interrupted: Callable[[], bool] = lambda: False,
        progress: Callable[[str, float], None] = lambda rung, objective: None,
    ) -> Result:
        """Decide the round *instance*; arguments, result and errors as those of :func:`coplace.solver.solve`."""
        from coplace.solver.exact.worker import Worker

        if self._worker is None:
            self._worker = Worker(memory_mib=self._memory_mib)
        result = solve(
            instance, method=self._method, time_limit=time_limit, gap=gap, seed=seed, backend=self._backend,
            worker=self._worker, memory_mib=self._memory_mib, model=self._model, interrupted=interrupted,
            progress=progress, memory=self._memory,
        )  # fmt: skip
        self._memory.jobs.forget_others(instance)
        return result

    def close(self) -> None:
        """End the solver process."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def __enter__(self) -> RoundSolver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
