"""The base of everything that can stand in an instance file: frozen, and strict about unknown keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints


class Record(BaseModel):
    """A frozen record; unknown keys, NaN and infinities are refused.

    Mappings inside a record are to be treated as read-only.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy, with other values for the fields in *update*, which are not checked.

        What was computed from the old values (cached properties) is left behind.
        """
        copy = super().model_copy(update=update, deep=deep)
        fields = type(self).model_fields
        if update and len(copy.__dict__) > len(fields):
            for name in copy.__dict__.keys() - fields.keys():
                del copy.__dict__[name]
        return copy


# Controls, spaces other than " ", soft hyphens, marks that steer direction or have no width, tags: one by one, since
# in the patterns of JSON Schema, which get this one too, not every engine knows \p{C}, and none \U.
_UNPRINTABLE = (
    r"\s\u0000-\u001f\u007f-\u00a0\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u1680\u180e\u2000-\u200f"
    r"\u2028-\u202f\u205f-\u206f\u3000\ufeff\ufff9-\ufffb"
) + "\U000e0000-\U000e007f"
_WORD = f"[^{_UNPRINTABLE}]+"

Name = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=f"^{_WORD}( {_WORD})*$")]
"""A name: printable, without line breaks, at most 253 characters (as in Kubernetes)."""

Count = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
"""A number of tasks, or of anything else that is counted."""

Amount = Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)]
"""A whole amount of intensity or pressure capacity, in a unit of the site's choice."""

Number = Annotated[float, Field(strict=True)]
"""A number; neither text nor true."""

Flag = Annotated[bool, Field(strict=True)]
"""True or false; neither text nor 0 nor 1."""

LARGEST = 1e15
"""Largest number; a larger one is a slip, and products of several would overflow."""

SMALLEST = 1e-9
"""Smallest number where one above 0 is asked for; dividing by a smaller one would overflow."""

NonNegative = Annotated[Number, Field(ge=0, le=LARGEST)]
"""A number that is not negative."""

Positive = Annotated[Number, Field(ge=SMALLEST, le=LARGEST)]
"""A number above zero."""


def _without_rounding(seconds: float) -> float:
    return 0.0 if abs(seconds) < SMALLEST else seconds


Moment = Annotated[Number, Field(ge=-LARGEST, le=LARGEST), AfterValidator(_without_rounding)]
"""Seconds from now, negative in the past. What a subtraction leaves of equal times (1e-17) is now."""
