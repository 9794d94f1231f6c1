"""The columns and unique indexes of a table on a PostgreSQL server."""

from __future__ import annotations

from typing import Any

from sqlstream.connectors.relational.dialect import DatabaseColumn, DatabaseTable, qualified

# A domain counts as its base type.
_COLUMNS = """
SELECT a.attname, CASE WHEN t.typtype = 'e' THEN 'enum'
    ELSE format_type(t.oid, CASE WHEN b.typtype = 'd' THEN b.typtypmod ELSE a.atttypmod END) END,
  a.attnotnull AND NOT a.atthasdef AND a.attidentity = '', a.attgenerated <> '' OR a.attidentity = 'a'
FROM pg_attribute a JOIN pg_type b ON b.oid = a.atttypid
  JOIN pg_type t ON t.oid = CASE WHEN b.typtype = 'd' THEN b.typbasetype ELSE b.oid END
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_UNIQUE = """
SELECT array_agg(a.attname::text)
FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND
    a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""


def oid_of(con: Any, name: str) -> int | None:
    """Return the OID of a table or view, None if it does not exist."""
    [oid] = con.execute("SELECT to_regclass(%s)::oid::bigint", [qualified(name)]).fetchone()
    return None if oid is None else int(oid)


def server_table(con: Any, name: str) -> DatabaseTable | None:
    """Return the columns and unique indexes of a table or view, None if it does not exist."""
    if (oid := oid_of(con, name)) is None:
        return None
    columns = tuple(DatabaseColumn(*row) for row in con.execute(_COLUMNS, [oid]).fetchall())
    unique = tuple(frozenset(names) for (names,) in con.execute(_UNIQUE, [oid]).fetchall())
    return DatabaseTable(columns, unique)
