"""The base tables of the catalog, with the relations that clients can read and their types; `catalog.sql` has views over them."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import pyarrow as pa

from sqlstream.server.listed_tables import ListedTable
from sqlstream.server.postgres.types import OTHER_TYPES, RESULT_TYPES, column_type

# Numbers (oids) of PostgreSQL itself; catalog.sql has them, too.
_SCHEMAS = {"pg_catalog": 11, "information_schema": 13000, "main": 2200}
_CLASSES = {"pg_type": 1247, "pg_proc": 1255, "pg_class": 1259, "pg_namespace": 2615, "pg_constraint": 2606}
_FIRST = 16384
_SQL = Path(__file__).with_name("catalog.sql")


@cache
def definitions() -> str:
    """Return the statements that create the catalog over `_relations`, `_columns` and so on, in the current schema."""
    return _SQL.read_text(encoding="utf-8")


@cache
def relation_names() -> frozenset[str]:
    """Return the names of the catalog's relations that clients can read."""
    return frozenset(re.findall(r'^CREATE (?:TABLE|VIEW) "?([a-z_.]+)', definitions(), re.MULTILINE))


@cache
def function_names() -> frozenset[str]:
    """Return the names of the catalog's functions that clients can call."""
    return frozenset(re.findall(r"^CREATE MACRO ([a-z]\w+)", definitions(), re.MULTILINE))


def rows(tables: Sequence[ListedTable]) -> dict[str, pa.Table]:
    """Return the base tables of the catalog by name: `_schemas`, `_relations`, `_columns`, `_classes` and `_types`."""
    listed = sorted({t.schema for t in tables} | {"main"})
    schemas = {**_SCHEMAS, **_numbered(s for s in listed if s not in _SCHEMAS)}
    numbers = _numbered(f"{t.schema}\0{t.name}" for t in tables)
    relations, columns = [], []
    for table in tables:
        oid = numbers[f"{table.schema}\0{table.name}"]
        kind = "v" if table.is_view else "r"
        relations.append((oid, schemas[table.schema], table.schema, table.name, kind, len(table.columns)))
        for number, (name, type) in enumerate(table.columns, 1):
            of = column_type(type)
            columns.append((oid, number, name, of.oid, of.size, of.modifier, of.is_array))
    return {
        "_schemas": _table("schema_oid schema", [(oid, name) for name, oid in schemas.items()]),
        "_relations": _table("oid schema_oid schema name kind width", relations),
        "_columns": _table("table_oid number name type_oid size modifier is_array", columns),
        "_classes": _table("oid name", [(oid, name) for name, oid in _CLASSES.items()]),
        "_types": _types(),
    }


_NUMBERS = {"oid", "schema_oid", "table_oid", "type_oid", "number", "size", "modifier", "width", "element", "array_oid"}


def _table(names: str, rows: Sequence[tuple[object, ...]]) -> pa.Table:
    columns = {}
    for i, name in enumerate(names.split()):
        type = pa.int64() if name in _NUMBERS else pa.bool_() if name == "is_array" else pa.string()
        columns[name] = pa.array([row[i] for row in rows], type)
    return pa.table(columns)


def _types() -> pa.Table:
    every = (*RESULT_TYPES, *OTHER_TYPES)
    records = [(t.oid, t.name, t.title, t.size, t.category, 0, t.array) for t in every]
    records += [(t.array, f"_{t.name}", f"{t.title}[]", -1, "A", t.oid, 0) for t in every if t.array]
    return _table("oid name title size category element array_oid", records)


def _numbered(names: Iterable[str]) -> dict[str, int]:
    """Return a number (oid) for each name: always the same, unless the hashes of two names collide.

    >>> _numbered(["a", "b"])["b"] == _numbered(["b"])["b"]
    True
    """
    numbers: dict[str, int] = {}
    used_numbers: set[int] = set()
    for name in sorted(names):
        number = _FIRST + zlib.crc32(name.encode()) % 2_000_000_000
        while number in used_numbers:
            number += 1
        used_numbers.add(number)
        numbers[name] = number
    return numbers
