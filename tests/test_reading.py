"""Reading instance files: what is wrong is said with its place, and nothing but InputError ever comes out."""

import contextlib
import copy
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coplace.instances import (
    InputError,
    instance_sha256,
    parse_instance,
    read_instance,
    to_document,
    write_instance,
)
from coplace.instances.reading import load_document
from tests.documents import VALID, instances

GONE = object()


def changed(path: str, value: Any) -> dict[str, Any]:
    """The valid document with *value* at a path such as ``jobs.0.worker.max``."""
    document = copy.deepcopy(VALID)
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    here: Any = document
    for step in steps:
        here = here[step]
    if value is GONE:
        del here[last]
    else:
        here[last] = value
    return document


def refusal(document: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        parse_instance(document)
    return caught.value


def file_refusal(path: Path, content: str | bytes | None = None) -> str:
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        read_instance(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


def test_the_valid_document_is_valid():
    instance = parse_instance(VALID)
    assert [node.name for node in instance.nodes] == ["v1", "t1", "c-0", "c-1"]
    assert instance.nodes[2].memory == 65536
    assert instance.job["servers"].worker.profiles[1].slowdown_on("T4") == 1.5


# --- one problem each, with its exact place and rule --------------------------------------------------------------

CASES: list[tuple[str, Any, str, str]] = [
    # unknown keys, with the nearest word
    ("gaol", "jct", "gaol", "unknown key; did you mean goal?"),
    ("jobs.0.worker.memroy", "1Gi", "jobs[0].worker.memroy", "unknown key; did you mean memory?"),
    ("jobs.1.ps.memory_modell", {}, "jobs[1].ps.memory_modell", "unknown key; did you mean memory_model?"),
    ("jobs.0.Worker", {}, "jobs[0].Worker", "unknown key; did you mean worker?"),
    ("rules.xyz", 1, "rules.xyz", "unknown key; known: max_tasks_per_node, move_budget, quotas"),
    ("jobs.0.speed.types.V100.alpha", 1, "jobs[0].speed.types.V100.alpha", "unknown key; known: a, b, latency_inter"),
    ("nodes.2.lost", {"gpus": 1}, "nodes[2].lost.gpus", "unknown key; did you mean gpu?"),
    ("a\nb", 1, r"'a\nb'", "unknown key"),
    ("k" * 500, 1, f"'{'k' * 58}…", "unknown key"),
    # keys that are no text
    ("7", 1, "7", "a key must be text"),
    # names
    ("nodes.0.name", "a\nb", "nodes[0].name", "must be printable, on one line"),
    ("jobs.0.name", "", "jobs[0].name", "must not be empty"),
    ("jobs.0.name", "x" * 254, "jobs[0].name", "must have at most 253 characters"),
    ("jobs.0.name", 7, "jobs[0].name", "must be text (put it in quotes); found 7"),
    ("jobs.0.name", "\ud800", "jobs[0].name", "must be text that UTF-8 can hold"),
    ("nodes.1.name", "v1", "nodes", "names must be unique; found 'v1'"),
    ("jobs.1.name", "ring", "jobs[1].name", "names must be unique; found 'ring'"),
    # invisible characters, with which two names look the same and a line of a terminal reads backwards
    *(
        ("nodes.0.name", f"a{hidden}b", "nodes[0].name", "must be printable, on one line")
        for hidden in "\x7f\x80\x9f\xa0\xad\u200b\u200d\u202e\u2028\u2060\u2066\u3000\ufeff\U000e0041"
    ),
    # what does not exist
    (
        "jobs.0.current.tasks.worker",
        {"v11": 1},
        "jobs[0].current.tasks.worker",
        "must name nodes of the cluster (one that failed stays in the list, with lost: all); found 'v11'; did you mean",
    ),
    ("jobs.0.gpu_types", ["V10"], "jobs[0].gpu_types[0]", "must be a GPU type with a speed"),
    (
        "jobs.2.speed.points.0.gpu_type",
        "v100",
        "jobs[2].speed",
        "at least one GPU type of a job must exist in the cluster; found v100; did you mean V100?",
    ),
    ("jobs.0.requested", {"workers": 2, "gpu_type": "A10"}, "jobs[0].requested.gpu_type", "must be a type that"),
    ("jobs.0.requested", {"workers": 9}, "jobs[0].requested.workers", "must lie between the role's min and max"),
    ("goal", "jtc", "goal", "must be one of jct, throughput, fairness, makespan, deadline; found 'jtc'; did you mean"),
    ("jobs.1.current.tasks.pss", {"t1": 1}, "jobs[1].current.tasks.pss", "must be one of worker, ps; found 'pss'; did"),
    ("jobs.1.current.profiles.worker", 2, "jobs[1].current.profiles.worker", "must be an index into the 2 profiles"),
    ("jobs.0.speed.form", "all-reduce", "jobs[0].speed.form", "must be one of ps-sync, ps-async, allreduce, table"),
    ("jobs.0.speed", {"batch": 1}, "jobs[0].speed", "needs a form"),
    ("jobs.0.speed.types", {}, "jobs[0].speed.types", "must not be empty"),
    # counts that contradict each other
    ("jobs.0.current.tasks.worker.v1", 7, "node v1", "running tasks and used gpu must fit the node; found 8 gpu on 4"),
    ("nodes.1.used.cpu", "64", "node t1: used.cpu", "must not exceed the capacity; found 64 cpu used of 32 cpu"),
    ("nodes.1.used.cpu", "31500m", "node t1", "running tasks and used cpu must fit the node; found 32500m cpu on 32"),
    ("jobs.0.worker.min", 5, "jobs[0].worker.min", "must not exceed max; found min 5, max 4"),
    ("jobs.2.pinned", True, "jobs[2].pinned", "only a running job can be pinned"),
    ("jobs.2.ps", {"cpu": 1}, "jobs[2].architecture", "architecture ps needs a ps role, architecture allreduce has"),
    ("jobs.1.current.tasks.ps", {}, "jobs[1].current.tasks", "a running job has tasks in every role; ps is missing"),
    ("jobs.0.current.tasks.worker.t1", 1, "jobs[0].current.tasks.worker", "all workers of a job run on one GPU type"),
    ("nodes.0.gpu", 0, "node v1", "a node has both a gpu_type and gpu ≥ 1, or neither"),
    ("pressure_levels", [1.0, 0.5], "pressure_levels", "must ascend"),
    # numbers
    ("jobs.0.remaining", math.nan, "jobs[0].remaining", "must be a finite number; found nan"),
    ("jobs.0.remaining", math.inf, "jobs[0].remaining", "must be a finite number; found inf"),
    ("jobs.0.remaining", -1, "jobs[0].remaining", "must be a number from 1e-9 to 1e15; found -1"),
    ("jobs.0.remaining", 10**30, "jobs[0].remaining", "must be at most 1e15"),
    ("jobs.0.remaining", 10**400, "jobs[0].remaining", "is too large"),
    ("jobs.0.remaining", "soon", "jobs[0].remaining", "must be a number; found 'soon'"),
    ("jobs.0.weight", None, "jobs[0].weight", "must be a number; found None"),
    ("jobs.0.restart_seconds", -math.inf, "jobs[0].restart_seconds", "must be a finite number"),
    ("nodes.0.gpu", math.nan, "nodes[0].gpu", "must be a whole number; found nan"),
    ("nodes.0.gpu", -4, "nodes[0].gpu", "must be at least 0; found -4"),
    ("nodes.0.gpu", 0.5, "nodes[0].gpu", "GPUs are counted whole for now"),
    ("nodes.0.gpu", "4", "nodes[0].gpu", "must be a whole number"),
    ("nodes.0.gpu", True, "nodes[0].gpu", "must be a whole number; found True"),
    ("nodes.0.gpu", 10**5000, "nodes[0].gpu", "must be at most 10000; found int that is too large to show"),
    ("nodes.0.count", 0, "nodes[0].count", "must be at least 1; found 0"),
    ("jobs.0.worker.max", "4", "jobs[0].worker.max", "must be a whole number; found '4'"),
    ("jobs.0.worker.max", True, "jobs[0].worker.max", "must be a whole number; found True"),
    ("jobs.0.worker.max", 2.0, "jobs[0].worker.max", "must be a whole number; found 2.0"),
    ("jobs.0.current.tasks.worker.v1", 0, "jobs[0].current.tasks.worker.v1", "must be at least 1; found 0"),
    ("rules.move_budget", False, "rules.move_budget", "must be a whole number; found False"),
    ("jobs.0.pinned", "maybe", "jobs[0].pinned", "must be true or false; found 'maybe'"),
    # numbers so small or large that a division or product of some gave NaN, infinity or a traceback
    ("jobs.0.remaining", 5e-324, "jobs[0].remaining", "must be a number from 1e-9 to 1e15; found 5e-324"),
    ("jobs.0.remaining", 1e18, "jobs[0].remaining", "must be at most 1e15; found 1e+18"),
    ("jobs.0.deadline_seconds", 1e18, "jobs[0].deadline_seconds", "must be at most 1e15; found 1e+18"),
    ("jobs.0.deadline_seconds", -1e300, "jobs[0].deadline_seconds", "must be at least -1e15; found -1e+300"),
    ("jobs.0.weight", 1e-300, "jobs[0].weight", "must be a number from 1e-9 to 1e15"),
    ("jobs.0.speed.batch", 1e18, "jobs[0].speed.batch", "must be at most 1e15"),
    ("jobs.0.speed.types.V100.a", 5e-324, "jobs[0].speed.types.V100", "a + b must be at least 1e-12 (a step takes"),
    ("jobs.0.restart_seconds", 1e16, "jobs[0].restart_seconds", "must be at most 1e15"),
    ("jobs.2.speed.points.0.speed", 5e-324, "jobs[2].speed.points[0].speed", "must be a number from 1e-9 to 1e15"),
    ("horizon_seconds", 1e-300, "horizon_seconds", "must be a number from 1e-9 to 1e15"),
    ("pressure_levels", [1e-300], "pressure_levels[0]", "must be at least 1e-6; found 1e-300"),
    # quantities and their units
    ("nodes.0.memory", 128, "nodes[0].memory", "less than 1 MiB: memory without a suffix is in bytes; write 16Gi"),
    ("nodes.0.memory", "128", "nodes[0].memory", "less than 1 MiB"),
    ("nodes.0.memory", "2Pi", "nodes[0].memory", "more than 1 PiB of memory; found '2Pi'"),
    ("nodes.0.memory", "128GB", "nodes[0].memory", "'128GB' is not a Kubernetes quantity such as 500m, 4 or 16Gi"),
    ("nodes.0.memory", math.inf, "nodes[0].memory", "must be a finite number"),
    ("nodes.0.memory", 10**5000, "nodes[0].memory", "is too large"),
    ("nodes.0.memory", GONE, "nodes[0].memory", "is missing"),
    ("nodes.0.cpu", 32000, "nodes[0].cpu", "more than 10000 cores: CPU is counted in cores; write 500m"),
    ("nodes.0.cpu", "x" * 500, "nodes[0].cpu", f"'{'x' * 58}… is not a Kubernetes quantity"),
    ("nodes.0.cpu", True, "nodes[0].cpu", "must be a Kubernetes quantity such as 500m, 4 or 16Gi; found True"),
    ("nodes.0.cpu", None, "nodes[0].cpu", "must be a Kubernetes quantity"),
    ("nodes.0.cpu", "-1", "nodes[0].cpu", "must not be negative; found '-1'"),
    # shorthand of a single profile: the place is the one in the file
    ("jobs.0.worker.cpu", "many", "jobs[0].worker.cpu", "is not a Kubernetes quantity"),
    ("jobs.0.worker.cpu", GONE, "jobs[0].worker.cpu", "is missing"),
    ("jobs.0.worker.slowdown", 0.5, "jobs[0].worker.slowdown", "must be at least 1, or must be a mapping; found 0.5"),
    ("jobs.0.worker.slowdown", {"V100": "x"}, "jobs[0].worker.slowdown.V100", "must be a number; found 'x'"),
    ("jobs.1.worker.profiles.1.cpu", "many", "jobs[1].worker.profiles[1].cpu", "is not a Kubernetes quantity"),
    ("jobs.1.worker.profiles.1.slowdown.T4", 0, "jobs[1].worker.profiles[1].slowdown.T4", "must be at least 1"),
    ("jobs.0.worker", {"max": 4}, "jobs[0].worker", "needs profiles, or cpu and memory of its only profile"),
    ("jobs.1.worker.profiles", [], "jobs[1].worker.profiles", "must not be empty"),
    ("jobs.0.worker.profiles", [{"cpu": 1}], "jobs[0].worker", "give either cpu, memory and slowdown, or profiles"),
    # shapes
    ("nodes", {}, "nodes", "must be a list; found {}"),
    ("nodes.0", "v1", "nodes[0]", "must be a mapping; found 'v1'"),
    ("nodes.2.lost", "some", "nodes[2].lost", "must be a mapping, or must be all; found 'some'"),
    ("jobs", None, "jobs", "must be a list; found None"),
    ("jobs.0.worker", None, "jobs[0].worker", "must be a mapping; found None"),
    ("jobs.0.speed", None, "jobs[0].speed", "must be a mapping; found None"),
    ("jobs.0.current.tasks.worker", ["v1"], "jobs[0].current.tasks.worker", "must be a mapping; found ['v1']"),
    ("nodes.0.labels", {"disk": 1}, "nodes[0].labels.disk", "must be text (put it in quotes); found 1"),
    ("jobs.2.observations.0.speed", "x", "jobs[2].observations[0].speed", "must be a number; found 'x'"),
    # versions
    ("version", GONE, "version", "is missing; start the file with version: coplace/v1"),
    ("version", "coplace/v2", "version", "this coplace reads coplace/v1; found 'coplace/v2'; upgrade coplace or"),
    ("version", 1, "version", "must be coplace/v1; found 1"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value", "place", "rule"), CASES, ids=[ascii(f"{i}-{case[0][:40]}") for i, case in enumerate(CASES)]
)
def test_a_wrong_value_is_refused_with_its_place_and_rule(path, value, place, rule):
    document = changed(path, value)
    if path == "7":
        document[7] = document.pop(7, 1)
    problems = refusal(document).problems
    assert [problem.place for problem in problems] == [place]
    assert rule in str(problems[0])
    assert "\n" not in str(problems[0])
    assert len(str(problems[0])) < 400


def test_a_wrong_form_of_speed_is_refused():
    document = changed("jobs.1.speed", VALID["jobs"][0]["speed"])
    (problem,) = refusal(document).problems
    assert (problem.place, problem.rule) == ("jobs[1].speed.form", "must suit the architecture")
    assert problem.found == "allreduce with ps"


def test_keys_that_are_no_text_are_refused_where_they_stand(tmp_path):
    document = changed("jobs.0.current.tasks.worker", {1: 1})
    (problem,) = refusal(document).problems
    assert str(problem) == "jobs[0].current.tasks.worker.1: a key must be text (put it in quotes); found 1"
    text = yaml.safe_dump(document)
    assert file_refusal(tmp_path / "keys.yaml", text) == str(problem)


def test_several_problems_are_reported_at_once():
    document = changed("jobs.0.worker.max", "4")
    document["nodes"][0]["gpu"] = -1
    document["jobs"][1]["ps"]["memory_model"]["copies"] = 0.5
    document["gaol"] = "jct"
    error = refusal(document)
    assert [problem.place for problem in error.problems] == [
        "nodes[0].gpu", "jobs[0].worker.max", "jobs[1].ps.memory_model.copies", "gaol",
    ]  # fmt: skip
    assert str(error).count("\n") == 3


def test_several_contradictions_are_reported_at_once():
    document = changed("jobs.0.worker.min", 5)
    document["jobs"][1]["name"] = "ring"
    document["pressure_levels"] = [1, 1]
    assert [problem.place for problem in refusal(document).problems] == [
        "jobs[1].name", "pressure_levels", "jobs[0].worker.min",
    ]  # fmt: skip


def test_a_list_whose_entries_are_refused_is_not_called_empty_too():
    document = changed("jobs.0.gpu_types", [1])
    assert [problem.place for problem in refusal(document).problems] == ["jobs[0].gpu_types[0]"]


@pytest.mark.parametrize("wrong", [{"gpu": "x"}, {"labels": {"a": 1}}])
def test_a_file_that_is_wrong_throughout_names_some_and_says_that_there_are_more(wrong):
    nodes = [{"name": f"n{i}", "cpu": 1, "memory": "1Gi"} | wrong for i in range(3000)]
    problems = refusal({"version": "coplace/v1", "nodes": nodes}).problems
    assert len(problems) == 21
    assert problems[0].place.startswith("nodes[0]")
    assert problems[-1].rule == "and more problems of this kind"


def test_many_contradictions_too():
    jobs = [
        VALID["jobs"][0] | {"name": f"j{i}", "current": {"tasks": {"worker": {f"gone-{i}": 1}}}} for i in range(500)
    ]
    problems = refusal(VALID | {"jobs": jobs}).problems
    assert len(problems) == 21
    assert problems[-1].rule == "and more problems of this kind"


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_there_or_no_file(tmp_path):
    assert file_refusal(tmp_path / "none.yaml") == "cannot be read: No such file or directory"
    assert file_refusal(tmp_path) == "cannot be read: Is a directory"
    with pytest.raises(InputError, match="cannot be read"):
        read_instance("a\0b.yaml")


@pytest.mark.parametrize("suffix", ["yaml", "json"])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "must be UTF-8 text; found binary data"),
        (b"[1, 2]", "an instance is a mapping with version, nodes and jobs; found a list"),
        (b"null", "an instance is a mapping with version, nodes and jobs; found nothing"),
        (b"[" * 100_000, "nest"),
        (b'{"a":' * 100_000, "nest"),
        (b'{"version": "coplace/v1", "nodes": ' + b"[" * 800 + b"]" * 800 + b"}", "nodes[0]: must be a mapping"),
    ],
)
def test_a_file_that_holds_no_instance(tmp_path, suffix, content, says):
    message = file_refusal(tmp_path / f"x.{suffix}", content)
    assert says in message
    assert len(message) < 300


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"version: \x00", "is not YAML"),
        (b"hello", "an instance is a mapping with version, nodes and jobs; found text"),
    ],
)
def test_a_yaml_file_that_holds_no_instance(tmp_path, content, says):
    assert says in file_refusal(tmp_path / "x.yaml", content)


