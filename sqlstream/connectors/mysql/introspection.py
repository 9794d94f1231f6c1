"""The columns, unique indexes, engine and collations of a table on a MySQL or MariaDB server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlstream.connectors.mysql.client import run
from sqlstream.connectors.mysql.dialect import plain_type
from sqlstream.connectors.relational.dialect import DatabaseColumn, DatabaseTable

_TABLE = """
SELECT t.table_schema, t.table_name, coalesce(t.engine, t.table_type), coalesce(e.transactions, 'NO')
FROM information_schema.tables t LEFT JOIN information_schema.engines e ON e.engine = t.engine
WHERE t.table_schema = coalesce(%s, DATABASE()) AND t.table_name = %s
"""
_COLUMNS = """
SELECT column_name, column_type, is_nullable = 'NO' AND column_default IS NULL AND extra NOT LIKE '%%auto_increment%%',
  coalesce(generation_expression, '') <> '', collation_name
FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
# A part of an index is a column, the beginning of one, or (without a name) an expression.
_UNIQUE = """
SELECT index_name, CASE WHEN sub_part IS NULL THEN column_name END
FROM information_schema.statistics WHERE table_schema = %s AND table_name = %s AND non_unique = 0
ORDER BY index_name, seq_in_index
"""


@dataclass(frozen=True, slots=True)
class ServerTable:
    """A table on a server. `collations` maps its columns of texts to their collations."""

    table: DatabaseTable
    schema: str
    engine: str
    has_transactions: bool
    collations: Mapping[str, str]

    @property
    def types(self) -> dict[str, str]:
        """The types of columns, as `plain_type` returns them, by column name."""
        return {c.name: c.type for c in self.table.columns}


def split(name: str) -> tuple[str | None, str]:
    """Return the schema, None if the name has none, and the name of a table.

    >>> split("shop.orders"), split("orders")
    (('shop', 'orders'), (None, 'orders'))
    """
    schema, _, table = name.rpartition(".")
    return schema or None, table


def server_table(con: Any, name: str) -> ServerTable | None:
    """Return a table or view by its name, with or without its schema; None if it does not exist."""
    rows = run(con, _TABLE, split(name))
    if not rows:
        return None
    [(schema, table, engine, transactions)] = rows
    columns = run(con, _COLUMNS, [schema, table])
    indexes = [
        [column for _, column in parts]
        for _, parts in groupby(run(con, _UNIQUE, [schema, table]), key=lambda part: part[0])
    ]
    return ServerTable(
        DatabaseTable(
            tuple(
                DatabaseColumn(n, plain_type(kind), bool(needed), bool(generated))
                for n, kind, needed, generated, _ in columns
            ),
            tuple(frozenset(names) for names in indexes if None not in names),
        ),
        schema,
        engine,
        transactions == "YES",
        {column: collation for column, *_, collation in columns if collation is not None},
    )
