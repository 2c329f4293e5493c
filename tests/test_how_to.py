"""The worked example of docs/how-to-add-a-constraint.md is added as the page says, and does what it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coplace.formulations import rules
from coplace.formulations.cpsat import constraints as cpsat_constraints
from coplace.formulations.mip import constraints as mip_constraints
from coplace.formulations.scoring import Scoring
from coplace.instances import Allocation

PAGE = Path(__file__).parents[1] / "docs" / "how-to-add-a-constraint.md"
FOLDERS = {"formulations/cpsat/constraints.py": cpsat_constraints, "formulations/mip/constraints.py": mip_constraints}


def blocks() -> dict[str, str]:
    """Code by the file that the line above it names, on its own lines so that errors point into the page."""
    text = PAGE.read_text(encoding="utf-8")
    found = {}
    for match in re.finditer(r"^`([\w/.]+)`:\n\n```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        found[match[1]] = "\n" * text.count("\n", 0, match.start(2)) + match[2]
    return found


def run(code: str, namespace: dict[str, Any]) -> dict[str, Any]:
    exec(compile(code, PAGE, "exec"), namespace)
    return namespace


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """The rule stands in its file; gives a function that adds the method to one of the formulations."""
    code = blocks()
    defined = run(code["formulations/rules.py"], dict(vars(rules)))
    monkeypatch.setattr(rules, "_tasks_per_rack", defined["_tasks_per_rack"], raising=False)

    def add(file: str) -> None:
        module: Any = FOLDERS[file]
        method = run(code[file], dict(vars(module)))["tasks_per_rack"]
        monkeypatch.setattr(module.Constraints, "tasks_per_rack", method, raising=False)
        families = module.Constraints.add_all

        def add_all(self: Any) -> None:
            families(self)
            self.tasks_per_rack()

        monkeypatch.setattr(module.Constraints, "add_all", add_all)

    return add


def its_tests() -> dict[str, Any]:
    return run(blocks()["tests/test_tasks_per_rack.py"], {"__name__": "test_tasks_per_rack"})


def test_the_page_has_code_for_each_file() -> None:
    assert set(blocks()) == {"formulations/rules.py", *FOLDERS, "tests/test_tasks_per_rack.py"}
    longest = max(len(line) for code in blocks().values() for line in code.splitlines())
    assert longest <= 120


def test_its_tests_pass(added: Callable[[str], None]) -> None:
    for file in FOLDERS:
        added(file)
    its_tests()["test_both_formulations_find_the_best_plan_that_keeps_the_rule"]()


@pytest.mark.parametrize("missing", FOLDERS)
def test_its_tests_fail_where_a_formulation_lacks_it(missing: str, added: Callable[[str], None]) -> None:
    for file in FOLDERS:
        if file != missing:
            added(file)
    with pytest.raises(AssertionError):
        its_tests()["test_both_formulations_find_the_best_plan_that_keeps_the_rule"]()


def test_the_rule_says_what_was_found(added: Callable[[str], None]) -> None:
    cluster = its_tests()["cluster"]
    allocation = Allocation(tasks={"worker": {"n0": 2, "n1": 1, "n2": 1}})
    found = list(vars(rules)["_tasks_per_rack"](Scoring(cluster), cluster.job["ring"], allocation))
    assert [str(violation) for violation in found] == ["tasks-per-rack: job ring has 3 tasks in rack r0, allowed are 2"]
