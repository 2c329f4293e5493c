"""The printed JSON Schema accepts what the reader accepts, and refuses what a schema can refuse."""

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from coplace.instances import InputError, Instance, instance_schema, parse_instance, to_document
from coplace.instances.reading import load_document
from tests.documents import VALID, instances

SCHEMA = instance_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
EXAMPLES = sorted((Path(__file__).resolve().parent.parent / "instances" / "examples").glob("*.yaml"))
GONE = object()


def changed(path: str, value: Any) -> dict[str, Any]:
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


def test_it_is_a_schema_and_prints_as_json():
    VALIDATOR.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
    assert "version" in SCHEMA["required"]


def test_what_is_printed_is_not_shared_with_what_reads():
    instance_schema()["$defs"].clear()
    instance_schema()["properties"].clear()
    assert instance_schema() == SCHEMA
    assert parse_instance(VALID) == parse_instance(copy.deepcopy(VALID))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_valid(path):
    document = load_document(str(path))
    VALIDATOR.validate(document)
    assert isinstance(parse_instance(document), Instance)


ALSO_VALID = [
    ("name", GONE),
    ("jobs", GONE),
    ("rules", {}),
    ("horizon_seconds", 900),
    ("nodes.0.cpu", 31.5),
    ("nodes.0.memory", "1e11"),
    ("nodes.2.lost", {"gpu": 0, "cpu": "1"}),
    ("jobs.0.worker", {"cpu": 1}),
    ("jobs.0.worker", {"cpu": 1, "memory": "1Gi", "slowdown": 1.5, "max": 4, "intensity": 10}),
    ("jobs.0.worker", {"profiles": [{"cpu": 1}], "max": 4}),
    ("jobs.1.ps", {"cpu": "500m", "slowdown": {"V100": 2}}),
    ("jobs.1.ps", {"profiles": [{"cpu": 1, "memory": "1Gi"}], "max": 2}),
]


@pytest.mark.parametrize(("path", "value"), [("goal", "jct"), *ALSO_VALID])
def test_valid_documents_pass_schema_and_reader(path, value):
    document = changed(path, value)
    parse_instance(document)
    VALIDATOR.validate(document)


INVALID = [
    ("version", GONE),
    ("version", "coplace/v2"),
    ("nodes", GONE),
    ("nodes", {}),
    ("gaol", "jct"),
    ("goal", "fast"),
    ("nodes.0.cpu", GONE),
    ("nodes.0.cpu", "many"),
    ("nodes.0.cpu", "1 core"),
    ("nodes.0.cpu", -1),
    ("nodes.0.cpu", True),
    ("nodes.0.cpu", None),
    ("nodes.0.gpu", 0.5),
    ("nodes.0.gpu", "4"),
    ("nodes.0.gpu", -1),
    ("nodes.0.name", ""),
    ("nodes.0.name", "a\nb"),
    ("nodes.0.name", 7),
    ("nodes.0.labels", {"a": 1}),
    ("nodes.2.lost", "some"),
    ("nodes.2.lost", {"disk": 1}),
    ("nodes.0.count", 0),
    ("jobs.0.architecture", "mesh"),
    ("jobs.0.worker", {"max": 4}),
    ("jobs.0.worker", {"memory": "1Gi"}),
    ("jobs.0.worker", {"cpu": 1, "profiles": [{"cpu": 1}]}),
    ("jobs.0.worker", {"memory": "1Gi", "profiles": [{"cpu": 1}]}),
    ("jobs.0.worker", {"profiles": []}),
    ("jobs.0.worker", {"profiles": [{"memory": "1Gi"}]}),
    ("jobs.0.worker", {"cpu": 1, "gpus": 1}),
    ("jobs.0.worker", {"cpu": 1, "slowdown": 0.5}),
    ("jobs.0.worker", {"cpu": "x"}),
    ("jobs.1.ps", {"cpu": 1, "gpu": 1}),
    ("jobs.1.ps", {"max": 1}),
    ("jobs.0.speed.form", "quick"),
    ("jobs.0.speed", {"form": "table", "points": []}),
    ("jobs.0.speed.types.V100.a", -1),
    ("jobs.0.speed.types", {}),
    ("jobs.0.remaining", 0),
    ("jobs.0.current.tasks", {"pss": {"v1": 1}}),
    ("jobs.0.current.tasks.worker.v1", 0),
    ("rules.quotas.default", {"gpu": -1}),
    ("pressure_levels", [0]),
]


@pytest.mark.parametrize(("path", "value"), INVALID)
def test_invalid_documents_pass_neither(path, value):
    document = changed(path, value)
    with pytest.raises(InputError):
        parse_instance(document)
    assert not VALIDATOR.is_valid(document)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(instances())
def test_what_is_written_passes(instance):
    VALIDATOR.validate(to_document(instance))
    VALIDATOR.validate(json.loads(json.dumps(to_document(instance))))