@pytest.mark.parametrize("content", ["hello", "version: coplace/v1\nnodes: []\n", "# notes\n{}", "- 1"])
def test_a_json_file_is_never_read_as_yaml(tmp_path, content):
    """It was, so that what other programs refuse as JSON was taken, with YAML's own idea of what ``no`` means."""
    message = file_refusal(tmp_path / "x.json", content)
    assert message.startswith("line 1, column ")
    assert "is not JSON: " in message
    assert message.endswith("; a file of YAML has a name that ends in .yaml")


def test_deeply_nested_objects_in_memory():
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert [problem.place for problem in refusal(changed("nodes.0.name", deep)).problems] == ["nodes[0].name"]
    while deep:  # taken apart step by step: not every Python frees it without recursion
        deep = deep.pop()


def test_truncated_files_name_the_line(tmp_path):
    text = json.dumps(VALID, indent=1)
    cut = text[: text.index('"T4"')]
    line = cut.count("\n") + 1
    assert file_refusal(tmp_path / "x.json", cut).startswith(f"line {line}, column ")
    assert re.match(r"line \d+, column \d+: is not YAML", file_refusal(tmp_path / "x.yaml", cut))


def test_keys_that_stand_twice_name_the_line(tmp_path):
    says = "line 3: a key may stand only once in a mapping; found 'nodes'"
    assert file_refusal(tmp_path / "x.yaml", "version: coplace/v1\nnodes: []\nnodes: []\n") == says
    assert file_refusal(tmp_path / "x.json", '{"version": "coplace/v1",\n"nodes": [],\n"nodes": []}') == says
    surrogate = '{"version": "coplace/v1", "\\ud800": 1, "\\ud800": 2}'
    assert "a key may stand only once" in file_refusal(tmp_path / "y.json", surrogate)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("jobs: &a [*a]", "jobs[0]: must be a mapping"),
        ("horizon_seconds: 0x" + "F" * 5000, "line 3: a number must be decimal"),
        ("horizon_seconds: " + "9" * 5000, "is not YAML"),
        ("? [a]\n: 1", "is not YAML: found unhashable key"),
        ("~: 1", "a key must be text"),
        ("name: 2024-01-01", "name: must be text (put it in quotes)"),
        ("name: !!python/object:os.system x", "is not YAML: could not determine a constructor"),
        ("---\na: 1", "is not YAML"),
        ("\tname: x", "is not YAML"),
        ("name: *x", "is not YAML: found undefined alias"),
    ],
)
def test_what_only_yaml_can_get_wrong(tmp_path, line, says):
    assert says in file_refusal(tmp_path / "x.yaml", f"version: coplace/v1\nnodes: []\n{line}\n")


