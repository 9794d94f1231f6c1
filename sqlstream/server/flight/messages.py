"""The messages of Flight SQL that clients send and receive to read.

pyarrow implements Flight, whose commands, tickets and actions are bytes. In Flight SQL these bytes are messages of protobuf, most
of them in an `Any`, which names their type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message

_PACKAGE = "arrow.flight.protocol.sql"
_TYPES: Mapping[str, int] = {
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "uint32": descriptor_pb2.FieldDescriptorProto.TYPE_UINT32,
}
_KEYS_OF = "catalog=1 string optional, db_schema=2 string optional, table=3 string"
_STATEMENT = "query=1 string, transaction_id=2 bytes optional"
_PREPARED = "prepared_statement_handle=1 bytes"
# Messages inside of others are declared as bytes, and enumerations as numbers: their encoding is the same.
_DECLARED: Mapping[str, str] = {
    "CommandStatementQuery": _STATEMENT,
    "CommandStatementUpdate": _STATEMENT,
    "CommandStatementSubstraitPlan": "plan=1 bytes",
    "CommandStatementIngest": "table=2 string",
    "CommandPreparedStatementQuery": _PREPARED,
    "CommandPreparedStatementUpdate": _PREPARED,
    "TicketStatementQuery": "statement_handle=1 bytes",
    "CommandGetSqlInfo": "info=1 uint32 repeated",
    "CommandGetXdbcTypeInfo": "data_type=1 int32 optional",
    "CommandGetCatalogs": "",
    "CommandGetDbSchemas": "catalog=1 string optional, db_schema_filter_pattern=2 string optional",
    "CommandGetTables": "catalog=1 string optional, db_schema_filter_pattern=2 string optional,"
    "table_name_filter_pattern=3 string optional, table_types=4 string repeated, include_schema=5 bool",
    "CommandGetTableTypes": "",
    "CommandGetPrimaryKeys": _KEYS_OF,
    "CommandGetExportedKeys": _KEYS_OF,
    "CommandGetImportedKeys": _KEYS_OF,
    "CommandGetCrossReference": "pk_table=3 string, fk_table=6 string",
    "ActionCreatePreparedStatementRequest": _STATEMENT,
    "ActionCreatePreparedStatementResult": f"{_PREPARED}, dataset_schema=2 bytes, parameter_schema=3 bytes,"
    "is_update=4 bool optional",
    "ActionClosePreparedStatementRequest": _PREPARED,
    "ActionBeginTransactionRequest": "",
    "ActionBeginTransactionResult": "transaction_id=1 bytes",
    "ActionEndTransactionRequest": "transaction_id=1 bytes, action=2 int32",
    "ActionCancelQueryRequest": "info=1 bytes",
    "ActionCancelQueryResult": "result=1 int32",
    "DoPutPreparedStatementResult": f"{_PREPARED} optional",
    # These two are Flight's own, and come without an `Any`.
    "CancelFlightInfoRequest": "info=1 bytes",
    "CancelFlightInfoResult": "status=1 int32",
}


class NoMessage(Exception):
    """Data from a client is no message of Flight SQL, or one that is not supported."""


def message(name: str, **fields: Any) -> Message:
    """Return a message by its name, with some fields set."""
    return _CLASSES[name](**fields)


def packed(name: str, **fields: Any) -> bytes:
    """Return a message in an `Any`, serialized."""
    content = message(name, **fields).SerializeToString()
    data: bytes = AnyMessage(type_url=f"type.googleapis.com/{_PACKAGE}.{name}", value=content).SerializeToString()
    return data


def unpacked(data: bytes) -> tuple[str, Any]:
    """Return the name of the message in an `Any`, and the message. Raises NoMessage."""
    envelope = AnyMessage()
    try:
        envelope.ParseFromString(data)
    except DecodeError as error:
        raise NoMessage("this is no message of Flight SQL") from error
    package, _, name = envelope.type_url.rpartition("/")[2].rpartition(".")
    if package != _PACKAGE or name not in _CLASSES:
        raise NoMessage(f'the message "{name}" is not supported' if name else "this is no message of Flight SQL")
    return name, parsed(name, envelope.value)


def parsed(name: str, data: bytes) -> Any:
    """Return a message that is not in an `Any`. Raises NoMessage."""
    content = _CLASSES[name]()
    try:
        content.ParseFromString(data)
    except DecodeError as error:
        raise NoMessage(f'this is no message "{name}"') from error
    return content


def optional_text(content: Any, field: str) -> str | None:
    """Return the text of an optional field; None if the client has not set it."""
    return getattr(content, field) if content.HasField(field) else None


def _classes() -> dict[str, type[Message]]:
    file = descriptor_pb2.FileDescriptorProto(name="sqlstream/flight_sql.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _DECLARED.items():
        kind = file.message_type.add(name=name)
        for field in filter(None, map(str.strip, fields.split(","))):
            _add_field(kind, *field.split())
    # A pool of its own does not conflict with other declarations of Flight SQL.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptors = {name: pool.FindMessageTypeByName(f"{_PACKAGE}.{name}") for name in _DECLARED}
    return {name: message_factory.GetMessageClass(kind) for name, kind in descriptors.items()}


def _add_field(kind: Any, assignment: str, type_name: str, label: str = "") -> None:
    name, _, number = assignment.partition("=")
    repeated = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
    once = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    field = kind.field.add(
        name=name, number=int(number), type=_TYPES[type_name], label=repeated if label == "repeated" else once
    )
    if label == "optional":
        field.proto3_optional = True
        field.oneof_index = len(kind.oneof_decl)
        kind.oneof_decl.add(name=f"_{name}")


_CLASSES = _classes()
