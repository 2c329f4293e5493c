"""docs/ names everything that the formats have, its links lead somewhere, and its examples are read and run."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

import coplace
from coplace.instances import GOALS, Instance, Job, instance_schema, read_instance
from coplace.instances.history import COLUMNS
from coplace.instances.quantities import FILE_CONTEXT
from coplace.instances.reading import read_exponents
from coplace.solver.methods import METHODS
from tests.test_readme import ROOT, RUN_CLI, SHOWN_AS_TEXT, Block, blocks, commands, shows

DOCS = ROOT / "docs"
FORMAT = (DOCS / "file-format.md").read_text(encoding="utf-8")
MODEL = (DOCS / "model.md").read_text(encoding="utf-8")
PAGES = [path for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))) if path.exists()]
EXAMPLES = ROOT / "instances" / "examples"


def named(text: str) -> set[str]:
    """What stands in backticks outside of fenced blocks, and each word and ``key: value`` of it."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    found = set(re.findall(r"`([^`\n]+)`", text))
    return found | {word for each in found for word in re.findall(r"[\w-]+", each)}


NAMED = named(FORMAT) | named(MODEL)


def keys_of_the_schema() -> set[str]:
    schema = instance_schema()
    return {key for part in (schema, *schema["$defs"].values()) for key in part.get("properties", ())}


def keys_of_results() -> set[str]:
    """Keys of real results that between them have plans, waiting jobs and running ones; names of jobs left out."""
    keys: set[str] = set()
    for example in ("moving-pays.yaml", "nothing-fits.yaml"):
        instance = read_instance(EXAMPLES / example)
        document = coplace.solve(instance, time_limit=10).to_document(instance)
        keys |= document.keys() | document["instance"].keys()
        for entry in (*document["plan"].values(), *document["pending"]):
            keys |= entry.keys()
    return keys


def rules_that_check_reports() -> set[str]:
    sources = [*(ROOT / "formulations").glob("*.py"), *(ROOT / "solver").glob("*.py")]
    return {
        rule
        for path in sources
        for rule in re.findall(r"""Violation\(\s*["']([\w-]+)["']""", path.read_text(encoding="utf-8"))
    }


def rules_of_waiting_jobs() -> set[str]:
    source = (ROOT / "solver" / "pending.py").read_text(encoding="utf-8")
    obstacles = re.findall(r"""_Obstacle\([^()"]*?"([\w-]+)",""", source)
    return {*obstacles, *re.findall(r"""return "([\w-]+)", """, source)}


def test_the_reference_names_every_key_of_an_instance() -> None:
    keys = keys_of_the_schema()
    assert {"version", "memory_model", "transfer_inter", "communication_share", "at_seconds"} <= keys
    assert keys - named(FORMAT) == set()


def test_the_reference_names_every_key_of_a_result() -> None:
    keys = keys_of_results()
    assert {"certified_gap", "sha256", "change", "profiles", "resource"} <= keys
    assert keys - named(FORMAT) == set()


def test_the_reference_names_every_column_of_the_history() -> None:
    assert set(COLUMNS) - named(FORMAT) == set()
    section = FORMAT.partition("## The history of observations")[2]
    table = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    assert tuple(re.findall(r"`(\w+)`", "".join(table))) == in_table_order()


def in_table_order() -> tuple[str, ...]:
    """The columns as the table has them: those of workers and servers share a row."""
    order = list(COLUMNS)
    for left, right in (("worker_cpu", "ps_cpu"), ("worker_memory", "ps_memory"), ("worker_rss", "ps_rss")):
        order.remove(right)
        order.insert(order.index(left) + 1, right)
    return tuple(order)


def test_every_rule_is_explained() -> None:
    rules = rules_that_check_reports()
    assert {"unknown", "capacity", "move-budget", "pinned", "pressure"} <= rules
    assert rules - named(MODEL) == set()


def test_every_reason_for_waiting_is_explained() -> None:
    rules = rules_of_waiting_jobs()
    assert {"capacity", "cordon", "fragmentation", "quota", "search", "speed", "value"} <= rules
    assert rules - named(FORMAT) == set()


@pytest.mark.parametrize("name", [*GOALS, *METHODS])
def test_goals_and_methods_are_named(name: str) -> None:
    assert name in NAMED


def test_goals_and_methods_stand_in_the_reference() -> None:
    assert set(GOALS) - named(FORMAT) == set()
    assert set(METHODS) - named(FORMAT) == set()


# --- links ----------------------------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def links(path: Path) -> list[str]:
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^()\s]+)\)", text)
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_relative_links_lead_somewhere(path: Path) -> None:
    for target in links(path):
        name, _, anchor = target.partition("#")
        page = (path.parent / name).resolve() if name else path
        assert page.exists(), f"{path.name} links to {target}, which does not exist"
        assert page.is_relative_to(ROOT), f"{path.name} links to {target}, outside of the repository"
        if anchor:
            assert anchor in anchors(page), f"{path.name} links to {target}, a heading that does not exist"


def test_the_index_lists_every_page() -> None:
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - {"README.md"}
    assert pages <= {target.partition("#")[0] for target in links(DOCS / "README.md")}


# --- examples -------------------------------------------------------------------------------------------------------


class Loader(yaml.SafeLoader):
    """Reads numbers as our own loader does."""


read_exponents(Loader)


def yaml_blocks(text: str) -> list[Block]:
    return [block for block in blocks(text) if block.language == "yaml"]


def test_instances_in_the_reference_are_read(tmp_path: Path) -> None:
    instances = [block for block in yaml_blocks(FORMAT) if block.text.startswith("version:")]
    assert instances
    for block in instances:
        file = tmp_path / f"line-{block.line}.yaml"
        file.write_text(block.text, encoding="utf-8")
        assert read_instance(file).jobs


def part(key: str) -> FieldInfo:
    return Instance.model_fields[key] if key in Instance.model_fields else Job.model_fields[key]


def test_fragments_in_the_reference_are_read() -> None:
    """Other YAML examples give keys of an instance or of a job."""
    fragments = [block for block in yaml_blocks(FORMAT) if not block.text.startswith("version:")]
    assert fragments
    for block in fragments:
        for key, value in yaml.load(block.text, Loader).items():
            adapter: TypeAdapter[Any] = TypeAdapter(part(key).rebuild_annotation())
            try:
                adapter.validate_python(value, context=FILE_CONTEXT)
            except ValidationError as error:
                pytest.fail(f"file-format.md:{block.line}: {key}: {error}")


@pytest.mark.parametrize("page", SHOWN_AS_TEXT)
def test_examples_print_what_is_shown(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are run in order, in one folder: what Python prints stands in the ``text`` block below it.

    In ``shell`` blocks each ``$ coplace …`` is run on the files that the blocks before have made; what it prints is
    compared up to numbers, since times differ.
    """
    monkeypatch.chdir(tmp_path)
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "FORCE_COLOR")}
    namespace: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    for block in blocks((DOCS / page).read_text(encoding="utf-8")):
        where = f"{page}:{block.line}"
        if block.language == "text":
            assert block.text == printed, f"{where}: Python now prints\n{printed}"
            printed = ""
        assert not printed, f"{where}: the Python block before it prints what is not shown:\n{printed}"
        if block.language == "python":
            source = "\n" * (block.line - 1) + block.text
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(source, DOCS / page, "exec"), namespace)
            printed = output.getvalue()
        for shown in commands(block) if block.language == "shell" else ():
            done = subprocess.run(
                [sys.executable, "-c", RUN_CLI, *shown.command.split()[1:]],
                env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            assert shows(shown.output, done.stdout), f"{where}: `{shown.command}` now prints\n{done.stdout}"
    assert not printed, f"{page}: the last Python block prints what is not shown:\n{printed}"