@pytest.mark.parametrize(
    "number", ["1:30", "010", "0x10", "0b11", "1_000", "1:30.5", "1_0.5", "-010", "+0x1", "010.5", "190:20:30", "007"]
)
def test_numbers_that_only_yaml_1_1_knows_are_refused_with_their_line(tmp_path, number):
    """``cpu: 1:30`` passed as 90 cores, and ``cpu: 010`` as 8."""
    text = f"version: coplace/v1\nnodes:\n- name: a\n  memory: 1Gi\n  cpu: {number}\n"
    assert file_refusal(tmp_path / "x.yaml", text) == (
        f"line 5: a number must be decimal, without leading zeros; found '{number}'; put it in quotes if it is text"
    )


@pytest.mark.parametrize(
    ("number", "value"),
    [("0", 0), ("12", 12), ("-3", -3), ("+3", 3), ("0.5", 0.5), (".5", 0.5), ("5.", 5.0), ("1e3", 1000.0),
     ("1E3", 1000.0), ("1.5e-3", 0.0015), ("1.0e+3", 1000.0), ("-0", 0), ("0e0", 0.0), (".inf", math.inf)],
)  # fmt: skip
def test_other_numbers_are_read_as_json_reads_them(tmp_path, number, value):
    (tmp_path / "x.yaml").write_text(f"n: {number}\n")
    read = load_document(str(tmp_path / "x.yaml"))["n"]
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize("key", ["yes", "no", "on", "True", "OFF"])
def test_a_key_that_yaml_reads_as_a_flag_is_shown_as_it_is_written(tmp_path, key):
    """It was shown as ``labels.1``, which stands nowhere in the file."""
    text = f"version: coplace/v1\nnodes:\n- name: a\n  labels:\n    {key}: x\n"
    says = f"line 5: a key must be text (put it in quotes); found '{key}'"
    assert file_refusal(tmp_path / "x.yaml", text) == says
    (problem,) = refusal(changed("nodes.0.labels", {True: "x"})).problems
    assert str(problem) == "nodes[0].labels.True: a key must be text (put it in quotes); found True"


