"""Makes a Protobuf message type from the columns of a table, for the rows that a job writes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from sqlstream.catalog import Column
from sqlstream.duck import databases
from sqlstream.errors import BindError

_F = FieldDescriptorProto
# Protobuf's types by the ids of DuckDB's types.
_SCALARS: Mapping[str, Any] = {
    "boolean": _F.TYPE_BOOL,
    **dict.fromkeys(("tinyint", "smallint", "integer"), _F.TYPE_INT32),
    **dict.fromkeys(("utinyint", "usmallint", "uinteger"), _F.TYPE_UINT32),
    "bigint": _F.TYPE_INT64,
    "ubigint": _F.TYPE_UINT64,
    "float": _F.TYPE_FLOAT,
    "double": _F.TYPE_DOUBLE,
    **dict.fromkeys(("varchar", "uuid", "json"), _F.TYPE_STRING),
    "blob": _F.TYPE_BYTES,
}
_KEYS = (
    "boolean",
    "tinyint",
    "smallint",
    "integer",
    "utinyint",
    "usmallint",
    "uinteger",
    "bigint",
    "ubigint",
    "varchar",
)
_TIMES = ("timestamp", "timestamp with time zone")
_TIMESTAMP, _TIMESTAMP_FILE = ".google.protobuf.Timestamp", "google/protobuf/timestamp.proto"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def message_name(text: str) -> str:
    """Return a text as a name of a message type that Protobuf allows: letters, digits and underscores.

    >>> message_name("1st-é")
    'Message_1st__'
    """
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return name if re.match(r"[A-Za-z]", name) else f"Message_{name}"


def file_of_columns(columns: Sequence[Column], name: str) -> FileDescriptorProto:
    """Return a file with one message type, which has a field per column. Plain fields are optional: NULL is not the default.

    Raises BindError for a column that Protobuf has no type or no name for.
    """
    file = FileDescriptorProto(name="main.proto", syntax="proto3")
    message = file.message_type.add(name=name)
    with databases.passing() as con:
        for column in columns:
            _add(message, column.name, con.sqltype(column.type), column, f".{name}", file)
    return file


def _add(
    message: DescriptorProto, name: str, type: Any, column: Column, path: str, file: FileDescriptorProto
) -> FieldDescriptorProto:
    """Add a field to a message, whose full name is `path`."""
    if not _NAME.fullmatch(name):
        hint = "Protobuf's names have letters from a to z, digits and underscores: give it another name."
        raise BindError(f'column "{column.name}": Protobuf has no field called "{name}"', hint=hint)
    item = type.children[0][1] if type.id in ("list", "array") else type
    field = message.field.add(name=name, number=len(message.field) + 1, label=_F.LABEL_OPTIONAL)
    if type.id == "map" and type.children[0][1].id in _KEYS and type.children[1][1].id not in ("list", "array", "map"):
        # A map is a list of entries, whose type is called after the field.
        entry = message.nested_type.add(name="".join(p[:1].upper() + p[1:] for p in name.split("_")) + "Entry")
        entry.options.map_entry = True
        for (_, inner), own in zip(type.children, ("key", "value"), strict=True):
            _plain(_add(entry, own, inner, column, f"{path}.{entry.name}", file), entry)
        field.type, field.label, field.type_name = _F.TYPE_MESSAGE, _F.LABEL_REPEATED, f"{path}.{entry.name}"
        return field
    if item is not type:
        field.label = _F.LABEL_REPEATED
    if item.id in _TIMES:
        field.type, field.type_name = _F.TYPE_MESSAGE, _TIMESTAMP
        if _TIMESTAMP_FILE not in file.dependency:
            file.dependency.append(_TIMESTAMP_FILE)
    elif item.id == "struct":
        inner_message = message.nested_type.add(name=f"{name}_message")
        field.type, field.type_name = _F.TYPE_MESSAGE, f"{path}.{inner_message.name}"
        for own, inner in item.children:
            _add(inner_message, own, inner, column, field.type_name, file)
    elif item.id in _SCALARS:
        field.type = _SCALARS[item.id]
        if item is type:
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")
    else:
        hint = "Write it as STRING: CAST it in the query."
        raise BindError(f'column "{column.name}": Protobuf has no type for {column.type}', hint=hint)
    return field


def _plain(field: FieldDescriptorProto, entry: DescriptorProto) -> None:
    """Make a field of a map's entry not optional, as Protobuf requires it."""
    if field.proto3_optional:
        field.ClearField("proto3_optional")
        field.ClearField("oneof_index")
        del entry.oneof_decl[:]
