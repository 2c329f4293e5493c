"""Reading instance files: YAML or JSON, with errors that name file, place, rule and mend."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import re
import reprlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from coplace.instances.base import LARGEST, SMALLEST
from coplace.instances.consistency import near, nearest
from coplace.instances.errors import InputError, Problem, plain, shorten
from coplace.instances.instance import VERSION, Instance
from coplace.instances.job import Profile
from coplace.instances.quantities import FILE_CONTEXT

Model = TypeVar("Model", bound=BaseModel)
Steps = tuple[int | str, ...]
MAX_PROBLEMS = 20
"""Problems that one error reports at most."""

MAX_ERRORS = 200
"""Errors of pydantic that are looked at, so that a wrong file of 20,000 jobs is refused at once."""


def read_instance(path: str | os.PathLike[str]) -> Instance:
    """Read an instance file (``.json`` as JSON, anything else as YAML).

    Raises:
        InputError: the file cannot be read or breaks a rule; says where and how to mend it.
    """
    source = os.fspath(path)
    with _collector_paused():
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
        more = len(problems) > MAX_PROBLEMS or error.error_count() > MAX_ERRORS
        raise InputError(_at_most(problems, more), source) from None
    except InputError as error:
        raise InputError(_at_most(error.problems, len(error.problems) > MAX_PROBLEMS), source) from None
    except RecursionError:
        raise InputError([Problem("", "is nested too deeply")], source) from None


def _at_most(problems: Iterable[Problem], more: bool) -> list[Problem]:
    return [*list(problems)[:MAX_PROBLEMS], *([Problem("", "and more problems of this kind")] if more else ())]


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector: walking the growing tree again and again takes half of a large read."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def load_document(source: str) -> Any:
    """Nested lists and mappings of a YAML or JSON file; raises :class:`InputError`."""
    try:
        text = Path(source).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError([Problem("", f"cannot be read: {error.strerror or error}")], source) from None
    except UnicodeDecodeError:
        mend = "give a YAML or JSON file"
        raise InputError([Problem("", "must be UTF-8 text", "binary data", mend)], source) from None
    except ValueError as error:  # a path that no file can have
        raise InputError([Problem("", f"cannot be read: {error}")], ascii(source)) from None
    if not text.strip():
        raise InputError([Problem("", "the file is empty", mend="see docs/file-format.md")], source)
    try:
        return _json(text) if source.endswith(".json") else _yaml(text)
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
            _raise_with_line(text)
            raise _Malformed(Problem("", _ONCE, shown(twice)))
        return members

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        mend = "" if text.lstrip().startswith(("{", "[")) else "a file of YAML has a name that ends in .yaml"
        raise _Malformed(Problem(place, f"is not JSON: {error.msg}", mend=mend)) from None
    except ValueError as error:  # an integer of thousands of digits
        raise _Malformed(Problem("", f"is not JSON: {error}")) from None


def _raise_with_line(text: str) -> None:
    """Find the key that stands twice in JSON *text* once more as YAML, whose parser knows the line."""
    try:
        _yaml(text)
    except _Malformed as error:
        if error.problem.rule == _ONCE:
            raise
    except RecursionError:
        pass


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.load(text, _yaml_loader())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise _Malformed(Problem(place, f"is not YAML: {error.problem or error}")) from None
    except (yaml.YAMLError, ValueError) as error:
        raise _Malformed(Problem("", f"is not YAML: {' '.join(str(error).split())}")) from None


@functools.cache
def _yaml_loader() -> Any:
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """Refuses what YAML 1.1 would silently read as something else: keys that stand twice, numbers like 1:30."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key_node, _ in node.value:
                if key_node.tag == "tag:yaml.org,2002:merge":
                    continue
                if key_node.tag == "tag:yaml.org,2002:bool":  # yes, no, on, off: nobody would find them as True
                    place = f"line {key_node.start_mark.line + 1}"
                    raise _Malformed(Problem(place, _RULES["invalid_key"], shown(key_node.value)))
                key = key_node.value if isinstance(key_node.value, str) else None
                if key is not None and key in seen:
                    raise _Malformed(Problem(f"line {key_node.start_mark.line + 1}", _ONCE, shown(key)))
                seen.add(key)
            return super().construct_mapping(node, deep)

        def construct_yaml_int(self, node: Any) -> Any:
            return int(self._decimal(node))

        def construct_yaml_float(self, node: Any) -> Any:
            if node.value.lstrip("+-").casefold() in (".inf", ".nan"):  # refused later, with its place
                return super().construct_yaml_float(node)
            return float(self._decimal(node))

        def _decimal(self, node: Any) -> str:
            text = str(self.construct_scalar(node))
            if not _DECIMAL.fullmatch(text):
                mend = "put it in quotes if it is text"
                place = f"line {node.start_mark.line + 1}"
                raise _Malformed(Problem(place, "a number must be decimal, without leading zeros", shown(text), mend))
            return text

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_yaml_int)
    Loader.add_constructor("tag:yaml.org,2002:float", Loader.construct_yaml_float)
    read_exponents(Loader)
    return Loader


