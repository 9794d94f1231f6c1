"""Calls of the table functions `sqlstream.*` about the state of an operator, as SQL."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from sqlstream.duck.sql import quote_name, quote_text
from sqlstream.errors import QueryError, UsageError
from sqlstream.queries.versions import Version
from sqlstream.queries.why import name_of_key
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.savepoint_records import is_savepoint

T = TypeVar("T")
# The key of a state: values by column, values in the order of the columns, or the value of the only column.
Key: TypeAlias = Mapping[str, object] | Sequence[object] | str | int | float | bool | None


def diff_sql(state: str, older: Version, newer: Version) -> str:
    """Return the query for the rows of a state that differ between two versions.

    >>> print(diff_sql("departures.by_hour", 10, "2026-03-01 10:05:00"))
    FROM sqlstream.diff('departures.by_hour', 10, '2026-03-01 10:05:00')
    """
    return f"FROM sqlstream.diff({quote_text(state)}, {_version(older)}, {_version(newer)})"


def folders_in(*versions: Version) -> dict[str, Warehouse]:
    """Return the savepoints that are named by a folder among some versions, by these names; other versions are ignored.

    Raises UsageError for a folder without a savepoint.
    """
    named = [one for one in versions if isinstance(one, str) and ("/" in one or os.sep in one)]
    folders = {one: Warehouse(one) for one in named}
    for name, folder in folders.items():
        if not is_savepoint(folder):
            hint = "A savepoint has a file savepoint.json in its folder."
            raise UsageError(f'there is no savepoint in "{name}"', hint=hint)
    return folders


def why_sql(state: str, key: Key, version: Version | None = None) -> str:
    """Return the query that explains one key of a state. `key` has values by column, or values in the order of the columns.

    >>> print(why_sql("departures.by_hour", {"origin": "EWR", "gate": None}))
    FROM sqlstream.why('departures.by_hour', "origin" := 'EWR', "gate" := NULL)
    """
    arguments = [quote_text(state), *([] if version is None else [_version(version)])]
    if not isinstance(key, Mapping):
        values = key if isinstance(key, list | tuple) else [key]
        key = {name_of_key(number): value for number, value in enumerate(values)}
    arguments += [f"{quote_name(name)} := {'NULL' if v is None else quote_text(str(v))}" for name, v in key.items()]
    return f"FROM sqlstream.why({', '.join(arguments)})"


def _version(version: Version) -> str:
    return str(version) if isinstance(version, int) else quote_text(str(version))


def run_own_sql(query: Callable[[str], T], sql: str) -> T:
    """Run SQL that no user wrote: errors lose their position, which would say nothing to the user."""
    try:
        return query(sql)
    except QueryError as error:
        raise QueryError(error.message, detail=error.detail, hint=error.hint) from error


def ttl_listing(state: str, ttls: Sequence[str]) -> str:
    """Return the query that shows people how many keys, rows and bytes of a state would remain with times to live."""
    listed = ", ".join(map(quote_text, (state, *ttls)))
    columns = (
        "concat(operator, ' (' || state || ')') AS operator, ttl, concat(keys, ' of ', keys_now) AS keys, "
        "concat(rows, ' of ', rows_now) AS rows, format_bytes(bytes) AS bytes, returned_keys, exact"
    )
    return f"SELECT {columns} FROM sqlstream.ttl({listed})"
