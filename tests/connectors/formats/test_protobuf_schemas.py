"""Protobuf whose types stand in a `.proto` file: all kinds of fields, both ways, imports, and errors with file and line."""

from __future__ import annotations

import datetime as dt
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from sqlstream.catalog import Table
from sqlstream.connectors.formats.protobuf.encoding import encoder
from sqlstream.connectors.formats.protobuf.values import columns_of
from sqlstream.errors import BindError, DataError, SqlStreamError, UsageError
from tests.connectors.test_values import rows, table

ITEM = """
syntax = "proto3";
package shop;

message Item { string name = 1; int32 count = 2; }
"""
ORDER = """
syntax = "proto3";
package shop;

import "google/protobuf/timestamp.proto";
import "parts/item.proto";

enum State { OPEN = 0; PAID = 1; }

message Order {
  message Address { string city = 1; optional string zip = 2; }
  int64 id = 1;
  Address address = 2;
  State state = 3;
  repeated Item items = 4;
  map<string, double> prices = 5;
  oneof payment { string card = 6; int64 voucher = 7; }
  google.protobuf.Timestamp at = 8;
  repeated State states = 9;
}
"""
MOMENT = dt.datetime(2026, 3, 1, 12, 30, 15, 250000)
COLUMNS = {
    "id": "BIGINT",
    "address": "STRUCT(city VARCHAR, zip VARCHAR)",
    "state": "VARCHAR",
    "items": "STRUCT(name VARCHAR, count INTEGER)[]",
    "prices": "MAP(VARCHAR, DOUBLE)",
    "card": "VARCHAR",
    "voucher": "BIGINT",
    "at": "TIMESTAMP",
    "states": "VARCHAR[]",
}
ROW = (
    7,
    {"city": "Bern", "zip": None},
    "PAID",
    [{"name": "pen", "count": 2}],
    {"pen": 1.5},
    None,
    42,
    MOMENT,
    ["OPEN", "PAID"],
)


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "item.proto").write_text(ITEM)
    (tmp_path / "order.proto").write_text(ORDER)
    return tmp_path / "order.proto"


def declared(path: Path, columns: dict[str, str] | None = None, **options: str) -> Table:
    given = {"protobuf.schema-file": str(path), "protobuf.message-name": "shop.Order"}
    more = {f"protobuf.{name.replace('_', '-')}": value for name, value in options.items()}
    return table(COLUMNS if columns is None else columns, "protobuf", **{**given, **more})


def order_class(path: Path) -> Any:
    """Return the class of orders, as Google's own library has it."""
    out = path.with_suffix(".desc")
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{path.parent}", "--include_imports"]
    subprocess.run([*command, f"--descriptor_set_out={out}", str(path)], check=True)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for file in FileDescriptorSet.FromString(out.read_bytes()).file:
        if not file.name.startswith("google/"):
            pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_fields_of_all_kinds_are_read_and_written(schema: Path) -> None:
    kind = order_class(schema)
    order = kind(id=7, state=1, voucher=42, prices={"pen": 1.5}, states=[0, 1])
    order.address.city = "Bern"
    order.items.add(name="pen", count=2)
    order.at.FromDatetime(MOMENT)
    found = declared(schema)
    got = rows(found, order.SerializeToString(), b"")
    assert got == [(*ROW, 100), (0, None, "OPEN", [], {}, None, None, None, [], 101)]
    whole = pa.table({column.name: [value] for column, value in zip(found.stored, ROW, strict=True)})
    whole = whole.set_column(4, "prices", pa.array([[("pen", 1.5)]], pa.map_(pa.string(), pa.float64())))
    whole = whole.set_column(7, "at", pa.array([MOMENT], pa.timestamp("us", "UTC")))
    [written] = encoder(found, "protobuf", found.stored)(whole)
    assert kind.FromString(written) == order
    clash = whole.set_column(5, "card", pa.array(["1234"]))
    with pytest.raises(DataError) as raised:
        encoder(found, "protobuf", found.stored)(clash)
    assert raised.value.detail == 'It has several of card, voucher, of which "payment" can have one.'
    # The file of protoc itself says the same.
    descriptors = table(
        COLUMNS,
        "protobuf",
        **{"protobuf.descriptor-file": str(schema.with_suffix(".desc")), "protobuf.message-name": "shop.Order"},
    )
    assert rows(descriptors, written)[0][:-1] == ROW


def test_columns_and_what_has_changed(schema: Path) -> None:
    own = declared(schema, {})
    assert [(c.name, c.type) for c in columns_of(own, "protobuf")][:2] == [
        ("id", "BIGINT"),
        ("address", "STRUCT(city VARCHAR, zip VARCHAR)"),
    ]
    schema.write_text(ORDER.replace("int64 id = 1;", "int64 number = 1;"))
    assert columns_of(own, "protobuf")[0].name == "number"
    # An import path in the place of the folder of the file, which must hold the file, too.
    nested = schema.parent / "parts" / "item.proto"
    item = declared(nested, {}, message_name="shop.Item", import_path=f"{schema.parent}; /tmp")
    assert [c.name for c in columns_of(item, "protobuf")] == ["name", "count"]


@pytest.mark.parametrize(
    ("replaced", "message", "detail"),
    [
        (("Item items", "Itm items"), "is no schema of Protobuf: line 15, column 12", '"Itm" is not defined'),
        (("int64 id = 1;", "int64 id = 1"), "is no schema of Protobuf: line 13", 'Expected ";"'),
        (("parts/item", "parts/itm"), "is no schema of Protobuf: line 6", "parts/itm.proto: File not found"),
    ],
)
def test_faults_of_a_schema_have_their_place(
    schema: Path, replaced: tuple[str, str], message: str, detail: str
) -> None:
    schema.write_text(ORDER.replace(*replaced))
    with pytest.raises(DataError) as raised:
        columns_of(declared(schema, {}), "protobuf")
    assert raised.value.message.startswith(f'file "{schema}" of table "t" {message}')
    assert detail in (raised.value.detail or "")


def test_a_fault_of_an_import_names_that_file(schema: Path) -> None:
    (schema.parent / "parts" / "item.proto").write_text(ITEM.replace("int32", "int31"))
    with pytest.raises(DataError, match=r'parts/item\.proto" of table "t" is no schema of Protobuf: line 5'):
        columns_of(declared(schema, {}), "protobuf")


def test_what_is_missing(schema: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(found: Table) -> SqlStreamError:
        with pytest.raises(SqlStreamError) as raised:
            columns_of(found, "protobuf")
        return raised.value

    error = told(declared(schema, {}, message_name="shop.Oder"))
    assert (error.message, error.hint) == (
        f'file "{schema}" of table "t" has no message "shop.Oder"',
        'did you mean "shop.Order"?',
    )
    assert "cannot be read" in told(declared(schema.with_name("no.proto"), {})).message
    both = told(declared(schema, {}, descriptor_file="a"))
    assert isinstance(both, BindError)
    assert both.message == 'table "t" has both "protobuf.schema-file" and "protobuf.descriptor-file"'
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    error = told(declared(schema, {}))
    assert isinstance(error, UsageError)
    assert "pip install -e '.[protoc]'" in (error.hint or "")
