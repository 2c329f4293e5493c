"""The base of everything that can stand in an instance file: frozen, and strict about unknown keys."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints


class Record(BaseModel):
    """A frozen record; unknown keys, NaN and infinities are refused.

    Mappings inside a record are to be treated as read-only.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


Name = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[^\s\x00-\x1f]+( [^\s\x00-\x1f]+)*$")]
"""A name: printable, without line breaks, at most 253 characters (as in Kubernetes)."""

Count = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
"""A number of tasks, or of anything else that is counted."""

Amount = Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)]
"""A whole amount of intensity or pressure capacity, in a unit of the site's choice."""

Number = Annotated[float, Field(strict=True)]
"""A number; neither text nor true."""

Flag = Annotated[bool, Field(strict=True)]
"""True or false; neither text nor 0 nor 1."""

NonNegative = Annotated[Number, Field(ge=0, le=1e18)]
"""A number that is not negative."""

Positive = Annotated[Number, Field(gt=0, le=1e18)]
"""A number above zero."""
