"""The pages on training name every field, column, message and folder that there is, and their examples are read."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel, TypeAdapter

from coplace.instances.quantities import FILE_CONTEXT
from coplace.training.coordinator import control
from coplace.training.data.journal import COLUMNS
from coplace.training.job import (
    Asp,
    Bounds,
    Bsp,
    Checkpoints,
    Deadlines,
    Float16,
    Grant,
    Host,
    NoCompression,
    Ssp,
    Stop,
    TopK,
    TrainingJob,
    read_job,
)
from coplace.training.nodes import agent
from coplace.training.parameters.settings import Adam, AdamW, Sgd
from coplace.training.program import Program
from coplace.training.run_folder import _OURS as WRITTEN
from coplace.training.tasks import server, worker
from coplace.training.telemetry.curves import CurvePoint
from coplace.training.telemetry.steps import StepRecord
from tests.test_readme import ROOT, blocks

DOCS = ROOT / "docs"
JOB = (DOCS / "training-job.md").read_text(encoding="utf-8")
TRAINING = (DOCS / "training.md").read_text(encoding="utf-8")
STRATEGIES = (DOCS / "training-strategies.md").read_text(encoding="utf-8")
RUNTIME = (DOCS / "training-runtime.md").read_text(encoding="utf-8")

RECORDS: dict[str, type[BaseModel]] = {
    "ssp": Ssp,
    "sgd": Sgd,
    "adam": Adam,
    "adamw": AdamW,
    "topk": TopK,
    "Nodes": Host,
    "Tasks": Grant,
    "Worker and ps": Bounds,
    "Stop": Stop,
    "Checkpoints": Checkpoints,
    "Deadlines": Deadlines,
}
"""Heading and record."""
OF_THE_JOB = ("What is trained", "How it is trained", "Where it runs", "When it ends, and what is kept")
NAMED_ONLY = (Bsp, Asp, NoCompression, Float16)
"""Kinds without a field but their name."""


def section(page: str, heading: str) -> str:
    """What stands below *heading*, up to the next one of any level."""
    found = re.search(rf"^##+ {re.escape(heading)}$\n(.*?)(?=^##|\Z)", page, flags=re.MULTILINE | re.DOTALL)
    assert found, f"there is no heading {heading}"
    return found[1]


def rows(page: str, heading: str) -> dict[str, list[str]]:
    """Cells of the table below a heading, by the names in backticks of the first cell."""
    found: dict[str, list[str]] = {}
    for line in section(page, heading).splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            for name in re.findall(r"`([^`]+)`", cells[0]):
                assert name not in found, f"{heading}: {name} stands twice"
                found[name] = cells
    return found


def documented(record: type[BaseModel]) -> dict[str, list[str]]:
    if record is TrainingJob:
        tables = [rows(JOB, heading) for heading in OF_THE_JOB]
        together = {name: cells for table in tables for name, cells in table.items()}
        assert len(together) == sum(map(len, tables)), "a field stands in two tables"
        return together
    heading = next(heading for heading, each in RECORDS.items() if each is record)
    return rows(JOB, heading)


@pytest.mark.parametrize("record", [TrainingJob, *RECORDS.values()], ids=lambda record: record.__name__)
def test_the_page_has_every_field_and_its_default(record: type[BaseModel]) -> None:
    table = documented(record)
    assert set(table) == record.model_fields.keys() - ({"name"} if record in (Ssp, Sgd, Adam, AdamW, TopK) else set())
    for name, cells in table.items():
        assert len(cells) == 4, f"{name}: {cells}"
        field, default = record.model_fields[name], cells[2]
        if field.is_required() or name == "version":
            assert default == "required", f"{name} must be given"
        elif field.default is None:
            assert not default.startswith("`"), f"{name} has no default value"
        else:
            assert default.startswith("`"), f"{name} has the default {field.default}, not {default}"
            adapter: TypeAdapter[Any] = TypeAdapter(field.rebuild_annotation())
            given = adapter.validate_python(yaml.safe_load(default.strip("`")), context=FILE_CONTEXT)
            assert given == field.default, f"{name} has the default {field.default}, not {default}"


def test_every_kind_is_named() -> None:
    kinds = (*NAMED_ONLY, Ssp, Sgd, Adam, AdamW, TopK)
    for name in (kind.model_fields["name"].default for kind in kinds):
        assert f"`{name}`" in JOB, f"{name} is not named"
    for field in ("scheduling", "schedule", "transport"):
        for choice in get_args(TrainingJob.model_fields[field].annotation):
            assert f"`{choice}`" in documented(TrainingJob)[field][1], f"{field} may be {choice}"


def test_every_record_of_a_job_is_known_here() -> None:
    """A new part of the job file needs a table."""
    seen: set[type] = set()

    def visit(annotation: Any) -> None:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation not in seen:
            seen.add(annotation)
            for field in annotation.model_fields.values():
                visit(field.annotation)
        for part in get_args(annotation):
            visit(part)

    visit(TrainingJob)
    assert seen == {TrainingJob, *RECORDS.values(), *NAMED_ONLY}


def test_jobs_on_the_pages_are_read(tmp_path: Path) -> None:
    jobs = [block for page in (JOB, TRAINING) for block in blocks(page) if block.language == "yaml"]
    assert jobs
    for block in jobs:
        file = tmp_path / f"line-{block.line}.yaml"
        file.write_text(block.text, encoding="utf-8")
        assert read_job(file).name


def test_the_contract_has_every_part_of_a_program() -> None:
    assert list(rows(JOB, "The program")) == [field.name for field in fields(Program)]


@pytest.mark.parametrize(
    ("heading", "columns"),
    [
        ("steps.csv", [field.name for field in fields(StepRecord)]),
        ("curves.csv", [field.name for field in fields(CurvePoint)]),
        ("ledger.csv", list(COLUMNS)),
    ],
)
def test_the_columns_of_each_table_are_explained_in_order(heading: str, columns: list[str]) -> None:
    assert list(rows(TRAINING, heading)) == columns


def test_all_that_a_run_writes_is_named() -> None:
    named = {name.rstrip("/").partition("/")[0] for name in rows(TRAINING, "What is written where")}
    assert named - {"messages-…"} == WRITTEN


def test_all_messages_are_named() -> None:
    """Those that somebody has a method for."""
    table = section(RUNTIME, "Messages")
    named = set(re.findall(r"`(\w+)`", table))
    for kind in (worker.Worker, server.Server, agent.Agent):
        handled = {name.removeprefix("_on_") for name in vars(kind) if name.startswith("_on_")}
        assert handled - named == set(), f"{kind.__name__} handles messages that the page does not name"


def test_all_requests_are_named() -> None:
    requests = re.findall(r"^(\w+)  +", control.__doc__ or "", flags=re.MULTILINE)
    assert {"status", "resize", "stop"} <= set(requests)
    assert {request for request in requests if request != "verb"} - set(re.findall(r"`(\w+)`", TRAINING)) == set()


def test_every_folder_of_the_runtime_is_named() -> None:
    found = {
        path.name for path in (ROOT / "training").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    named = re.findall(r"`([\w.]+)/?`", section(RUNTIME, "Where the code is"))
    assert found - set(named) - {"__init__.py", "messages.py", "examples"} == set()


def test_benchmarks_that_are_named_exist() -> None:
    from benchmarks.registry import registered

    named = re.findall(r"python -m benchmarks ([\w-]+)", STRATEGIES + TRAINING)
    assert set(named) >= {"training-sync", "training-stragglers", "training-churn", "training-overhead"}
    assert set(named) <= registered().keys()
