"""Kubernetes quantities as integers: CPU in milli-cores, memory in MiB.

A *string* is a Kubernetes quantity everywhere (``"500m"``, ``"16Gi"``). A bare *number* is a quantity in a file
(``cpu: 4`` is four cores, ``memory: 1073741824`` is bytes, as in Kubernetes), and the stored unit in Python
(``Profile(cpu=4000)``), so that what is read from an attribute can be passed on unchanged.

Demand is rounded up and capacity down, once, here. Reference: Kubernetes documentation, "Quantity".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from coplace.instances.errors import shorten

FILE_CONTEXT = {"numbers_are_quantities": True}
"""Validation context under which bare numbers are Kubernetes quantities (reading a file)."""

_SUFFIX = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40), "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}  # fmt: skip
_QUANTITY = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d{1,3})|(n|u|m|k|[MGTPE]i?|Ki)?)", re.ASCII)
_MAX_CPU = 10**7  # milli-cores: ten thousand cores in one task or node is a slip of the unit
_MAX_MEMORY = 2**30  # MiB: a pebibyte


def parse_quantity(text: str) -> Fraction:
    """The value of a Kubernetes quantity in its base unit (cores, bytes, pieces).

    Raises:
        ValueError: *text* is no quantity.
    """
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{shorten(text)} is not a Kubernetes quantity such as 500m, 4 or 16Gi")
    number, exponent, suffix = match.groups()
    return Fraction(number + (exponent or "")) * _SUFFIX[suffix or ""]


def _milli_cores(cores: Fraction, rounding: Callable[[Fraction], int], most: int) -> int:
    milli = rounding(cores * 1000)
    if milli > most:
        raise ValueError(f"more than {most // 1000} cores: CPU is counted in cores; write 500m for half a core")
    return milli


def _mebibytes(size: Fraction, rounding: Callable[[Fraction], int], most: int) -> int:
    if 0 < size < 2**20:
        raise ValueError("less than 1 MiB: memory without a suffix is in bytes; write 16Gi for 16 GiB")
    mebibytes = rounding(size / 2**20)
    if mebibytes > most:
        raise ValueError(f"more than {most // 2**30} PiB of memory")
    return mebibytes


@lru_cache(maxsize=4096)
def _parsed(text: str, unit: Callable[[Fraction, Callable[[Fraction], int], int], int], up: bool, most: int) -> int:
    value = parse_quantity(text)
    if value < 0:
        raise ValueError("must not be negative")
    return unit(value, math.ceil if up else math.floor, most)


def parse_cpu(text: str, *, up: bool = True, most: int = _MAX_CPU) -> int:
    """Milli-cores of a CPU quantity, rounded up (demand) or down (capacity); raises ``ValueError``."""
    return _parsed(text, _milli_cores, up, most)


def parse_memory(text: str, *, up: bool = True, most: int = _MAX_MEMORY) -> int:
    """MiB of a memory quantity, rounded up (demand) or down (capacity); raises ``ValueError``."""
    return _parsed(text, _mebibytes, up, most)


def format_cpu(milli: int) -> str:
    """A CPU quantity that reads back as *milli* milli-cores."""
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def format_memory(mebibytes: int) -> str:
    """A memory quantity that reads back as *mebibytes* MiB."""
    return f"{mebibytes}Mi" if mebibytes % 1024 else f"{mebibytes // 1024}Gi"


def _reader(parse: Callable[..., int], up: bool, most: int) -> Callable[[Any, ValidationInfo], Any]:
    def read(value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool):
            if isinstance(value, float) and not math.isfinite(value):
                raise PydanticCustomError("quantity", "must be a finite number")
            if info.context is None and isinstance(value, int):
                if value < 0:
                    raise PydanticCustomError("quantity", "must not be negative")
                if value > most:
                    raise PydanticCustomError("quantity", "is too large")
                return value
            if isinstance(value, float) and info.context is None:
                raise PydanticCustomError("quantity", "must be a whole number of the stored unit, or a quantity string")
            if abs(value) > 1e30:  # also: more digits than Python is willing to print
                raise PydanticCustomError("quantity", "is too large")
            value = str(value)
        if not isinstance(value, str):
            raise PydanticCustomError("quantity", "must be a Kubernetes quantity such as 500m, 4 or 16Gi")
        try:
            return parse(value, up=up, most=most)
        except ValueError as error:
            raise PydanticCustomError("quantity", "{reason}", {"reason": str(error)}) from None

    return read


_QUANTITY_SCHEMA = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": r"^\+?[0-9.]+([eE][+-]?[0-9]+|[a-zA-Z]*)$"},
    ]
}


def _whole_gpus(value: Any) -> Any:
    if isinstance(value, float) and not value.is_integer() and math.isfinite(value):
        raise PydanticCustomError(
            "gpu_fraction", "GPUs are counted whole for now: shared GPUs (fractions) are not supported yet"
        )
    if isinstance(value, str):
        raise PydanticCustomError("int_type", "must be a whole number of GPUs")
    return value


def _gpus(most: int) -> Any:
    return Annotated[
        int,
        BeforeValidator(_whole_gpus),
        Field(strict=True, ge=0, le=most),
        WithJsonSchema({"type": "integer", "minimum": 0, "maximum": most}),
    ]


def _quantity(parse: Callable[..., int], write: Callable[[int], str], up: bool, most: int) -> Any:
    return Annotated[
        int,
        BeforeValidator(_reader(parse, up, most)),
        PlainSerializer(write, when_used="json"),
        WithJsonSchema(_QUANTITY_SCHEMA),
    ]


if TYPE_CHECKING:
    Gpus: TypeAlias = int
    CpuDemand: TypeAlias = int
    CpuCapacity: TypeAlias = int
    MemoryDemand: TypeAlias = int
    MemoryCapacity: TypeAlias = int
    TotalGpus: TypeAlias = int
    TotalCpu: TypeAlias = int
    TotalMemory: TypeAlias = int
else:
    # Of one task or node: GPUs, milli-cores and MiB; demand is rounded up, capacity down.
    Gpus = _gpus(10_000)
    CpuDemand = _quantity(parse_cpu, format_cpu, up=True, most=_MAX_CPU)
    CpuCapacity = _quantity(parse_cpu, format_cpu, up=False, most=_MAX_CPU)
    MemoryDemand = _quantity(parse_memory, format_memory, up=True, most=_MAX_MEMORY)
    MemoryCapacity = _quantity(parse_memory, format_memory, up=False, most=_MAX_MEMORY)
    # Of many tasks together.
    TotalGpus = _gpus(10**9)
    TotalCpu = _quantity(parse_cpu, format_cpu, up=False, most=10**6 * _MAX_CPU)
    TotalMemory = _quantity(parse_memory, format_memory, up=False, most=10**6 * _MAX_MEMORY)
