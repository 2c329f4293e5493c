"""The JSON Schema of the file format, for editors and other programs."""

from __future__ import annotations

from typing import Any

from coplace.instances.instance import VERSION, Instance
from coplace.instances.job import RoleSpec


def instance_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of an instance file."""
    schema = Instance.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = f"Instance ({VERSION})"
    schema["required"] = ["version", *(key for key in schema["required"] if key != "version")]
    for name in ("WorkerSpec", "PsSpec"):
        _allow_single_profile(schema["$defs"][name], schema["$defs"]["Profile"])
    return schema


def _allow_single_profile(role: dict[str, Any], profile: dict[str, Any]) -> None:
    """A role may write the keys of its only profile directly (see :class:`RoleSpec`)."""
    assert "profiles" in RoleSpec.model_fields
    role["properties"] |= {key: profile["properties"][key] for key in ("cpu", "memory", "slowdown")}
    role["required"] = [key for key in role.get("required", ()) if key != "profiles"]
    role["oneOf"] = [
        {"required": ["profiles"], "properties": {"cpu": False, "memory": False, "slowdown": False}},
        {"required": ["cpu"], "properties": {"profiles": False}},
    ]
