"""Benchmarks are found, run and reported. What they measure is not asserted here."""

import json
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app, report
from benchmarks.measure import MeasurementError, cpu_of_call, cpu_of_command
from benchmarks.registry import Benchmark, Figure, Target, registered

NULLABLE_TARGET = {
    "type": ["object", "null"],
    "properties": {"op": {"enum": ["<=", ">="]}, "value": {"type": "number"}},
    "required": ["op", "value"],
    "additionalProperties": False,
}
FIGURE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "value": {"type": "number"},
        "unit": {"type": "string"},
        "target": NULLABLE_TARGET,
        "met": {"type": ["boolean", "null"]},
    },
    "required": ["name", "value", "unit", "target", "met"],
    "additionalProperties": False,
}
REPORT = {
    "type": "object",
    "properties": {
        "benchmark": {"type": "string"},
        "command": {"type": "string"},
        "machine": {
            "type": "object",
            "properties": {"cores": {"type": "integer"}, "python": {"type": "string"}, "processor": {"type": "string"}},
            "required": ["cores", "python", "processor"],
            "additionalProperties": False,
        },
        "figures": {"type": "array", "minItems": 1, "items": FIGURE},
    },
    "required": ["benchmark", "command", "machine", "figures"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("name", sorted(registered().keys() - {"training"}))  # that is all of training-*, again
def test_a_smoke_run_writes_its_figures(name: str, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    done = CliRunner().invoke(app, [name, "--smoke", "--json", str(path)])
    assert done.exit_code == 0, done.output
    document = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(document, REPORT)
    assert document["benchmark"] == name
    assert document["command"] == f"python -m benchmarks {name} --smoke"
    names = [figure["name"] for figure in document["figures"]]
    assert len(set(names)) == len(names)
    assert all(figure["value"] >= 0 for figure in document["figures"])
    assert all(figure["target"] is None for figure in document["figures"]), "targets are for the full size"


def test_the_list_names_every_benchmark() -> None:
    done = CliRunner().invoke(app, [])
    assert done.exit_code == 0
    assert "core" in registered()
    assert all(name in done.output for name in registered())


def test_an_unknown_name_is_refused_in_one_line_with_the_nearest() -> None:
    done = CliRunner().invoke(app, ["coer"])
    assert done.exit_code == 2
    assert done.stderr == "benchmarks: no benchmark is called coer; did you mean core?\n"
    assert done.stdout == ""


def test_a_missing_folder_is_refused_before_the_run(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["core", "--json", str(tmp_path / "none" / "figures.json")])
    assert done.exit_code == 2
    assert done.stderr.endswith("its folder does not exist\n")
    assert done.stderr.count("\n") == 1


def test_a_report_says_which_targets_are_met() -> None:
    figures = [
        Figure("time", 2.0, "s", Target("<=", 2.0)),
        Figure("jobs", 3.0, "", Target(">=", 4.0)),
        Figure("gap", 0.5, "%"),
    ]
    document = report(Benchmark("some", "what it measures", lambda smoke: figures), figures)
    jsonschema.validate(document, REPORT)
    assert [figure["met"] for figure in document["figures"]] == [True, False, None]
    assert document["figures"][0]["target"] == {"op": "<=", "value": 2.0}
    assert document["command"] == "python -m benchmarks some"


def test_cpu_time_of_a_call_comes_with_its_result() -> None:
    seconds, result = cpu_of_call(lambda: sum(range(10)), repeats=2)
    assert seconds >= 0
    assert result == 45


def test_cpu_time_of_a_command_counts_its_children() -> None:
    child = "sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'"
    assert cpu_of_command(["sh", "-c", f"{child}; true"], repeats=1) > 0


def test_a_failing_command_is_no_measurement() -> None:
    with pytest.raises(MeasurementError, match="sh ended with exit code 3: no such luck"):
        cpu_of_command(["sh", "-c", "echo no such luck >&2; exit 3"])
