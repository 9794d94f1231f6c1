"""Makes an Avro schema from the columns of a table, for the rows that a job writes."""

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

# Avro's types by the ids of DuckDB's types.
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
    """Return a text as a name that Avro allows: letters, digits and underscores.

    >>> record_name("1st-é")
    '_1st__'
    """
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return f"_{name}" if name[:1].isdigit() or not name else name


@lru_cache(maxsize=256)
def schema_of_columns(columns: tuple[Column, ...], name: str) -> AvroSchema:
    """Return the schema of a record with a nullable field per column; `name` is the record's name.

    Raises BindError for a column that Avro has no type or no name for.
    """
    # The records of a schema need different names.
    type_names = {name}
    with databases.passing() as con:
        fields = [_field(c.name, con.sqltype(c.type), c, c.name, type_names) for c in columns]
    return AvroSchema(json.dumps({"type": "record", "name": name, "fields": fields}), f'the schema of "{name}"')


def _field(name: str, type: Any, column: Column, path: str, type_names: set[str]) -> Avro:
    if not _NAME.fullmatch(name):
        hint = "Avro's names have letters from a to z, digits and underscores: give it another name."
        raise BindError(f'column "{column.name}": Avro has no field called "{name}"', hint=hint)
    return {"name": name, "type": ["null", _written(type, column, path, type_names)], "default": None}


def _written(type: Any, column: Column, path: str, type_names: set[str]) -> Avro:
    match type.id:
        case "decimal":
            (_, width), (_, scale) = type.children
            return {"type": "bytes", "logicalType": "decimal", "precision": width, "scale": scale}
        case "list" | "array":
            return {"type": "array", "items": ["null", _written(type.children[0][1], column, path, type_names)]}
        case "map" if type.children[0][1].id == "varchar":
            return {"type": "map", "values": ["null", _written(type.children[1][1], column, path, type_names)]}
        case "struct":
            name = f"{path}_record"
            while name in type_names:
                name += "_"
            type_names.add(name)
            inner = [_field(n, t, column, f"{path}_{n}", type_names) for n, t in type.children]
            return {"type": "record", "name": name, "fields": inner}
    if type.id not in _WRITTEN:
        hint = "Write it as STRING: CAST it in the query."
        raise BindError(f'column "{column.name}": Avro has no type for {column.type}', hint=hint)
    return _WRITTEN[type.id]