def test_aliases_that_multiply_are_not_written_out(tmp_path):
    lines = ["x0: &x0 [" + ", ".join(["1"] * 8) + "]"]
    lines += [f"x{i}: &x{i} [" + ", ".join([f"*x{i - 1}"] * 8) + "]" for i in range(1, 12)]
    message = file_refusal(tmp_path / "x.yaml", "version: coplace/v1\n" + "\n".join(lines) + "\nnodes: *x11\n")
    assert message.startswith("nodes[0]: must be a mapping") or "nodes[0]: must be a mapping" in message
    assert len(message) < 5000


def test_a_byte_order_mark_and_merge_keys_are_read(tmp_path):
    text = (
        "\ufeffversion: coplace/v1\nnodes:\n- &n {name: a, cpu: 4, memory: 4Gi}\n- <<: *n\n  name: b\n"
        "horizon_seconds: 1e3\n"
    )
    (tmp_path / "x.yaml").write_text(text, encoding="utf-8")
    instance = read_instance(tmp_path / "x.yaml")
    assert [node.name for node in instance.nodes] == ["a", "b"]
    assert instance.horizon_seconds == 1000


# --- fuzzing --------------------------------------------------------------------------------------------------------

WORDS = [
    "coplace/v1",
    "V100",
    "v1",
    "worker",
    "ps",
    "allreduce",
    "table",
    "ps-sync",
    "16Gi",
    "500m",
    "all",
    "none",
    "1e6",
]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from([*WORDS, 10**400, -1, 0, 1, 2, 0.5])
)


