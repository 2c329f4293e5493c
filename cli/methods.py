"""``coplace methods``: what ``solve --method`` may be."""

from __future__ import annotations


def methods() -> None:
    """List the methods of `coplace solve`."""
    from coplace.cli.output import emit
    from coplace.solver import METHODS

    width = max(map(len, METHODS))
    emit("".join(f"{name:{width}}  {method.summary}\n" for name, method in METHODS.items()))
