"""``coplace check``: plans of all shapes, right and wrong ones, and files that hold no plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coplace.cli.app import app
from coplace.instances import parse_instance
from coplace.solver import solve
from coplace.solver.result_file import read_plan

INSTANCE: dict[str, Any] = {
    "version": "coplace/v1",
    "name": "pair",
    "nodes": [
        {"name": "big", "gpu_type": "v100", "gpu": 4, "cpu": 16, "memory": "64Gi"},
        {"name": "small", "gpu_type": "v100", "gpu": 2, "cpu": 16, "memory": "64Gi"},
    ],
    "jobs": [
        {
            "name": name,
            "architecture": "allreduce",
            "worker": {"cpu": 2, "memory": "8Gi", "max": 4},
            "speed": {"form": "allreduce", "batch": 256, "types": {"v100": {"a": 0.004}}},
            "remaining": 1e6,
        }
        for name in ("ring-a", "ring-b")
    ],
}
GOOD = {"ring-a": {"tasks": {"worker": {"big": 4}}}, "ring-b": {"tasks": {"worker": {"small": 2}}}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write("pair.json", INSTANCE)
    return tmp_path


def write(name: str, document: Any) -> None:
    Path(name).write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["check", *arguments])
    return done.exit_code, done.stdout, done.stderr


def made(**changes: Any) -> dict[str, Any]:
    """A result as ``solve --json`` prints it, with changes."""
    instance = parse_instance(json.loads(json.dumps(INSTANCE)))
    return solve(instance, method="greedy").to_document(instance) | changes


@pytest.mark.parametrize("make", [made, lambda: {"plan": GOOD}, lambda: GOOD], ids=["result", "plan", "bare"])
def test_every_shape_of_a_plan_is_checked(make: Any, folder: Path) -> None:
    write("plan.json", make())
    code, out, errors = run("pair.json", "plan.json")
    assert (code, errors) == (0, "")
    assert out.startswith("pair, 2 jobs planned: feasible\nobjective ")


def test_yaml_is_a_plan_too(folder: Path) -> None:
    write("plan.yaml", "ring-a: {tasks: {worker: {big: 4}}}\n")
    assert run("pair.json", "plan.yaml")[0] == 0


def test_an_empty_plan_is_feasible(folder: Path) -> None:
    write("plan.json", {"plan": {}})
    code, out, _ = run("pair.json", "plan.json")
    assert code == 0
    assert out == (
        "pair, 0 jobs planned: feasible\nobjective 0 for goal jct\n0 running jobs moved, resized or stopped\n"
    )


def test_json_says_all_that_is_known(folder: Path) -> None:
    write("plan.json", made())
    code, out, _ = run("pair.json", "plan.json", "--json")
    document = json.loads(out)
    assert code == 0
    assert document == {
        "feasible": True,
        "violations": [],
        "goal": "jct",
        "objective": document["stated_objective"],
        "stated_goal": "jct",
        "stated_objective": made()["objective"],
        "same_instance": True,
        "moved": [],
        "certified_bound": None,
        "certified_gap": None,
        "stated_bound": None,
        "stated_gap": None,
        "stated_certified_bound": None,
        "stated_certified_gap": None,
        "claims_hold": True,
        "wrong_claims": [],
    }


def test_each_violation_is_a_line_with_its_rule(folder: Path) -> None:
    write("plan.json", {"ring-a": {"tasks": {"worker": {"small": 3}}}, "ring-b": {"tasks": {"worker": {"big": 9}}}})
    code, out, _ = run("pair.json", "plan.json")
    assert code == 3
    assert out.splitlines()[:4] == [
        "pair, 2 jobs planned: infeasible, 5 violations",
        "  gang: job ring-b has 9 worker tasks, allowed are 1 to 4",
        "  capacity: node big is over its gpu: 9 GPUs of 4 GPUs free",
        "  capacity: node big is over its cpu: 18 CPU of 16 CPU free",
    ]
    violation = json.loads(run("pair.json", "plan.json", "--json")[1])["violations"][1]
    assert violation == {
        "rule": "capacity",
        "message": "node big is over its gpu: 9 GPUs of 4 GPUs free",
        "job": None,
        "node": "big",
        "resource": "gpu",
        "amount": 9,
        "limit": 4,
    }


def test_unknown_names_come_with_the_nearest(folder: Path) -> None:
    write("plan.json", {"rinf-a": {"tasks": {"worker": {"big": 1}}}, "ring-b": {"tasks": {"worker": {"smal": 1}}}})
    code, out, _ = run("pair.json", "plan.json")
    assert code == 3
    assert "unknown: rinf-a is no job of the instance; did you mean ring-a?\n" in out
    assert "tasks on smal, which is no node; did you mean small?\n" in out


def test_another_objective_than_stated_is_a_contradiction(folder: Path) -> None:
    write("plan.json", made(objective=made()["objective"] * 1.00001))
    code, out, _ = run("pair.json", "plan.json")
    assert code == 3
    assert "feasible\n" in out
    assert ", but the file states " in out


def test_a_difference_in_the_last_digits_is_none(folder: Path) -> None:
    write("plan.json", made(objective=made()["objective"] * (1 + 1e-9)))
    code, out, _ = run("pair.json", "plan.json")
    assert code == 0
    assert ", as the file states\n" in out


def test_a_plan_of_another_instance_is_warned_of(folder: Path) -> None:
    write("plan.json", made(instance={"sha256": "0" * 64}))
    code, out, errors = run("pair.json", "plan.json", "--json")
    assert code == 0
    assert json.loads(out)["same_instance"] is False
    assert errors == "coplace: plan.json: warning: the plan was made for another instance (its SHA-256 differs)\n"


def test_a_plan_is_scored_for_the_goal_it_was_made_for(folder: Path) -> None:
    """A plan of ``solve --goal`` was once said to contradict its own file."""
    assert CliRunner().invoke(app, ["solve", "pair.json", "--goal", "fairness", "-o", "plan.json"]).exit_code == 0
    code, out, errors = run("pair.json", "plan.json")
    assert (code, errors) == (0, "")
    assert "for goal fairness, as the file states" in out


def test_a_plan_may_be_scored_for_another_goal_than_it_was_made_for(folder: Path) -> None:
    """``--goal`` was taken for the goal of the hash and of the stated objective, so that a right plan was called
    that of another instance, and contradicted.
    """
    write("plan.json", made())
    code, out, errors = run("pair.json", "plan.json", "--goal", "fairness")
    assert (code, errors) == (0, "")
    assert f"for goal fairness; the file states {made()['objective']:.9g} for goal jct\n" in out
    document = json.loads(run("pair.json", "plan.json", "--goal", "fairness", "--json")[1])
    assert (document["goal"], document["stated_goal"], document["same_instance"]) == ("fairness", "jct", True)
    write("plan.json", made(objective=1.0))
    assert run("pair.json", "plan.json", "--goal", "fairness")[0] == 0
    assert run("pair.json", "plan.json", "--goal", "jct")[0] == 3
    write("plan.json", {"plan": GOOD, "objective": 1.0})  # made for the goal of the instance, since it names none
    assert run("pair.json", "plan.json", "--goal", "fairness")[0] == 0
    assert run("pair.json", "plan.json")[0] == 3


def test_what_a_result_says_beside_the_tasks_is_not_trusted(folder: Path) -> None:
    document = made()
    for planned in document["plan"].values():
        planned |= {"workers": 99, "speed": 1e9, "value": 1e9, "change": "kept"}
    write("plan.json", document)
    assert run("pair.json", "plan.json")[0] == 0


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "line 1, column 2: is not JSON: Expecting property name enclosed in double quotes"),
        ([1, 2], "must be a result of coplace solve, or a mapping job: {tasks: …}; found [1, 2]"),
        (INSTANCE, "version: must be coplace.result/v1; found 'coplace/v1'; this is an instance; give the instance "
         "first, then the plan"),
        ({"plam": 3}, "plam: must be a mapping with tasks; found 3; did you mean plan?"),
        ({"plan": {"ring-a": {"tasks": {"worker": {"big": 0}}}}}, "plan.ring-a.tasks.worker.big: must be at least 1; "
         "found 0"),
        ({"plan": {"ring-a": {"tasks": {"worker": {"big": 1.5}}}}}, "plan.ring-a.tasks.worker.big: must be a whole "
         "number; found 1.5"),
        ({"plan": {"ring-a": {"tasks": {"workers": {"big": 1}}}}}, "plan.ring-a.tasks.workers: must be one of worker, "
         "ps; found 'workers'; did you mean worker?"),
        ({"ring-a": {"task": {"worker": {"big": 1}}, "tasks": {}}}, "ring-a.task: unknown key; did you mean tasks?"),
        ({"plan": {"ring-a": {}}}, "plan.ring-a.tasks: is missing"),
        ({"plan": {}, "objective": "much"}, "objective: must be a number; found 'much'"),
        ({"plan": {}, "objective": "13"}, "objective: must be a number; found '13'"),
        ({"plan": {}, "instance": {"sha256": "abc"}}, "instance.sha256: must be a SHA-256: 64 hexadecimal digits 0 to "
         "9, a to f; found 'abc'"),
        ({"plan": {}, "instance": {"goal": "jtc"}}, "instance.goal: must be one of jct, throughput, fairness, "
         "makespan, deadline; found 'jtc'; did you mean jct?"),
    ],
)  # fmt: skip
def test_a_file_without_a_plan_is_one_line_and_exit_code_2(document: Any, message: str, folder: Path) -> None:
    write("plan.json", document)
    assert run("pair.json", "plan.json") == (2, "", f"coplace: plan.json: {message}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.json", "plan.json"], "coplace: none.json: cannot be read: No such file or directory"),
        (["pair.json", "none.json"], "coplace: none.json: cannot be read: No such file or directory"),
        (
            ["plan.json", "pair.json"],
            "coplace: plan.json: version: must be coplace/v1; found 'coplace.result/v1'",
        ),
        (
            ["pair.json", "plan.json", "--goal", "x"],
            "coplace: --goal: must be one of jct, throughput, fairness, makespan, deadline; found 'x'",
        ),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments: list[str], message: str, folder: Path) -> None:
    write("plan.json", made())
    code, out, errors = run(*arguments)
    assert (code, out) == (2, "")
    assert errors.startswith(message)
    assert errors.count("\n") == 1


def test_wrong_options_are_a_usage_error(folder: Path) -> None:
    for arguments in ([], ["pair.json"], ["pair.json", "plan.json", "more"], ["--jsno"]):
        code, out, errors = run(*arguments)
        assert (code, out) == (2, "")
        assert "Error: " in errors


def test_a_job_may_be_called_like_a_key_of_the_result(folder: Path) -> None:
    write("plan.json", {"plan": {"tasks": {"tasks": {"worker": {"big": 1}}}}})
    assert list(read_plan("plan.json").plan.allocations) == ["tasks"]