def keys_of(value: Any) -> set[str]:
    if isinstance(value, dict):
        return {*value, *(key for inner in value.values() for key in keys_of(inner))}
    return {key for inner in value for key in keys_of(inner)} if isinstance(value, list) else set()


KEYS = st.sampled_from(sorted(keys_of(VALID))) | st.text(max_size=4)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.integers() | st.none(), inner, max_size=5),
    max_leaves=12,
)
FUZZ = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def expect_nothing_but_input_error(document: Any) -> None:
    with contextlib.suppress(InputError):
        parse_instance(document)


@FUZZ
@given(ANYTHING)
def test_no_document_fails_otherwise(document):
    expect_nothing_but_input_error(document)
    if isinstance(document, dict):
        expect_nothing_but_input_error(document | {"version": "coplace/v1"})


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for step, inner in below for place in places(inner, (*path, step)))]


PLACES = places(VALID)[1:]


@FUZZ
@given(st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(["set", "delete", "copy"]), ANYTHING), max_size=3))
def test_no_mutation_of_a_valid_document_fails_otherwise(mutations):
    document = copy.deepcopy(VALID)
    for (*steps, last), action, value in mutations:
        here: Any = document
        with contextlib.suppress(KeyError, IndexError, TypeError):  # an earlier mutation has taken the place away
            for step in steps:
                here = here[step]
            if action == "set":
                here[last] = value
            elif action == "delete":
                del here[last]
            elif isinstance(here, list):
                here.append(copy.deepcopy(here[last]))
            else:
                here[f"{last}2"] = here[last]
    expect_nothing_but_input_error(document)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["json", "yaml"]), st.integers(0, 4000), st.integers(0, 40), st.text(max_size=4))
