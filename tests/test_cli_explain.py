"""``coplace explain``: what it prints, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coplace.cli.app import app
from coplace.instances import parse_instance
from coplace.solver import solve
from tests.building import node, ring_job
from tests.test_readme import RUN_CLI

GOLDEN = Path(__file__).parent / "golden"
RIGID = {"gpu": 2, "cpu": 2, "memory": "8Gi", "min": 2, "max": 2}
INSTANCE: dict[str, Any] = {
    "version": "coplace/v1",
    "name": "crowded",
    "goal": "throughput",
    "rules": {"quotas": {"guests": {"gpu": 1}}, "move_budget": 3},
    "nodes": [node("big"), node("side", used={"gpu": 3})],
    "jobs": [
        ring_job("front", current={"tasks": {"worker": {"big": 1}}}),
        ring_job("gang", worker=RIGID),
        ring_job("guest", worker=RIGID | {"min": 1}, tenant="guests"),
    ],
}
PLAN = {"front": {"tasks": {"worker": {"big": 4}}}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write("crowded.json", INSTANCE)
    write("plan.json", PLAN)
    return tmp_path


def write(name: str, document: Any) -> None:
    Path(name).write_text(json.dumps(document), encoding="utf-8")


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["explain", *arguments])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("job", ["gang", "guest", "front", None], ids=["waiting", "quota", "running", "cluster"])
def test_what_is_printed(job: str | None, folder: Path) -> None:
    code, out, errors = run("crowded.json", "plan.json", *([job] if job else []))
    assert (code, errors) == (0, "")
    assert out == (GOLDEN / f"explain-{job or 'cluster'}.txt").read_text(encoding="utf-8")


def test_json_of_a_waiting_job(folder: Path) -> None:
    code, out, errors = run("crowded.json", "plan.json", "gang", "--json")
    document = json.loads(out)
    assert (code, errors) == (0, "")
    assert {key: value for key, value in document.items() if key != "changes"} == {
        "version": "coplace.explanation/v1",
        "about": "waiting",
        "job": "gang",
        "rule": "capacity",
        "resource": "gpu",
        "reason": "its workers need 4 GPUs on a100 nodes, 1 GPU free",
        "not_tried": [],
    }
    assert [change["kind"] for change in document["changes"]] == ["capacity", "stop", "node"]
    first = document["changes"][0]
    assert first.keys() == {"kind", "change", "share", "gain", "cost", "would_run"}
    assert (first["change"], first["share"], first["cost"]) == ("3 GPUs more on node side", 0.375, 0.0)
    assert first["would_run"]["tasks"] == {"worker": {"side": 2}}
    assert first["would_run"].keys() == {
        "span", "speed", "value", "gpu_type", "workers", "servers", "tasks", "profiles",
    }  # fmt: skip


def test_json_of_a_running_job(folder: Path) -> None:
    document = json.loads(run("crowded.json", "plan.json", "front", "--json")[1])
    assert document.keys() == {
        "version", "about", "job", "change", "runs", "gain", "restart_cost", "pressure_cost", "stayed", "stayed_held",
        "runner_up", "gave_way", "next_in_line", "next_gain",
    }  # fmt: skip
    assert (document["about"], document["change"], document["next_in_line"]) == ("running", "resized", "gang")
    assert document["stayed"]["tasks"] == {"worker": {"big": 1}}
    assert document["gain"] > document["stayed"]["gain"] > 0


def test_nothing_but_json_is_on_standard_output(folder: Path) -> None:
    """HiGHS writes a greeting there, which stood above the JSON."""
    command = [sys.executable, "-c", RUN_CLI, "explain", "crowded.json", "plan.json", "--json", "--verify", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    document = json.loads(done.stdout)
    assert document.keys() == {"version", "about", "objective", "bound", "searched", "what_ifs"}
    assert document["what_ifs"][0].keys() == {
        "kind", "change", "estimate", "estimate_share", "measured", "measured_share",
    }  # fmt: skip
    assert document["what_ifs"][0]["measured"] >= 0
    assert document["what_ifs"][-1]["measured"] is None


def test_a_result_file_is_explained_for_the_goal_it_was_made_for(folder: Path) -> None:
    instance = parse_instance(json.loads(json.dumps(INSTANCE | {"goal": "fairness"})))
    write("result.json", solve(instance, method="greedy").to_document(instance))
    code, _, errors = run("crowded.json", "result.json", "gang")
    assert (code, errors) == (0, "")


@pytest.mark.parametrize(
    ("plan", "job", "message"),
    [
        (PLAN, "gagn", "JOB: must be a job of the instance; found 'gagn'; did you mean gang?"),
        (
            PLAN | {"gang": {"tasks": {"worker": {"big": 2}}}}, "gang",
            "RESULT: must keep every rule of the instance; found capacity: node big is over its gpu: 8 GPUs of 4 GPUs "
            "free; coplace check lists what it breaks; only a plan that keeps every rule can be explained",
        ),
        (
            {"plan": PLAN, "instance": {"sha256": "0" * 64}}, "gang",
            "plan.json: instance.sha256: must be that of crowded.json; found 000000000000…; the plan was made for "
            "another instance; solve this one anew",
        ),
        (INSTANCE, "gang", "plan.json: version: must be coplace.result/v1; found 'coplace/v1'; this is an instance; "
         "give the instance first, then the plan"),
    ],
    ids=["job", "infeasible", "other instance", "no plan"],
)  # fmt: skip
def test_wrong_input_is_one_line_and_exit_code_2(plan: Any, job: str, message: str, folder: Path) -> None:
    write("plan.json", plan)
    assert run("crowded.json", "plan.json", job) == (2, "", f"coplace: {message}\n")


def test_wrong_options_name_the_option(folder: Path) -> None:
    code, out, errors = run("crowded.json", "plan.json", "gang", "--time-limit", "0")
    assert (code, out) == (2, "")
    assert errors == "coplace: --time-limit: must be above 0 seconds; found 0.0\n"
    assert run("crowded.json")[0] == 2


def test_names_do_not_steer_the_terminal_and_ascii_is_enough(folder: Path) -> None:
    command = [sys.executable, "-c", RUN_CLI, "explain", "crowded.json", "plan.json", "gang"]
    done = subprocess.run(
        command, capture_output=True, timeout=60, env={"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path)}
    )
    assert done.returncode == 0, done.stderr
    assert b"side" in done.stdout
    assert done.stdout.isascii()
