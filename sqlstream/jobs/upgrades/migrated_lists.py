"""Checks migrated lists: the row of a key has the position of its next item, which must be after all its items."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import duckdb

from sqlstream.duck.sql import Select, quote_name
from sqlstream.errors import BindError, Span
from sqlstream.jobs.upgrades.state_columns import ShownTable
from sqlstream.operators.process.tables import KEYS, POSITION

# How the table of a list begins, and the column of a key's row that says where the next item goes; a number follows.
_LIST, _NEXT = "list_", "n"


def check_lists(
    tables: Mapping[str, ShownTable],
    selects: Mapping[str, Select],
    span_of: Callable[[str], Span],
    stored_keys: Callable[[], duckdb.DuckDBPyRelation],
) -> None:
    """Raise BindError if a migrated list has items of a key without a row, or items that are not before the key's next one.

    `selects` has the migrated tables by name, `span_of` returns the position of a table's statement. `stored_keys` returns the
    rows of the keys under the names that people see; it is called if the table of keys is not migrated.
    """
    if KEYS not in tables:
        return
    keys = tables[KEYS]
    own = [c for c in keys.columns if c.holds == "key"]
    for name, table in tables.items():
        column = next((c for c in keys.columns if c.stored == f"{_NEXT}{name.removeprefix(_LIST)}"), None)
        if not name.startswith(_LIST) or column is None or name not in selects:
            continue
        joined = " AND ".join(f"i.{quote_name(c.stored)} IS NOT DISTINCT FROM k.{quote_name(c.stored)}" for c in own)
        with duckdb.connect() as con:
            if KEYS in selects:
                con.execute(f"CREATE TEMP VIEW _keys AS {selects[KEYS]}")
            else:
                shown = ", ".join(f"{quote_name(c.name)} AS {quote_name(c.stored)}" for c in (*own, column))
                con.register("_given", stored_keys().to_arrow_table())
                con.execute(f"CREATE TEMP VIEW _keys AS SELECT {shown} FROM _given")
            [(count,)] = con.execute(
                f"SELECT count(*) FROM ({selects[name]}) i LEFT JOIN _keys k ON {joined or 'true'} "
                f"WHERE coalesce(i.{POSITION} >= k.{quote_name(column.stored)}, true)"
            ).fetchall()
        if count:
            [position] = [c.name for c in table.columns if c.stored == POSITION]
            raise BindError(
                f'{count} of the items are not before the next one of their key, by table "{KEYS}"',
                span_of(name),
                detail=f'Column "{column.name}" of "{KEYS}" says where the next item goes, "{position}" where an item is.',
                hint=f'Make "{KEYS}", too, with a larger "{column.name}" for these keys, or give the items other places.',
            )
