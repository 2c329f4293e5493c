"""Writing instance files."""

from __future__ import annotations

import hashlib
import json
import os
from typing import IO, Any

from coplace.instances.files import write_atomically
from coplace.instances.instance import Instance
from coplace.instances.reading import read_exponents


def to_document(instance: Instance) -> dict[str, Any]:
    """*instance* as nested lists and mappings, defaults left out; what :func:`parse_instance` reads back."""
    return {"version": instance.version} | instance.model_dump(mode="json", exclude_defaults=True)


def write_instance(instance: Instance, path: str | os.PathLike[str]) -> None:
    """Write *instance* as JSON (``.json``) or YAML; an existing file is replaced whole or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    document = to_document(instance)

    def write(file: IO[str]) -> None:
        if os.fspath(path).endswith(".json"):
            json.dump(document, file, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
            file.write("\n")
        else:
            import yaml

            class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
                """Writes what our loader reads."""

            read_exponents(Dumper)
            yaml.dump(document, file, Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)

    write_atomically(path, write)


def instance_sha256(instance: Instance) -> str:
    """SHA-256 of the instance in a canonical form: the same for a YAML file and the JSON file that says the same."""
    canonical = json.dumps(instance.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
