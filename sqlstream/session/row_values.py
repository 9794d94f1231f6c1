"""The rows of a relation as Python values, and these as JSON has them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import duckdb

# Rows that are in memory at a time.
ROWS = 10_000


def values_of(relation: duckdb.DuckDBPyRelation) -> Iterator[Sequence[Any]]:
    """Yield rows as Python values, as they are computed."""
    for batch in relation.to_arrow_reader(ROWS):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def finite(value: Any) -> Any:
    """Return a value for JSON, which has no NaN and no infinity: they are text, also inside of lists and structs.

    >>> finite([1.5, {"a": float("nan")}])
    [1.5, {'a': 'nan'}]
    """
    match value:
        case float() if value != value or value in (float("inf"), float("-inf")):
            return str(value)
        case list() | tuple():
            return list(map(finite, value))
        case dict():
            return {name: finite(one) for name, one in value.items()}
    return value


def plain_value(value: Any) -> Any:
    """Return what JSON has for a value of another type: the `default` of `json.dumps`."""
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case timedelta() | UUID():
            return str(value)
        case bytes():
            return value.hex()
        case _:
            return str(value)


def json_row(row: Sequence[Any]) -> list[Any]:
    """Return the values of a row as JSON has them.

    >>> json_row([1, Decimal("1.5"), date(2026, 3, 1), float("nan")])
    [1, 1.5, '2026-03-01', 'nan']
    """
    found: list[Any] = json.loads(json.dumps(list(map(finite, row)), default=plain_value))
    return found
