"""``coplace schema``: the file format for editors and other programs."""

from __future__ import annotations


def schema() -> None:
    """Print the JSON Schema of instance files."""
    from coplace.cli.output import emit_json
    from coplace.instances import instance_schema

    emit_json(instance_schema())
