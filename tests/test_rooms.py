"""The rooms import one way, and nobody imports them but through ``coplace``."""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

BELOW = {
    "instances": set(),
    "formulations": {"instances"},
    "solver": {"instances", "formulations"},
    "rounds": {"instances", "formulations", "solver"},
    "simulator": {"instances", "formulations", "solver", "rounds"},
    "learning": {"instances", "formulations"},
    "training": {"instances"},
    "daemon": {"instances", "formulations", "solver", "rounds"},
}
BELOW["cli"] = set(BELOW)
"""For each room the rooms that it may import."""

ROOMS = sorted(room for room in BELOW if (ROOT / room).is_dir())
FOLDERS = [*ROOMS, "coplace", "benchmarks", "tests"]


def imports(source: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported; ``.`` before the name of a relative import."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def wrong(room: str, name: str) -> str:
    """What is wrong with code in *room* importing *name*; empty if nothing is."""
    package, _, rest = name.partition(".")
    target = rest.partition(".")[0]
    if not package:
        return "relative import"
    if package in BELOW:
        return f"use coplace.{package}"
    if room not in BELOW or package != "coplace":
        return ""
    if target in BELOW:
        return "" if target == room or target in BELOW[room] else f"{room} may not import {target}"
    if room == "cli" or target == "__version__":
        return ""
    return f"{room} may not import the front door, which stands above it"


def python_files(folder: str) -> list[Path]:
    base = ROOT / folder
    files = [path for path in base.rglob("*.py") if not any(parent.is_symlink() for parent in path.parents)]
    return sorted(base.glob("*.py")) if folder == "coplace" else sorted(files)


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_point_one_way(folder: str) -> None:
    files = python_files(folder)
    assert files, f"{folder} holds no Python file"
    faults = [
        f"{path.relative_to(ROOT)}:{line}: import of {name}: {fault}"
        for path in files
        for line, name in imports(path.read_text(encoding="utf-8"))
        if (fault := wrong(folder, name))
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("room", "statement", "fault"),
    [
        ("instances", "from coplace.formulations.evaluate import evaluate", "instances may not import formulations"),
        ("formulations", "from coplace import solver", "formulations may not import solver"),
        ("formulations", "import coplace.solver.greedy as g", "formulations may not import solver"),
        ("formulations", "from coplace import solve", "formulations may not import the front door"),
        ("solver", "if True:\n    from ..instances import Job", "relative import"),
        ("solver", "from . import greedy", "relative import"),
        ("cli", "import solver", "use coplace.solver"),
        ("tests", "from instances.job import Job", "use coplace.instances"),
        ("solver", "from coplace.instances import Job", ""),
        ("solver", "from coplace import formulations", ""),
        ("solver", "from coplace import __version__", ""),
        ("cli", "from coplace import solve", ""),
        ("tests", "from coplace.cli.main import main", ""),
        ("solver", "from collections import abc", ""),
    ],
)
def test_the_rule_tells_right_from_wrong(room: str, statement: str, fault: str) -> None:
    found = [wrong(room, name) for _, name in imports(statement)]
    assert len(found) == 1
    assert found[0].startswith(fault)
    assert bool(found[0]) == bool(fault)


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_is_linked_into_the_package(room: str) -> None:
    link = ROOT / "coplace" / room
    assert link.is_symlink(), f"coplace/{room} is missing: ln -s ../{room} coplace/{room}"
    assert os.readlink(link) == f"../{room}", "an absolute link breaks every other checkout"


def test_every_link_leads_to_a_room() -> None:
    links = sorted(path.name for path in (ROOT / "coplace").iterdir() if path.is_symlink())
    assert links == ROOMS
