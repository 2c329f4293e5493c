"""Where each tensor of a model stands in the flat vector, and how servers share that vector."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, zip_longest
from typing import Any

from coplace.instances.errors import InputError, Problem, shorten

EVEN = 16
"""Floats to which the borders of shards are even: 64 bytes, a line of the cache."""


@dataclass(frozen=True)
class Layout:
    """The flat vector of a model: the trained parameters, one after the other, and behind them the buffers.

    Attributes:
        parameters: floats that the optimiser trains; they come first.
        buffers: floats behind them that are carried along: buffers of the module and parameters that are not trained.
        names: name of each tensor, in the order of the vector.
        shapes: shape of each tensor; () is a single number.

    Raises:
        ValueError: names, shapes and sizes do not fit each other.
    """

    parameters: int
    buffers: int
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.shapes):
            raise ValueError(f"a layout of {len(self.names)} names has {len(self.shapes)} shapes")
        if self.parameters not in self.starts or self.starts[-1] != self.total:
            raise ValueError(
                f"the tensors of a layout hold {self.starts[-1]} floats, "
                f"which do not part into {self.parameters} parameters and {self.buffers} buffers"
            )

    @property
    def total(self) -> int:
        """Floats of the whole vector."""
        return self.parameters + self.buffers

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Position of each tensor's first float, and at the end where the last one stops."""
        starts = [0]
        for shape in self.shapes:
            starts.append(starts[-1] + math.prod(shape))
        return tuple(starts)

    @cached_property
    def digest(self) -> str:
        """Hash of all of the layout: equal for equal models."""
        return _digest(self._content())

    def to_document(self) -> dict[str, Any]:
        """The layout in what JSON can hold, with its digest."""
        return {**self._content(), "digest": self.digest}

    @classmethod
    def from_document(cls, document: Mapping[str, Any], source: str = "") -> Layout:
        """The layout that :meth:`to_document` gave.

        Raises:
            InputError: *document* is no layout, or was changed since; *source* says whose it is.
        """
        try:
            layout = cls(
                int(document["parameters"]),
                int(document["buffers"]),
                tuple(str(name) for name in document["names"]),
                tuple(tuple(int(side) for side in shape) for shape in document["shapes"]),
            )
            digest = document["digest"]
        except (KeyError, TypeError, ValueError) as error:
            text = f"lacks {error}" if isinstance(error, KeyError) else str(error)
            raise InputError([Problem("layout", "must be the layout of a model", text)], source) from None
        if layout.digest != digest:
            raise InputError([Problem("layout", "must match its digest", shorten(digest))], source)
        return layout

    def require_same(self, other: Layout, source: str = "") -> None:
        """Refuse *other*, the layout of the model that *source* has, unless it equals this one.

        Raises:
            InputError: names the first tensor that differs.
        """
        if self.digest == other.digest:
            return
        mend = "run the same program and version everywhere, and resume with the model that wrote the checkpoint"
        for mine, theirs in zip_longest(self._tensors(), other._tensors()):
            if mine != theirs:
                place = f"model.{(theirs or mine or ('',))[0]}"
                rule = f"must be the job's model, which has {_described(mine)} here"
                raise InputError([Problem(place, rule, _described(theirs), mend)], source)

    def _content(self) -> dict[str, Any]:
        return {
            "parameters": self.parameters,
            "buffers": self.buffers,
            "names": list(self.names),
            "shapes": [list(shape) for shape in self.shapes],
        }

    def _tensors(self) -> list[tuple[str, tuple[int, ...], bool]]:
        trained = [start < self.parameters for start in self.starts]
        return list(zip(self.names, self.shapes, trained, strict=False))


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _described(tensor: tuple[str, tuple[int, ...], bool] | None) -> str:
    if tensor is None:
        return "no more tensors"
    name, shape, trained = tensor
    return f"{name} of shape {list(shape)}{'' if trained else ', not trained'}"


def shards(total: int, servers: int) -> list[tuple[int, int]]:
    """Start and stop of each server's share of *total* floats, all of about the same size.

    Borders are even to :data:`EVEN` floats, wherever tensors begin, so that a large tensor is spread over servers. Of
    a small vector the shares of some servers are empty.

    Raises:
        ValueError: there is no server, or a negative total.
    """
    if servers < 1 or total < 0:
        raise ValueError(f"{total} floats cannot be shared by {servers} servers")
    blocks = -(-total // EVEN)
    borders = [min(total, blocks * server // servers * EVEN) for server in range(servers + 1)]
    return list(pairwise(borders))