_DECIMAL = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", re.ASCII)
"""Numbers of which YAML 1.1 and JSON think alike. To YAML 1.1 alone 1:30 is 90, 010 is 8 and 1_0 is 10."""


def read_exponents(dialect: Any) -> None:
    """Let a YAML loader read ``1e6`` as a number and a dumper quote such a text, as JSON and YAML 1.2 have it.

    PyYAML follows YAML 1.1, where only ``1.0e+6`` is a number.
    """
    number = re.compile(r"^[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$")
    dialect.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+.0123456789"))


def _check_version(data: Any, source: str) -> None:
    if not isinstance(data, dict):
        found = _KINDS.get(type(data), shown(data))
        raise InputError([Problem("", "an instance is a mapping with version, nodes and jobs", found)], source)
    version = data.get("version")
    if version == VERSION:
        return
    mend = f"start the file with version: {VERSION}"
    if version is None:
        problem = Problem("version", "is missing", mend=mend)
    elif isinstance(version, str) and version.startswith("coplace/v"):
        problem = Problem(
            "version", f"this coplace reads {VERSION}", shown(version), "upgrade coplace or convert the file"
        )
    else:
        problem = Problem("version", f"must be {VERSION}", shown(version), mend)
    raise InputError([problem], source)


# --- pydantic's errors in our words -------------------------------------------------------------------------------

_ONCE = "a key may stand only once in a mapping"
_KINDS = {type(None): "nothing", list: "a list", str: "text", int: "a number", float: "a number", bool: "true or false"}
_RULES = {
    "missing": "is missing",
    "extra_forbidden": "unknown key",
    "finite_number": "must be a finite number",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "string_type": "must be text (put it in quotes)",
    "string_unicode": "must be text that UTF-8 can hold",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must be printable, on one line, with single spaces between words",
    "too_short": "must not be empty",
    "too_long": "must have at most {max_length} entries",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "recursion_loop": "must not contain itself",
    "invalid_key": "a key must be text (put it in quotes)",
}

_WHOLE = {"too_short", "literal_error", "float_type", "float_parsing"}
"""Errors about a value as a whole, which say nothing new where something inside of the value was refused: a list
is empty only because its entries were, or a union (``lost``, ``slowdown``) was meant as its other branch."""

_BRIEF = reprlib.Repr()
_BRIEF.maxlevel, _BRIEF.maxdict, _BRIEF.maxlist, _BRIEF.maxtuple, _BRIEF.maxset = 2, 8, 8, 8, 8
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 60


