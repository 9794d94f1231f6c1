"""Avro schemas of rows that are written: made of the columns of a table."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from sqlstream.catalog import Column
from sqlstream.connectors.formats.avro.schemas import Avro, AvroSchema
from sqlstream.duck import databases
from sqlstream.errors import BindError

# Of types of DuckDB, by their ids.
_WRITTEN: Mapping[str, Avro] = {
    "boolean": "boolean",
    **dict.fromkeys(("tinyint", "smallint", "integer", "utinyint", "usmallint"), "int"),
    **dict.fromkeys(("bigint", "uinteger"), "long"),
    "float": "float",
    "double": "double",
    **dict.fromkeys(("varchar", "uuid", "json"), "string"),
    "blob": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "time-micros"},
    "timestamp": {"type": "long", "logicalType": "local-timestamp-micros"},
    "timestamp with time zone": {"type": "long", "logicalType": "timestamp-micros"},
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def record_name(text: str) -> str:
    """Return a text as a name that Avro has.

    >>> record_name("1st-é")
    '_1st__'
    """
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return f"_{name}" if name[:1].isdigit() or not name else name


@lru_cache(maxsize=256)
def schema_of_columns(columns: tuple[Column, ...], name: str) -> AvroSchema:
    """Return the schema of rows: every field may be null. Raises BindError for what Avro has no type or no name for."""
    # Types of one schema have different names.
    taken = {name}
    with databases.passing() as con:
        fields = [_field(c.name, con.sqltype(c.type), c, c.name, taken) for c in columns]
    return AvroSchema(json.dumps({"type": "record", "name": name, "fields": fields}), f'the schema of "{name}"')


def _field(name: str, type: Any, column: Column, path: str, taken: set[str]) -> Avro:
    if not _NAME.fullmatch(name):
        hint = "Avro's names have letters from a to z, digits and underscores: give it another name."
        raise BindError(f'column "{column.name}": Avro has no field called "{name}"', hint=hint)
    return {"name": name, "type": ["null", _written(type, column, path, taken)], "default": None}


def _written(type: Any, column: Column, path: str, taken: set[str]) -> Avro:
    match type.id:
        case "decimal":
            (_, width), (_, scale) = type.children
            return {"type": "bytes", "logicalType": "decimal", "precision": width, "scale": scale}
        case "list" | "array":
            return {"type": "array", "items": ["null", _written(type.children[0][1], column, path, taken)]}
        case "map" if type.children[0][1].id == "varchar":
            return {"type": "map", "values": ["null", _written(type.children[1][1], column, path, taken)]}
        case "struct":
            name = f"{path}_record"
            while name in taken:
                name += "_"
            taken.add(name)
            inner = [_field(n, t, column, f"{path}_{n}", taken) for n, t in type.children]
            return {"type": "record", "name": name, "fields": inner}
    if type.id not in _WRITTEN:
        hint = "Write it as STRING: CAST it in the query."
        raise BindError(f'column "{column.name}": Avro has no type for {column.type}', hint=hint)
    return _WRITTEN[type.id]
