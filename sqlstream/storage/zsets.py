"""Z-sets: rows with a weight, the number of times a row was added minus the number of its retractions. Changes are Z-sets."""

from __future__ import annotations

from collections.abc import Sequence

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import INTERNAL, internal
from sqlstream.duck.sql import Condition, Relation, Select, names, quote_name, subquery
from sqlstream.warehouse.declarations import MERGED, TableDeclaration

WEIGHT = internal("weight")
WEIGHT_COLUMN = Column(WEIGHT, "BIGINT")
# The version, a batch number, that made a change.
VERSION = internal("version")
VERSION_COLUMN = Column(VERSION, "BIGINT")
# The state table of the keys, for operators whose other tables do not have exactly one row per key.
KEYS = "keys"


def zset(name: str, columns: Sequence[Column]) -> TableDeclaration:
    """Return the declaration of a table that holds a Z-set of rows with some columns; compaction sums weights."""
    return TableDeclaration(name, (*columns, WEIGHT_COLUMN), merge=summed(columns, MERGED), replaces=True)


def upserts(name: str, columns: Sequence[Column], key: Sequence[str], order: Sequence[Column] = ()) -> TableDeclaration:
    """Return the declaration of a table in which the last change of each key counts, whatever came before.

    Without `order`, columns that order the changes of a batch, a batch retracts at most one row of a key and adds at most one.
    """
    stored = (*columns, *order, VERSION_COLUMN, WEIGHT_COLUMN)
    return TableDeclaration(name, stored, merge=_latest((*columns, *order), key, MERGED, order), replaces=True)


def summed(columns: Sequence[Column], rows: Relation) -> Select:
    """Return each row once, with the sum of its weights unless that is 0."""
    total = f"CAST(sum({WEIGHT}) AS BIGINT)"
    listed = names(columns)
    return Select(f"SELECT {listed}, {total} AS {WEIGHT} FROM {rows} GROUP BY {listed} HAVING sum({WEIGHT}) <> 0")


def difference(columns: Sequence[Column], new: Relation, old: Relation) -> Select:
    """Return the changes that turn the Z-set `old` into `new`."""
    return summed(columns, subquery(replacement(columns, new, old)))


def replacement(columns: Sequence[Column], new: Relation, old: Relation) -> Select:
    """Return the changes that turn the Z-set `old` into `new`, if no row is in both."""
    listed = names(columns)
    return Select(f"SELECT {listed}, {WEIGHT} FROM {new} UNION ALL SELECT {listed}, -{WEIGHT} FROM {old}")


def repeated(columns: Sequence[Column], rows: Relation) -> Select:
    """Return a Z-set's rows, whose weights must be summed, each repeated by its weight.

    Rows with a negative weight are left out.
    """
    listed = names(columns)
    several = f"SELECT {listed}, unnest(range({WEIGHT})) AS {INTERNAL}copy FROM {rows} WHERE {WEIGHT} > 1"
    return Select(f"SELECT {listed} FROM {rows} WHERE {WEIGHT} = 1 UNION ALL SELECT {listed} FROM ({several})")


def current(columns: Sequence[Column], rows: Relation) -> Select:
    """Return the rows that changes add up to."""
    sums = Relation(internal("sum"))
    return Select(f"WITH {sums} AS ({summed(columns, rows)}) {repeated(columns, sums)}")


def upserted(columns: Sequence[Column], key: Sequence[str], rows: Relation, order: Sequence[Column] = ()) -> Select:
    """Return the rows that remain after the last change of each key."""
    return Select(f"SELECT {names(columns)} FROM ({_latest(columns, key, rows, order)}) WHERE {WEIGHT} > 0")


def last_rows(key: Sequence[str], order: Sequence[Column], rows: Relation) -> Select:
    """Return the last row of each key in a batch."""
    return Select(f"SELECT * FROM {rows} QUALIFY {_last(key, [c.name for c in order])}")


def last_of_versions(key: Sequence[str], order: Sequence[Column]) -> str:
    """Return the QUALIFY clause that keeps the last row of each key in each version: an added one, if there is one."""
    return f"QUALIFY {_last([*key, VERSION], [*(c.name for c in order), WEIGHT])}"


def _latest(columns: Sequence[Column], key: Sequence[str], rows: Relation, order: Sequence[Column]) -> Select:
    last = _last(key, [VERSION, *(c.name for c in order), WEIGHT])
    return Select(f"SELECT {names(columns)}, {VERSION}, {WEIGHT} FROM {rows} QUALIFY {last}")


def _last(key: Sequence[str], order: Sequence[str]) -> Condition:
    by = ", ".join(f"{name} DESC" for name in order)
    return Condition(f"row_number() OVER (PARTITION BY {', '.join(map(quote_name, key))} ORDER BY {by}) = 1")
