"""Reading instance files: YAML or JSON, with errors that name file, place, rule and mend."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from coplace.instances.consistency import nearest
from coplace.instances.errors import InputError, Problem, shorten
from coplace.instances.instance import VERSION, Instance
from coplace.instances.quantities import FILE_CONTEXT

Model = TypeVar("Model", bound=BaseModel)
Steps = tuple[int | str, ...]
MAX_PROBLEMS = 20
"""Problems that one error reports at most."""


def read_instance(path: str | os.PathLike[str]) -> Instance:
    """Read an instance file (``.json`` as JSON, anything else as YAML).

    Raises:
        InputError: the file cannot be read or breaks a rule; says where and how to mend it.
    """
    source = os.fspath(path)
    data = load_document(source)
    _check_version(data, source)
    return parse(Instance, data, source)


def parse_instance(data: Any, source: str = "") -> Instance:
    """An instance from nested lists and mappings as a file holds them; raises :class:`InputError`."""
    _check_version(data, source)
    return parse(Instance, data, source)


def parse(model: type[Model], data: Any, source: str = "") -> Model:
    """*data* as a *model*, with bare numbers read as Kubernetes quantities; raises :class:`InputError`."""
    try:
        return model.model_validate(data, context=FILE_CONTEXT)
    except ValidationError as error:
        problems = list(_problems(model, error, data))
        if len(problems) > MAX_PROBLEMS:
            rest = Problem("", f"and {len(problems) - MAX_PROBLEMS} more problems")
            problems = [*problems[:MAX_PROBLEMS], rest]
        raise InputError(problems, source) from None
    except InputError as error:
        raise error.located(source) from None


def load_document(source: str) -> Any:
    """Nested lists and mappings of a YAML or JSON file; raises :class:`InputError`."""
    try:
        text = Path(source).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError([Problem("", f"cannot be read: {error.strerror or error}")], source) from None
    except UnicodeDecodeError:
        mend = "give a YAML or JSON file"
        raise InputError([Problem("", "must be UTF-8 text", "binary data", mend)], source) from None
    if not text.strip():
        raise InputError([Problem("", "the file is empty", mend="see docs/file-format.md")], source)
    try:
        return _json(text) if text.lstrip().startswith(("{", "[")) and source.endswith(".json") else _yaml(text)
    except _Malformed as error:
        raise InputError([error.problem], source) from None
    except RecursionError:
        raise InputError([Problem("", "is nested too deeply")], source) from None


class _Malformed(Exception):
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(str(problem))


def _json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise _Malformed(Problem("", "a key may stand only once in a mapping", repr(twice)))
        return members

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise _Malformed(Problem(f"line {error.lineno}, column {error.colno}", f"is not JSON: {error.msg}")) from None
    except ValueError as error:  # an integer of thousands of digits
        raise _Malformed(Problem("", f"is not JSON: {error}")) from None


def _yaml(text: str) -> Any:
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """Refuses a key that stands twice, of which YAML would silently keep the last."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key_node, _ in node.value:
                if key_node.tag == "tag:yaml.org,2002:merge":
                    continue
                key = key_node.value if isinstance(key_node.value, str) else None
                if key is not None and key in seen:
                    place = f"line {key_node.start_mark.line + 1}"
                    raise _Malformed(Problem(place, "a key may stand only once in a mapping", repr(key)))
                seen.add(key)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise _Malformed(Problem(place, f"is not YAML: {error.problem or error}")) from None
    except (yaml.YAMLError, ValueError) as error:
        raise _Malformed(Problem("", f"is not YAML: {' '.join(str(error).split())}")) from None


def _check_version(data: Any, source: str) -> None:
    if not isinstance(data, dict):
        found = f"a {type(data).__name__}"
        raise InputError([Problem("", "an instance is a mapping with version, nodes and jobs", found)], source)
    version = data.get("version")
    if version == VERSION:
        return
    mend = f"start the file with version: {VERSION}"
    if version is None:
        problem = Problem("version", "is missing", mend=mend)
    elif isinstance(version, str) and version.startswith("coplace/v"):
        problem = Problem(
            "version", f"this coplace reads {VERSION}", repr(version), "upgrade coplace or convert the file"
        )
    else:
        problem = Problem("version", f"must be {VERSION}", shorten(version), mend)
    raise InputError([problem], source)


