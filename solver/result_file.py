"""Reading the plan of a result file back."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from coplace.formulations.relaxation.rows import PricedRow
from coplace.instances.base import Name, Number, Record
from coplace.instances.consistency import near
from coplace.instances.errors import InputError, Problem, shorten
from coplace.instances.instance import VERSION
from coplace.instances.plan import Allocation, Plan
from coplace.instances.reading import load_document, parse
from coplace.instances.rules import Goal
from coplace.solver.price_rows import PriceRecord
from coplace.solver.result import RESULT_VERSION

_SAID_OF_A_JOB = frozenset({"gpu_type", "workers", "servers", "span", "pressure", "speed", "value", "change"})
"""What a result says of a planned job beside its tasks; all of it follows from the instance and the tasks."""


@dataclass(frozen=True, slots=True)
class ResultFile:
    """What a plan's file says.

    Attributes:
        plan: the plan.
        objective: the objective that the file states; None if it states none.
        instance_sha256: hash of the instance that the plan was made for; None if the file does not say.
        goal: goal that the plan was made for; None if the file does not say.
        bound, gap, certified_bound, certified_gap: what the file states; None if it states none.
        prices: the prices that the certified bound follows from; None if there are none.
    """

    plan: Plan
    objective: float | None
    instance_sha256: str | None
    goal: Goal | None = None
    bound: float | None = None
    gap: float | None = None
    certified_bound: float | None = None
    certified_gap: float | None = None
    prices: tuple[PricedRow, ...] | None = None


def _hexadecimal(text: str) -> str:
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise PydanticCustomError("sha256", "must be a SHA-256: 64 hexadecimal digits 0 to 9, a to f")
    return text


class _About(Record):
    """What a result says about its instance."""

    sha256: Annotated[str, AfterValidator(_hexadecimal)] | None = None
    goal: Goal | None = None


class _Document(Record):
    """The part of a result that is read."""

    plan: dict[Name, Allocation]
    objective: Number | None = None
    instance: _About = _About()
    bound: Number | None = None
    gap: Number | None = None
    certified_bound: Number | None = None
    certified_gap: Number | None = None
    prices: tuple[PriceRecord, ...] | None = None


def read_plan(path: str | os.PathLike[str]) -> ResultFile:
    """Read a result as ``coplace solve --json`` prints it, ``{"plan": {job: …}}``, or the mapping of jobs alone.

    Of each job ``tasks`` and ``profiles`` are read; what else a result says of it follows from these.

    Raises:
        InputError: the file cannot be read or holds no plan; names the place, e.g. ``plan.job3.tasks.worker.a-0``.
    """
    source = os.fspath(path)
    data = load_document(source)
    if not isinstance(data, dict):
        found = shorten(data)
        raise InputError(
            [Problem("", "must be a result of coplace solve, or a mapping job: {tasks: …}", found)], source
        )
    _check_version(data, source)
    if "plan" in data:
        stated = {key: data[key] for key in _Document.model_fields if key in data}
        if isinstance(about := stated.get("instance"), dict):
            stated["instance"] = {key: about[key] for key in ("sha256", "goal") if key in about}
        document = parse(_Document, stated | {"plan": _tasks_only(data["plan"])}, source)
    else:
        document = _parse_bare(data, source)
    return ResultFile(
        plan=Plan(allocations=document.plan),
        objective=document.objective,
        instance_sha256=document.instance.sha256,
        goal=document.instance.goal,
        bound=document.bound,
        gap=document.gap,
        certified_bound=document.certified_bound,
        certified_gap=document.certified_gap,
        prices=None if document.prices is None else tuple(price.priced() for price in document.prices),
    )


def _check_version(data: dict[Any, Any], source: str) -> None:
    version = data.get("version", RESULT_VERSION)
    if isinstance(version, str) and version == RESULT_VERSION:
        return
    mend = "this is an instance; give the instance first, then the plan" if version == VERSION else ""
    raise InputError([Problem("version", f"must be {RESULT_VERSION}", shorten(version), mend)], source)


def _parse_bare(data: dict[Any, Any], source: str) -> _Document:
    """A mapping of jobs without anything around it; places are given as they stand in the file."""
    wrong = [job for job, planned in data.items() if not isinstance(planned, dict)]
    if wrong:
        mend = near(str(wrong[0]), ["plan"]) or "a file without the key plan is read as a mapping of jobs"
        raise InputError(
            [Problem(str(wrong[0]), "must be a mapping with tasks", shorten(data[wrong[0]]), mend)], source
        )
    try:
        return parse(_Document, {"plan": _tasks_only(data)}, source)
    except InputError as error:
        problems = [Problem(p.place.removeprefix("plan."), p.rule, p.found, p.mend) for p in error.problems]
        raise InputError(problems, source) from None


def _tasks_only(plan: Any) -> Any:
    """*plan* without what a result says of its jobs beside their tasks; unknown keys stay, so that they are refused."""
    if not isinstance(plan, dict):
        return plan
    return {
        job: {key: value for key, value in planned.items() if key not in _SAID_OF_A_JOB}
        if isinstance(planned, dict)
        else planned
        for job, planned in plan.items()
    }
