"""``coplace generate``, ``import``, ``schema``, ``methods`` and ``--version``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from coplace import __version__
from coplace.cli.app import app
from coplace.instances import instance_schema, parse_instance, read_instance
from coplace.instances.generation import FAMILIES
from coplace.instances.generation import generate as make
from coplace.solver import METHODS

NODES_CSV = "node,cpu_milli,memory_mib,num_gpus,gpu_model\nn1,32000,131072,2,V100\nn2,64000,262144,0,\n"
PODS_CSV = (
    "pod,submit_s,scheduled_s,deleted_s,duration_s,cpu_milli,memory_mib,num_gpus,gpu_milli,qos,phase\n"
    "p1,10,20,100,80,4000,8192,1,500,LS,Running\n"
    "p2,50,,,,8000,8192,1,1000,LS,Pending\n"
    "p3,0,1,9,8,1000,1024,0,0,BE,Succeeded\n"
)
NODES_JSON: dict[str, Any] = {
    "kind": "List",
    "items": [
        {
            "kind": "Node",
            "metadata": {"name": "k1", "labels": {"example.com/type": "T4"}},
            "spec": {"taints": [{"key": "team", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": "16", "memory": "64Gi", "example.com/gpu": "4"},
                "capacity": {"cpu": "16", "memory": "64Gi", "example.com/gpu": "4"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    ],
}
PODS_JSON: dict[str, Any] = {
    "kind": "List",
    "items": [
        {
            "kind": "Pod",
            "metadata": {"name": "train", "namespace": "ml", "creationTimestamp": "2024-05-01T10:00:00Z"},
            "spec": {
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "2", "example.com/gpu": "1"}}}],
            },
            "status": {"phase": "Pending"},
        }
    ],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("nodes.csv").write_text(NODES_CSV, encoding="utf-8")
    Path("pods.csv").write_text(PODS_CSV, encoding="utf-8")
    Path("nodes.json").write_text(json.dumps(NODES_JSON), encoding="utf-8")
    Path("pods.json").write_text(json.dumps(PODS_JSON), encoding="utf-8")
    Path("folder.json").mkdir()
    return tmp_path


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.stdout, done.stderr


# --- generate -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [("--list",), (), ("ps-mix", "--list")])
def test_the_families_are_listed(arguments: tuple[str, ...]) -> None:
    code, out, errors = run("generate", *arguments)
    assert (code, errors) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == list(FAMILIES)
    assert all(family.description in out for family in FAMILIES.values())


@pytest.mark.parametrize("name", ["i.json", "i.yaml", "i.yml"])
def test_the_file_holds_the_generated_instance(name: str, folder: Path) -> None:
    size = ("--nodes", "4", "--jobs", "6", "--seed", "3")
    assert run("generate", "ps-mix", *size, "-o", name) == (0, "", "")
    assert read_instance(name) == make("ps-mix", nodes=4, jobs=6, seed=3)


def test_without_a_file_it_is_printed_as_json() -> None:
    code, out, errors = run("generate", "saturated", "--nodes", "4", "--jobs", "6")
    assert (code, errors) == (0, "")
    assert parse_instance(json.loads(out)) == make("saturated", nodes=4, jobs=6, seed=0)


def test_pressure_and_running_jobs_may_be_left_out() -> None:
    code, out, _ = run("generate", "ps-mix", "--nodes", "4", "--jobs", "9", "--pressure", "off", "--moves", "off")
    assert code == 0
    assert parse_instance(json.loads(out)) == make("ps-mix", nodes=4, jobs=9, pressure=False, moves=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["psmix"], "coplace: FAMILY: must be a family of generated instances; found 'psmix'; did you mean ps-mix?"),
        (["ps-mix", "--nodes", "0"], "coplace: --nodes: must be a whole number from 1 to 100000; found 0"),
        (["ps-mix", "--seed", "-1"], "coplace: --seed: must be a whole number of at least 0; found -1"),
        (
            ["ps-mix", "-o", "i.txt"],
            "coplace: --output: the name of an instance file ends in .json, .yaml or .yml; found 'i.txt'",
        ),
        (["ps-mix", "-o", "none/i.json"], "coplace: none/i.json: cannot be written: its folder does not exist"),
        (["ps-mix", "-o", "folder.json"], "coplace: folder.json: cannot be written: it is a folder"),
    ],
)
def test_generate_refuses_wrong_input(arguments: list[str], message: str, folder: Path) -> None:
    before = sorted(folder.iterdir())
    outputs = [] if "-o" in arguments else ["-o", "i.json"]
    assert run("generate", *arguments, *outputs) == (2, "", message + "\n")
    assert sorted(folder.iterdir()) == before


def test_generate_refuses_wrong_options() -> None:
    for arguments in (["ps-mix", "--pressure", "maybe"], ["ps-mix", "--nodes", "many"], ["ps-mix", "more"]):
        code, out, errors = run("generate", *arguments)
        assert (code, out) == (2, "")
        assert "Error: " in errors


# --- import ---------------------------------------------------------------------------------------------------------


def test_openb_tables_become_an_instance_and_the_report_goes_to_standard_error(folder: Path) -> None:
    code, out, errors = run("import", "openb", "nodes.csv", "pods.csv", "-o", "i.yaml")
    assert (code, out) == (0, "")
    instance = read_instance("i.yaml")
    assert [node.name for node in instance.nodes] == ["n1", "n2"]
    assert [job.name for job in instance.jobs] == ["p1", "p2"]
    assert "2 nodes\n" in errors
    assert "1 pods with a share of a GPU, rounded up to one\n" in errors


def test_openb_options_reach_the_import(folder: Path) -> None:
    def jobs(*options: str) -> list[str]:
        code, out, _ = run("import", "openb", "nodes.csv", "pods.csv", *options)
        assert code == 0
        return [job.name for job in parse_instance(json.loads(out)).jobs]

    assert jobs() == ["p1", "p2"]
    assert jobs("--max-jobs", "1") == ["p1"]
    assert jobs("--at-seconds", "20") == ["p1"]
    assert jobs("--phase", "Succeeded", "--phase", "Pending") == ["p3", "p2"]


def test_nodes_alone_can_be_imported(folder: Path) -> None:
    for source in (("openb", "nodes.csv"), ("kubernetes", "nodes.json")):
        code, out, _ = run("import", *source)
        assert code == 0
        assert parse_instance(json.loads(out)).jobs == ()


def test_kubernetes_options_reach_the_import(folder: Path) -> None:
    gpus = ("--gpu-resource", "example.com/gpu", "--gpu-type-label", "example.com/type", "--ignored-taint", "team")
    code, out, errors = run(
        "import", "kubernetes", "nodes.json", "pods.json", *gpus, "--now", "2024-05-01T11:00:00+0000"
    )
    assert code == 0
    instance = parse_instance(json.loads(out))
    assert (instance.nodes[0].gpu_type, instance.nodes[0].gpu, instance.nodes[0].cordoned) == ("T4", 4, False)
    assert (instance.jobs[0].name, instance.jobs[0].age_seconds) == ("ml/train", 3600)
    assert "1 pending pods with GPUs, taken as jobs\n" in errors
    _, out, errors = run("import", "kubernetes", "nodes.json", "pods.json", *gpus, "--no-pending-as-jobs")
    assert parse_instance(json.loads(out)).jobs == ()
    assert "1 pending pods with GPUs, left out\n" in errors
    _, out, _ = run("import", "kubernetes", "nodes.json", "pods.json")
    assert parse_instance(json.loads(out)).nodes[0].gpu == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["openb", "none.csv"], "coplace: none.csv: cannot be read: No such file or directory"),
        (["openb", "pods.csv"], "coplace: pods.csv: line 1: column node is missing"),
        (["openb", "nodes.csv", "nodes.csv"], "coplace: nodes.csv: line 1: column pod is missing"),
        (["openb", "nodes.csv", "--at-seconds", "nan"], "coplace: --at-seconds: must be a finite number of seconds"),
        (["openb", "nodes.csv", "-o", "none/i.json"], "coplace: none/i.json: cannot be written: its folder does not"),
        (["kubernetes", "none.json"], "coplace: none.json: cannot be read: No such file or directory"),
        (["kubernetes", "nodes.csv"], "coplace: nodes.csv: "),
        (["kubernetes", "pods.json"], "coplace: pods.json: "),
        (["kubernetes", "nodes.json", "nodes.json"], "coplace: nodes.json: "),
        (["kubernetes", "nodes.json", "--now", "0001-01-01T00:00:00"], "coplace: --now: must be a time of our era"),
        (["kubernetes", "nodes.json", "-o", "i"], "coplace: --output: the name of an instance file ends in .json, "),
    ],
)
def test_import_refuses_wrong_input(arguments: list[str], message: str, folder: Path) -> None:
    before = sorted(folder.iterdir())
    outputs = [] if "-o" in arguments else ["-o", "i.json"]
    code, out, errors = run("import", *arguments, *outputs)
    assert (code, out) == (2, "")
    assert errors.startswith(message)
    assert errors.count("\n") == 1
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["slurm"],
        ["openb"],
        ["openb", "nodes.csv", "--max-jobs", "-1"],
        ["kubernetes", "nodes.json", "--now", "noon"],
        ["kubernetes", "nodes.json", "pods.json", "more.json"],
    ],
)
def test_import_refuses_wrong_options(arguments: list[str], folder: Path) -> None:
    code, out, errors = run("import", *arguments)
    assert (code, out) == (2, "")
    assert "Error: " in errors


# --- schema, methods, version, help ---------------------------------------------------------------------------------


def test_the_schema_is_that_of_the_package() -> None:
    code, out, errors = run("schema")
    assert (code, errors) == (0, "")
    schema = json.loads(out)
    assert schema == instance_schema()
    jsonschema.Draft202012Validator.check_schema(schema)


def test_every_method_is_listed_with_its_summary() -> None:
    code, out, errors = run("methods")
    assert (code, errors) == (0, "")
    assert [line.split(maxsplit=1) for line in out.splitlines()] == [
        [method.name, method.summary] for method in METHODS.values()
    ]


def test_the_version_is_that_of_the_package() -> None:
    assert run("--version") == (0, f"coplace {__version__}\n", "")


@pytest.mark.parametrize("command", ["", "solve", "check", "generate", "import", "import openb", "schema", "methods"])
def test_help_ends_with_the_exit_codes(command: str) -> None:
    code, out, _ = run(*command.split(), "--help")
    assert code == 0
    ending = " ".join(out.split("Exit codes: ")[1].split())
    assert ending.startswith("0 done; 1 a defect of coplace, or a training job that could not go on; 2 wrong ")
    assert ending.endswith("130 interrupted while reading, or twice.")


@pytest.mark.parametrize("arguments", [["schema", "x"], ["methods", "--all"], ["slove"], ["--versoin"], []])
def test_wrong_commands_are_exit_code_2(arguments: list[str]) -> None:
    code, out, errors = run(*arguments)
    assert (code, out) == (2, "")
    assert errors


PRINTED = [["--version"], ["--help"], ["solve", "--help"], ["import", "openb", "--help"], ["methods"]]


def start(*arguments: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import sys; from coplace.cli.main import main; sys.exit(main())", *arguments]
    return subprocess.run(command, text=True, timeout=60, **streams)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", PRINTED, ids=" ".join)
def test_a_full_disk_is_said_whatever_is_printed(arguments: list[str]) -> None:
    """Version and help ended with a traceback."""
    with Path("/dev/full").open("w") as full:
        done = start(*arguments, stdout=full, stderr=subprocess.PIPE)
    says = "coplace: standard output: cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, says)


@pytest.mark.parametrize("arguments", PRINTED, ids=" ".join)
def test_a_reader_of_help_that_goes_away_is_no_error(arguments: list[str]) -> None:
    """``coplace --help | true`` was exit code 1."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = start(*arguments, stdout=writer, stderr=subprocess.PIPE)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [["bogus"], [], ["solve"], ["solve", "none.yaml"]], ids=" ".join)
def test_wrong_input_is_exit_code_2_even_where_it_cannot_be_said(arguments: list[str]) -> None:
    """Exit code 1 is for defects, and 120 means nothing to anybody."""
    with Path("/dev/full").open("w") as full:
        assert start(*arguments, stdout=subprocess.PIPE, stderr=full).returncode == 2


def test_the_version_and_help_load_no_heavy_library() -> None:
    script = (
        "import sys\nfrom coplace.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted({'numpy', 'pydantic', 'rich', 'yaml'} & set(sys.modules)))"
    )
    for option in ("--version", "--help"):
        done = subprocess.run([sys.executable, "-c", script, option], capture_output=True, text=True, timeout=60)
        assert done.stdout.splitlines()[-1] == "[]", done.stderr
