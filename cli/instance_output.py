"""Where commands that make an instance put it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coplace.cli import output as out

if TYPE_CHECKING:
    from coplace.instances import Instance

SUFFIXES = (".json", ".yaml", ".yml")


def check_instance_target(path: Path | None, *inputs: Path | None) -> None:
    """Refuse what :func:`~coplace.cli.output.check_target` refuses, and a name that does not say the format.

    Raises:
        InputError: *path* is no file for an instance.
    """
    from coplace.instances.errors import InputError, Problem

    out.check_target(path, *inputs)
    if path is not None and path.suffix not in SUFFIXES and not (path.exists() and not path.is_file()):
        rule = "the name of an instance file ends in .json, .yaml or .yml"
        raise InputError([Problem("--output", rule, repr(path.name))])


def put_instance(instance: Instance, path: Path | None) -> None:
    """Write *instance* to the file *path*, or as JSON to standard output; raises :class:`InputError`."""
    from coplace.instances.errors import InputError, Problem
    from coplace.instances.writing import to_document, write_instance

    if path is None:
        out.emit_json(to_document(instance), compact=True)
        return
    try:
        write_instance(instance, path)
    except OSError as error:
        raise InputError([Problem("", f"cannot be written: {error.strerror or error}")], str(path)) from None
