"""Prices as they stand in a result file: rows by kind and key."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from coplace.formulations.relaxation.rows import PricedRow, Row
from coplace.instances.base import Count, Name, Number, Record

Price = Annotated[Number, Field(ge=0)]
Size = Annotated[int, Field(strict=True, ge=1)]


class _PoolKey(Record):
    resource: Literal["gpu", "cpu", "memory", "intensity"]
    type: Name | None
    level: Count
    size: Size


class _Pool(Record):
    row: Literal["pool"]
    key: _PoolKey
    price: Price

    def priced(self) -> PricedRow:
        key = self.key
        return PricedRow(Row("pool", key.resource, key.type, key.level, key.size), self.price)


class _QuotaKey(Record):
    tenant: Name
    resource: Literal["gpu", "cpu", "memory"]


class _Quota(Record):
    row: Literal["quota"]
    key: _QuotaKey
    price: Price

    def priced(self) -> PricedRow:
        return PricedRow(Row("quota", self.key.resource, tenant=self.key.tenant), self.price)


class _NoKey(Record):
    pass


class _Moves(Record):
    row: Literal["moves"]
    key: _NoKey
    price: Price

    def priced(self) -> PricedRow:
        return PricedRow(Row("moves"), self.price)


PriceRecord = Annotated[_Pool | _Quota | _Moves, Field(discriminator="row")]
"""An entry of ``prices``; its ``priced()`` is the row with its price."""
