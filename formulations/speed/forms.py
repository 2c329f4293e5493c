"""The speed model that an instance itself carries: each job's stated form or table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from coplace.formulations.speed.allreduce import AllReduceForm
from coplace.formulations.speed.contract import Configurations, Numbers, Speeds
from coplace.formulations.speed.ps import PsAsyncForm, PsSyncForm
from coplace.formulations.speed.table import TableForm
from coplace.instances.job import Job
from coplace.instances.speed import AllReduceSpeed, PsAsyncSpeed, PsSyncSpeed

if TYPE_CHECKING:
    from coplace.formulations.memo import Memo

Form = Callable[[Configurations], Numbers]
"""Speeds of one job in samples/s by configuration."""


def form_of(job: Job) -> Form:
    """The form of *job*, with its coefficients laid out for indexing."""
    match job.speed:
        case PsSyncSpeed():
            return PsSyncForm(job, job.speed)
        case PsAsyncSpeed():
            return PsAsyncForm(job, job.speed)
        case AllReduceSpeed():
            return AllReduceForm(job, job.speed)
        case _:
            return TableForm(job, job.speed)


class StatedSpeeds:
    """:class:`SpeedModel` of the forms and tables in the instance; their numbers are taken as exact."""

    def __init__(self, memo: Memo | None = None) -> None:
        """*memo* remembers the forms of earlier rounds."""
        self._memo = memo
        self._forms: dict[int, tuple[Job, Form]] = {}  # the job is kept, so that its id stays its own

    def form(self, job: Job) -> Form:
        """The form of *job*, built once."""
        entry = self._forms.get(id(job))
        if entry is None:
            build = partial(form_of, job)
            entry = self._forms[id(job)] = (job, build() if self._memo is None else self._memo.form(job, build))
        return entry[1]

    def predict(self, job: Job, configurations: Configurations) -> Speeds:
        """Speeds of *job* under *configurations*; the interval is a point."""
        speed = self.form(job)(configurations)
        return Speeds(speed, speed, speed)
