"""The rows of a relation as Python values, and such values in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import duckdb

from sqlstream.duck.time_texts import python_values

# Rows that are in memory at a time.
ROWS = 10_000


def values_of(relation: duckdb.DuckDBPyRelation) -> Iterator[Sequence[Any]]:
    """Yield the rows of a relation as Python values, while they are computed; times that Python lacks are texts."""
    for batch in relation.to_arrow_reader(ROWS):
        yield from zip(*map(python_values, batch.columns), strict=True)


def finite(value: Any) -> Any:
    """Return a value for JSON: NaN and infinities, also in lists and structs, become texts.

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
    """Return a value of a type that JSON lacks as a number or a text; for the argument `default` of `json.dumps`."""
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
    """Return the values of a row as JSON values.

    >>> json_row([1, Decimal("1.5"), date(2026, 3, 1), float("nan")])
    [1, 1.5, '2026-03-01', 'nan']
    """
    values: list[Any] = json.loads(json.dumps(list(map(finite, row)), default=plain_value))
    return values
