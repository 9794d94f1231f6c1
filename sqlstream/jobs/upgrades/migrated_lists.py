"""Lists that migrations make: the row of a key says where its next item goes, which must be behind all that it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import duckdb

from sqlstream.duck.sql import quote_name
from sqlstream.errors import BindError, Span
from sqlstream.jobs.upgrades.state_columns import ShownTable
from sqlstream.operators.process.tables import KEYS, POSITION

# How the table of a list begins, and the column of a key's row that says where the next item goes; a number follows.
_LIST, _NEXT = "list_", "n"


def check_lists(
    tables: Mapping[str, ShownTable],
    made: Mapping[str, str],
    place: Callable[[str], Span],
    stored_keys: Callable[[], duckdb.DuckDBPyRelation],
) -> None:
    """Raise BindError where a list that is made has items of a key that has no row, or that are not before its next one.

    `made` has the SELECTs of tables that are made, `place` where the statement of one stands. `stored_keys` returns the rows of
    the keys as people see them, for when these stay.
    """
    if KEYS not in tables:
        return
    keys = tables[KEYS]
    own = [c for c in keys.columns if c.holds == "key"]
    for name, table in tables.items():
        column = next((c for c in keys.columns if c.stored == f"{_NEXT}{name.removeprefix(_LIST)}"), None)
        if not name.startswith(_LIST) or column is None or name not in made:
            continue
        joined = " AND ".join(f"i.{quote_name(c.stored)} IS NOT DISTINCT FROM k.{quote_name(c.stored)}" for c in own)
        with duckdb.connect() as con:
            if KEYS in made:
                con.execute(f"CREATE TEMP VIEW _keys AS {made[KEYS]}")
            else:
                shown = ", ".join(f"{quote_name(c.name)} AS {quote_name(c.stored)}" for c in (*own, column))
                con.register("_given", stored_keys().to_arrow_table())
                con.execute(f"CREATE TEMP VIEW _keys AS SELECT {shown} FROM _given")
            [(count,)] = con.execute(
                f"SELECT count(*) FROM ({made[name]}) i LEFT JOIN _keys k ON {joined or 'true'} "
                f"WHERE coalesce(i.{POSITION} >= k.{quote_name(column.stored)}, true)"
            ).fetchall()
        if count:
            [position] = [c.name for c in table.columns if c.stored == POSITION]
            raise BindError(
                f'{count} of the items are not before the next one of their key, by table "{KEYS}"',
                place(name),
                detail=f'Column "{column.name}" of "{KEYS}" says where the next item goes, "{position}" where an item is.',
                hint=f'Make "{KEYS}", too, with a larger "{column.name}" for these keys, or give the items other places.',
            )