def test_no_damage_to_a_file_fails_otherwise(tmp_path, suffix, start, length, text):
    content = json.dumps(VALID) if suffix == "json" else yaml.safe_dump(VALID)
    path = tmp_path / f"x.{suffix}"
    damaged = content[:start] + text + content[start + length :]
    path.write_bytes(damaged.encode("utf-8", "surrogatepass"))
    with contextlib.suppress(InputError):
        read_instance(path)


# --- the same instance, whatever the format -------------------------------------------------------------------------


def test_json_and_yaml_say_the_same(tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(VALID))
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(VALID))
    (tmp_path / "json-in.yaml").write_text(json.dumps(VALID))
    instances = [read_instance(tmp_path / name) for name in ("x.json", "x.yaml", "json-in.yaml")]
    assert instances[0] == instances[1] == instances[2] == parse_instance(VALID)
    assert len({instance_sha256(instance) for instance in instances}) == 1


def test_a_name_that_looks_like_a_number_survives_yaml(tmp_path):
    document = copy.deepcopy(VALID)
    for index, name in enumerate(["1e6", "12", ".5e3", "1.0e+3", "yes", "null", "2024-01-01", "0x1f", "~", "a: b #c"]):
        document["nodes"].append({"name": name, "cpu": 1, "memory": "1Gi", "rack": name, "labels": {"n": f"{index}"}})
    instance = parse_instance(document)
    write_instance(instance, tmp_path / "x.yaml")
    assert read_instance(tmp_path / "x.yaml") == instance


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(instance=instances())
def test_what_is_written_reads_back_equal(tmp_path, instance):
    assert parse_instance(to_document(instance)) == instance
    for name in ("x.json", "x.yaml"):
        write_instance(instance, tmp_path / name)
        again = read_instance(tmp_path / name)
        assert again == instance
        assert instance_sha256(again) == instance_sha256(instance)
