"""Protobuf values, with and without a schema registry: types, places of messages, malformed ones, written rows."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.protobuf.encoding import encoder
from sqlstream.connectors.formats.protobuf.values import columns_of
from sqlstream.connectors.formats.schema_registry import framed
from sqlstream.errors import BindError, DataError
from tests.connectors.formats.registry_server import Registry, serving
from tests.connectors.test_values import Messages, rows, table

CONFLUENT = "protobuf-confluent"
INT, LONG, TEXT, BYTES = 5, 3, 9, 12
MESSAGE, ENUM, REPEATED = 11, 14, 3


def add(
    message: DescriptorProto, name: str, kind: Any, type_name: str = "", label: Any = 1, *, optional: bool = False
) -> None:
    number = len(message.field) + 1
    field: FieldDescriptorProto = message.field.add(
        name=name, number=number, type=kind, label=label, type_name=type_name or None
    )
    if optional:
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")


def files() -> list[FileDescriptorProto]:
    """`item.proto`, and `main.proto` that imports it: with a first message of no matter, and one inside of the second."""
    item = FileDescriptorProto(name="item.proto", package="shop", syntax="proto3")
    add(item.message_type.add(name="Item"), "name", TEXT)
    main = FileDescriptorProto(name="main.proto", package="shop", syntax="proto3")
    main.dependency.extend(["item.proto", "google/protobuf/timestamp.proto"])
    color = main.enum_type.add(name="Color")
    color.value.add(name="RED", number=0)
    color.value.add(name="BLUE", number=1)
    add(main.message_type.add(name="First"), "a", INT)
    order = main.message_type.add(name="Order")
    add(order, "k", LONG)
    add(order, "s", TEXT, optional=True)
    add(order, "at", MESSAGE, ".google.protobuf.Timestamp")
    add(order, "color", ENUM, ".shop.Color")
    add(order, "items", MESSAGE, ".shop.Item", REPEATED)
    add(order, "raw", BYTES)
    add(order.nested_type.add(name="Note"), "text", TEXT)
    return [item, main]


def of_class(name: str) -> Any:
    from google.protobuf import timestamp_pb2

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for file in files():
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


@pytest.fixture(scope="module")
def server() -> Iterator[Registry]:
    with serving() as registry:
        yield registry


@pytest.fixture(scope="module")
def schema(server: Registry) -> int:
    """The id of the schema, as a registry gives it with `format=serialized`."""
    item, main = (base64.b64encode(file.SerializeToString()).decode() for file in files())
    server.add("item", item, "PROTOBUF")
    reference = {"name": "item.proto", "subject": "item", "version": 1}
    return server.add("t-value", main, "PROTOBUF", (reference,))


COLUMNS = {
    "k": "BIGINT",
    "s": "VARCHAR",
    "at": "TIMESTAMP",
    "color": "VARCHAR",
    "items": "STRUCT(name VARCHAR)[]",
    "raw": "BLOB",
}
MOMENT = dt.datetime(2026, 3, 1, 12, 30, 15, 250000)


def order() -> Any:
    found = of_class("shop.Order")(k=5, s="x", color=1, raw=b"\0\xff")
    found.at.FromDatetime(MOMENT)
    found.items.add(name="pen")
    return found


def confluent(columns: dict[str, str], server: Registry, **options: str) -> Table:
    return table(
        columns, CONFLUENT, **{f"{CONFLUENT}.url": server.url}, **{f"{CONFLUENT}.{k}": v for k, v in options.items()}
    )


def test_messages_of_a_registry(server: Registry, schema: int) -> None:
    found = confluent({**COLUMNS, "absent": "INTEGER"}, server)
    empty = of_class("shop.Order")().SerializeToString()
    messages = [framed(schema, b"\2\2" + order().SerializeToString()), framed(schema, b"\2\2" + empty)]
    assert rows(found, *messages) == [
        (5, "x", MOMENT, "BLUE", [{"name": "pen"}], b"\0\xff", None, 100),
        (0, None, None, "RED", [], b"", None, 101),
    ]
    # The first message of its schema, and one inside of the second.
    notes = [b"\0" + of_class("shop.First")(a=7).SerializeToString()]
    notes.append(b"\4\2\0" + of_class("shop.Order.Note")(text="hello").SerializeToString())
    found = confluent({"a": "INTEGER", "text": "VARCHAR"}, server)
    assert rows(found, *(framed(schema, note) for note in notes)) == [(7, None, 100), (None, "hello", 101)]
    with pytest.raises(DataError, match='column "k" of table "t" is INTEGER, and BIGINT in schema'):
        rows(confluent({"k": "INTEGER"}, server), *messages)


def test_malformed_messages(server: Registry, schema: int) -> None:
    good = framed(schema, b"\2\2" + order().SerializeToString())
    bad = [good[:-1], framed(schema, b"\2\x12"), framed(schema, b""), framed(7, b"\0"), b"{}"]
    messages = [m for one in bad for m in (good, one)]
    found = confluent({"k": "BIGINT"}, server, **{"ignore-parse-errors": "true"})
    assert [k for k, _ in rows(found, *messages)] == [5] * len(bad)
    reasons = [(row.number, row.reason.partition(":")[0]) for row in Messages(found).malformed_rows([messages])]
    assert reasons == [
        (101, f"The value is no message of schema {schema}"),
        (103, f"Schema {schema} has no message at [9]"),
        (105, "The value does not say which message of its schema it is"),
        (107, "The registry has no schema 7"),
        (109, "The value has no schema id of a registry in front"),
    ]


@pytest.mark.parametrize(
    "place",
    [
        b"\1",  # -1 indexes, once read as the first type
        b"\xff\xff\xff\xff\x0f",
        b"\x82",  # cut off
        b"\4\2",
        b"\2\xff",
        b"\x80\x80\x80\x80\x80\0",  # more than 32 bits
        b"\2" + b"\x80" * 1_000_000,
        b"\xfe\xff\xff\xff\x0f",  # two thousand million indexes
        b"\xfe\xff\x0f" + b"\0" * 200_000,
    ],
)
def test_a_place_that_is_none_is_malformed(server: Registry, schema: int, place: bytes) -> None:
    found = confluent({"a": "INTEGER"}, server, **{"ignore-parse-errors": "true"})
    good = framed(schema, b"\0" + of_class("shop.First")(a=7).SerializeToString())
    messages = [good, framed(schema, place), good]
    assert rows(found, *messages) == [(7, 100), (7, 102)]
    [malformed] = Messages(found).malformed_rows([messages])
    assert malformed.number == 101
    assert malformed.reason == "The value does not say which message of its schema it is"


def test_a_negative_index_is_no_message(server: Registry, schema: int) -> None:
    found = confluent({"a": "INTEGER"}, server, **{"ignore-parse-errors": "true"})
    [malformed] = Messages(found).malformed_rows([[framed(schema, b"\2\1")]])
    assert malformed.reason == f"Schema {schema} has no message at [-1]"


def test_rows_are_written_with_the_newest_schema(server: Registry, schema: int) -> None:
    found = confluent(COLUMNS, server, **{"message-name": "shop.Order"})
    assert [(c.name, c.type) for c in columns_of(found, CONFLUENT)][:3] == [
        ("k", "BIGINT"),
        ("s", "VARCHAR"),
        ("at", "TIMESTAMP WITH TIME ZONE"),
    ]
    written = pa.table({"k": [5, 6], "s": ["x", None], "at": pa.array([MOMENT, None], pa.timestamp("us", "UTC"))})
    messages = encoder(found, CONFLUENT, found.stored[:3])(written)
    assert messages[0].startswith(framed(schema, b"\2\2"))
    assert [row[:3] for row in rows(found, *messages)] == [(5, "x", MOMENT), (6, None, None)]
    with pytest.raises(BindError, match='column "zzz" of table "t" is no field of the schema of subject "t-value"'):
        encoder(found, CONFLUENT, [Column("zzz", "INTEGER")])
    with pytest.raises(BindError, match='column "k" of table "t" is DECIMAL'):
        encoder(found, CONFLUENT, [Column("k", "DECIMAL(9, 2)")])
    options = {"subject": "nowhere", "auto-register": "false"}
    with pytest.raises(DataError, match='no subject "nowhere"'):
        encoder(confluent(COLUMNS, server, **options), CONFLUENT, found.stored)


def test_messages_of_a_file_of_descriptors(tmp_path: Path) -> None:
    path = tmp_path / "shop.desc"
    path.write_bytes(FileDescriptorSet(file=files()).SerializeToString())
    options = {"protobuf.descriptor-file": str(path), "protobuf.message-name": "shop.Order"}
    found = table(COLUMNS, "protobuf", **options)
    assert rows(found, order().SerializeToString())[0][:3] == (5, "x", MOMENT)
    messages = encoder(found, "protobuf", found.stored[:1])(pa.table({"k": [1]}))
    assert of_class("shop.Order").FromString(messages[0]).k == 1
    with pytest.raises(DataError, match=r'has no message "shop\.Oder"'):
        rows(table(COLUMNS, "protobuf", **{**options, "protobuf.message-name": "shop.Oder"}), b"")
    path.write_bytes(b"\xff")
    with pytest.raises(DataError, match="holds no descriptors"):
        rows(found, b"")
