"""What ``coplace train`` and its relatives need beyond what ``pip install coplace`` brings."""

from __future__ import annotations

from importlib.util import find_spec

_MODULES = ("torch", "psutil", "zmq", "safetensors", "xxhash")


def need_training(transport: str = "file") -> None:
    """Look, without importing them, whether the packages are there.

    Raises:
        InputError: some are missing; says how to get them.
    """
    from coplace.instances.errors import InputError, Problem

    wanted = (*_MODULES, "ray") if transport == "ray" else _MODULES
    missing = [name for name in wanted if find_spec(name) is None]
    if missing:
        extra = "ray" if "ray" in missing else "train"
        rule = "training needs packages that are not installed"
        raise InputError([Problem("", rule, f"no {', '.join(missing)}", f"pip install 'coplace[{extra}]'")])
