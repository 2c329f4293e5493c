"""What one round found out about jobs that the next can use again: it depends on little that changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coplace.formulations.reference import Reference
from coplace.formulations.speed.forms import Form
from coplace.instances.instance import Instance
from coplace.instances.job import Job

if TYPE_CHECKING:
    from coplace.formulations.candidates import Candidates
    from coplace.formulations.scoring import Scoring

Key = tuple[Any, ...]


@dataclass(slots=True)
class _Known:
    """What is known of a job, and for what key it holds."""

    form_key: Key | None = None
    form: Form | None = None
    reference_key: Key | None = None
    reference: Reference | None = None
    candidates_key: Key | None = None
    candidates: Candidates | None = None


class Memo:
    """Speed forms, reference speeds and candidate columns of jobs by name, for the speeds that jobs state themselves.

    What is handed out is what would be computed: keys hold everything that it depends on. Jobs that a round does not
    ask for are forgotten by :meth:`forget_others`.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, _Known] = {}

    def form(self, job: Job, compute: Callable[[], Form]) -> Form:
        """The speed form of *job*."""
        known = self._jobs.setdefault(job.name, _Known())
        key = _own(job)
        if known.form is None or known.form_key != key:
            known.form_key, known.form = key, compute()
        return known.form

    def reference(self, instance: Instance, job: Job, compute: Callable[[], Reference]) -> Reference:
        """The reference of *job*."""
        known = self._jobs.setdefault(job.name, _Known())
        key = (*_own(job), instance.gpu_types, instance.pressure_levels[:1])
        if known.reference is None or known.reference_key != key:
            known.reference_key, known.reference = key, compute()
        return known.reference

    def candidates(self, scoring: Scoring, j: int, compute: Callable[[], Candidates]) -> Candidates:
        """The candidates of the job at position *j*, with the values that they have now."""
        instance = scoring.instance
        job = instance.jobs[j]
        known = self._jobs.setdefault(job.name, _Known())
        quota = instance.rules.quotas.get(job.tenant)
        key = (
            *_own(job), instance.gpu_types, instance.pressure_levels, instance.rules.max_tasks_per_node, quota,
            scoring.nodes.limits(job).fingerprint, scoring.weights[j] > 0,
        )  # fmt: skip
        if known.candidates is None or known.candidates_key != key:
            known.candidates_key, known.candidates = key, compute()
            return known.candidates
        found = known.candidates
        return replace(
            found,
            job=np.full(len(found), j, dtype=np.int32),
            value=scoring.value(j, found.speed, kept=False) if len(found) else found.value,
        )

    def forget_others(self, instance: Instance) -> None:
        """Keep only what is known of the jobs of *instance*."""
        self._jobs = {name: known for name, known in self._jobs.items() if name in instance.job}


def _own(job: Job) -> Key:
    """What of a job its speeds and demands depend on; compared by identity first, so that an unchanged one is cheap."""
    return (job.architecture, job.worker, job.ps, job.gpu_types, job.speed)