def shown(value: object) -> str:
    """What was found, shortened; also for values too large or too deep to be printed."""
    try:
        if isinstance(value, dict | list | tuple | set) and len(value) <= 8:
            text = _BRIEF.repr(value)
            return text if len(text) <= 60 else f"{text[:59]}…"
        return shorten(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, thousands of nested lists
        return f"{type(value).__name__} that is too large to show"


@functools.cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def _problems(model: type[BaseModel], error: ValidationError, data: Any) -> list[Problem]:
    schema = _schema(model)
    errors = error.errors(include_url=False)[:MAX_ERRORS]
    paths = [_without_tags(schema, details["loc"], details["type"], data) for details in errors]
    around = {path[:end] for path in paths for end in range(len(path))}
    problems: dict[tuple[str, str], Problem] = {}
    for details, path in zip(errors, paths, strict=True):
        if details["type"] in _WHOLE and details["loc"][-1:] != ("[key]",) and path in around:
            continue
        problem = _problem(schema, details, path, data)
        key = (problem.place, problem.found or problem.rule)
        if key in problems and problems[key].rule != problem.rule:  # each branch of a union has refused the value
            problem = Problem(problem.place, f"{problems[key].rule}, or {problem.rule}", problem.found)
        problems[key] = problem
    return list(problems.values())


def explain(details: ErrorDetails) -> str:
    """The rule that an error of pydantic stands for, in our words."""
    kind, message = details["type"], details["msg"]
    if kind in ("float_type", "int_parsing_size") and type(details["input"]) is int:
        return "is too large"
    if kind in _RULES:
        context = {
            key: plain(value) if isinstance(value, float) else value for key, value in details.get("ctx", {}).items()
        }
        if context.get("ge") == plain(SMALLEST):
            return f"must be a number from {context['ge']} to {plain(LARGEST)}"
        return _RULES[kind].format(**context)
    rule = message.removeprefix("Input should be ").removeprefix("Value error, ")
    return f"must be {rule}" if message.startswith("Input should be ") else rule


def _problem(schema: dict[str, Any], details: ErrorDetails, path: Steps, data: Any) -> Problem:
    kind = details["type"]
    found = "" if kind in ("missing", "extra_forbidden") else shown(details["input"])
    mend = ""
    place = _render(_as_written(data, path))
    rule = explain(details)
    if kind == "extra_forbidden":
        mend = nearest(str(path[-1]), _keys(schema, path[:-1], data))
    elif kind in ("literal_error", "union_tag_invalid"):
        context = details["ctx"]
        expected = context.get("expected") or context["expected_tags"]
        words = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
        rule = f"must be one of {', '.join(words)}" if len(words) > 1 else f"must be {words[0]}"
        if kind == "union_tag_invalid":
            tag = context["discriminator"].strip("'")
            place += f".{tag}"
            found = shown(details["input"][tag])
        mend = near(str(context.get("tag", details["input"])), words)
    elif kind == "union_tag_not_found":
        rule = f"needs a {details['ctx']['discriminator'].strip(chr(39))}"
    elif kind == "missing" and path and path[-1] == "profiles":
        rule = "needs profiles, or cpu and memory of its only profile"
    elif kind == "string_type" and details["loc"][-1] == "[key]":
        rule = _RULES["invalid_key"]
        place = _render((*_as_written(data, path[:-1]), str(details["input"])))  # of pydantic, the key True is 1
    elif kind == "profiles":
        found = ""
    return Problem(place, rule, "" if found and found in rule else found, mend)


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
        written.append(step if isinstance(data, list | tuple) else str(step))
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            data = None
    return tuple(written)


_PLAIN = re.compile(r"[\w.:/ -]{1,253}")


def _render(path: Steps) -> str:
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step if _PLAIN.fullmatch(step) else shorten(step)}"
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
        if isinstance(step, int) and "items" in schema:
            children = [schema["items"]]
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


def _without_tags(root: dict[str, Any], loc: Steps, kind: str, data: Any) -> Steps:
    """The path in the file: pydantic adds the chosen branch of a union as a step of its own."""
    path: list[int | str] = []
    schemas = _branches(root, root)
    loc = tuple(step for step in loc if step != "[key]")
    for index, step in enumerate(loc):
        below = _descend(root, schemas, step)
        last = index == len(loc) - 1
        free = not any(step in schema.get("properties", ()) for schema in schemas)
        if below and not (free and isinstance(step, str) and _at(data, step) is _NOTHING):
            path.append(step)
            schemas, data = below, _at(data, step)
        elif last and kind in ("extra_forbidden", "invalid_key"):
            path.append(step)
        else:
            chosen = [s for s in schemas if s.get("properties", {}).get("form", {}).get("const") == step]
            schemas = chosen or schemas
    return tuple(path)


_NOTHING = object()


def _at(data: Any, step: int | str) -> Any:
    """What stands at *step* of *data*; the only profile of a role that gives it directly is the role's mapping."""
    try:
        return data[step]
    except (KeyError, IndexError, TypeError):
        return [data] if step == "profiles" and isinstance(data, dict) else _NOTHING


def _keys(root: dict[str, Any], path: Steps, data: Any) -> list[str]:
    """Keys that may stand at *path* of *data*, of the chosen ``form`` only where there are several."""
    schemas = _branches(root, root)
    for step in path:
        schemas, data = _descend(root, schemas, step), _at(data, step)
        form = data.get("form") if isinstance(data, dict) else None
        chosen = [s for s in schemas if s.get("properties", {}).get("form", {}).get("const", form) == form]
        schemas = chosen or schemas
    keys = {key for schema in schemas for key in schema.get("properties", {})}
    return sorted(keys | (Profile.model_fields.keys() if "profiles" in keys else set()))
