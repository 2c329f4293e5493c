"""Importing coplace costs little: heavy libraries are loaded where they are used."""

import json
import subprocess
import sys

import pytest

HEAVY = {"torch", "pandas", "ortools", "networkx", "matplotlib"}
DEPENDENCIES = {"numpy", "pydantic", "rich", "typer", "yaml"}


def loaded(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter has after *statement* and has not without it."""
    script = (
        f"import json, sys; before = set(sys.modules); {statement}; print(json.dumps([*set(sys.modules) - before]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


@pytest.mark.parametrize("module", ["coplace", "coplace.solver", "coplace.cli.main"])
def test_no_heavy_library_is_loaded(module: str) -> None:
    modules = loaded(f"import {module}")
    assert "coplace" in modules
    assert not modules & HEAVY


def test_the_front_door_alone_loads_no_dependency() -> None:
    assert not loaded("import coplace") & DEPENDENCIES