# --- pydantic's errors in our words -------------------------------------------------------------------------------

_RULES = {
    "missing": "is missing",
    "extra_forbidden": "unknown key",
    "finite_number": "must be a finite number",
    "union_tag_not_found": "needs a form",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be text (put it in quotes)",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
}


def _problems(model: type[BaseModel], error: ValidationError, data: Any) -> Iterable[Problem]:
    schema = model.model_json_schema()
    errors = error.errors(include_url=False)
    for details in errors:
        loc = details["loc"]
        if details["type"] == "too_short" and any(e["loc"][: len(loc)] == loc != e["loc"] for e in errors):
            continue  # empty only because its entries were refused, which is said already
        path = _without_tags(schema, loc)
        yield _problem(schema, details, path, _render(_as_written(data, path)))


def _problem(schema: dict[str, Any], details: ErrorDetails, path: Steps, place: str) -> Problem:
    kind = details["type"]
    context = details.get("ctx", {})
    found = "" if kind in ("missing", "extra_forbidden") else shorten(details["input"])
    mend = ""
    rule = _RULES.get(kind)
    if kind == "extra_forbidden":
        mend = nearest(str(path[-1]), _keys(schema, path[:-1]))
    elif kind == "literal_error":
        words = [word.strip("'") for word in context["expected"].replace(" or ", ", ").split(", ")]
        rule = f"must be one of {', '.join(words)}" if len(words) > 1 else f"must be {words[0]}"
        mend = nearest(str(details["input"]), words) if len(words) > 1 else ""
    elif kind == "union_tag_invalid":
        words = [word.strip("'") for word in context["expected_tags"].split(", ")]
        place += ".form"
        rule, found = f"must be one of {', '.join(words)}", repr(context["tag"])
        mend = nearest(context["tag"], words)
    elif kind == "missing" and path and path[-1] == "profiles":
        rule = "needs profiles, or cpu and memory of its only profile"
    if rule is None:
        message = details["msg"]
        rule = message.removeprefix("Input should be ").removeprefix("Value error, ")
        if message.startswith("Input should be "):
            rule = f"must be {rule}"
    return Problem(place, rule, found, mend)


def _as_written(data: Any, path: Steps) -> Steps:
    """*path* without ``profiles[0]`` where the file gives a role's only profile directly."""
    written: list[int | str] = []
    skipped = False
    for step in path:
        if step == "profiles" and isinstance(data, dict) and step not in data:
            skipped = True
            continue
        if skipped and step == 0:
            skipped = False
            continue
        written.append(step)
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            data = None
    return tuple(written)


def _render(path: Steps) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


def _branches(root: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The object and array schemas that *schema* stands for, references and unions followed."""
    if "$ref" in schema:
        return _branches(root, root["$defs"][schema["$ref"].rsplit("/", 1)[-1]])
    parts = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    return [leaf for part in parts for leaf in _branches(root, part)] if parts else [schema]


def _descend(root: dict[str, Any], schemas: list[dict[str, Any]], step: int | str) -> list[dict[str, Any]]:
    below: list[dict[str, Any]] = []
    for schema in schemas:
        if isinstance(step, int):
            children = [schema.get("items")]
        else:
            named = schema.get("properties", {}).get(step)
            children = (
                [named]
                if named
                else [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
            )
        for child in children:
            if isinstance(child, dict):
                below += _branches(root, child)
    return below


def _without_tags(root: dict[str, Any], loc: Steps) -> Steps:
    """The path in the file: pydantic adds the chosen branch of a union as a step of its own."""
    path: list[int | str] = []
    schemas = _branches(root, root)
    loc = tuple(step for step in loc if step != "[key]")
    for index, step in enumerate(loc):
        below = _descend(root, schemas, step)
        last = index == len(loc) - 1
        if below:
            path.append(step)
            schemas = below
        elif last and any("properties" in schema for schema in schemas):
            path.append(step)  # an unknown key
        else:
            chosen = [s for s in schemas if s.get("properties", {}).get("form", {}).get("const") == step]
            schemas = chosen or schemas
    return tuple(path)


def _keys(root: dict[str, Any], path: Steps) -> list[str]:
    schemas = _branches(root, root)
    for step in path:
        schemas = _descend(root, schemas, step)
    return sorted({key for schema in schemas for key in schema.get("properties", {})})
