"""Rows as messages in Avro and Protobuf: their schemas in a registry, their types, and what does not fit."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pytest
from google.protobuf import descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from sqlstream.catalog import Column, Table
from sqlstream.connectors.batch import Batch
from sqlstream.connectors.formats import schema_registry
from sqlstream.connectors.kafka.messages import KEY, VALUE, MessageEncoders, MessageLayout
from sqlstream.errors import BindError, DataError, OutageError
from sqlstream.storage.zsets import WEIGHT
from tests.connectors.formats.registry_server import Registry, serving
from tests.connectors.formats.test_avro import field, record
from tests.connectors.formats.test_protobuf import files, of_class

TYPES = {
    "b": ("BOOLEAN", "true"),
    "t": ("TINYINT", "-3"),
    "i": ("INTEGER", "7"),
    "l": ("BIGINT", "-9000000000"),
    "u": ("UINTEGER", "4000000000"),
    "f": ("FLOAT", "1.5"),
    "d": ("DOUBLE", "-0.25"),
    "s": ("VARCHAR", "'ü'"),
    "id": ("UUID", "'00000000-0000-0000-0000-000000000007'"),
    "j": ("JSON", "'{\"a\": 1}'"),
    "x": ("BLOB", "'\\x00\\xFF'"),
    "ts": ("TIMESTAMP", "'2026-03-01 12:30:15.123456'"),
    "tz": ("TIMESTAMP WITH TIME ZONE", "'2026-03-01 12:30:15.123456+00'"),
    "fixed": ("INTEGER[2]", "[1, 2]"),
    "nested": ("STRUCT(p INTEGER, q STRUCT(r VARCHAR)[])", "{'p': NULL, 'q': [{'r': 'a'}]}"),
    "m": ("MAP(VARCHAR, BIGINT)", "MAP {'one': 1}"),
}
OF_AVRO = {
    "day": ("DATE", "'2026-03-01'"),
    "at": ("TIME", "'01:02:03.000004'"),
    "c": ("DECIMAL(10, 2)", "-1.25"),
    "never": ("TIMESTAMP", "'infinity'"),
    "holes": ("INTEGER[]", "[1, NULL]"),
}


@pytest.fixture
def server() -> Iterator[Registry]:
    with serving() as registry:
        yield registry


def table(form: str, columns: Mapping[str, str], *, key: str = "", keys: str = "", **options: str) -> Table:
    given = {"connector": "kafka", "topic": "orders", "format": form, **options}
    if key:
        given |= {"key.format": key, "key.fields": keys}
    primary = tuple(keys.split(";")) if keys else ()
    return Table("1-é", tuple(Column(n, t) for n, t in columns.items()), primary_key=primary, options=given)


def of_registry(form: str, server: Registry, columns: Mapping[str, str], **more: str) -> Table:
    """Return a table whose keys and values have schemas in a registry."""
    urls = {f"{form}.url": server.url, f"key.{form}.url": server.url}
    return table(form, columns, key=form, keys=next(iter(columns)), **urls, **more)


def sent(declared: Table, folder: Path, rows: str, *, upserts: bool = False) -> list[tuple[bytes | None, bytes | None]]:
    """Return the keys and values of rows; with `upserts` each of these ends with a weight."""
    layout = MessageLayout(declared, upserts)
    layout.check()
    names = [f'"{c.name}"' for c in declared.columns]
    path = str(folder / "rows.parquet")
    types = ", ".join(f"CAST({n} AS {c.type}) AS {n}" for n, c in zip(names, declared.columns, strict=True))
    weights = f", {WEIGHT}" if upserts else ""
    duckdb.execute(f"COPY (SELECT {types}{weights} FROM (VALUES {rows}) AS t({', '.join(names)}{weights})) TO '{path}'")
    batch = Batch(1, declared.columns, (path,), upserts, declared.primary_key)
    encoded = MessageEncoders(layout.parts).encode(batch.table(layout.messages(batch, "-1")))
    return list(zip(encoded[KEY].to_pylist(), encoded[VALUE].to_pylist(), strict=True))


def in_avro(server: Registry, body: bytes | None) -> Any:
    """Return a message as another program reads it: with the schema whose id it has."""
    assert body is not None
    assert body[0] == 0
    schema = server.schemas[int.from_bytes(body[1:5], "big") - 100]
    return fastavro.schemaless_reader(io.BytesIO(body[5:]), json.loads(schema["schema"]), None)


def in_protobuf(server: Registry, body: bytes | None) -> Any:
    assert body is not None
    assert body[0] == 0
    assert body[5] == 0, "the first message"
    schema = server.schemas[int.from_bytes(body[1:5], "big") - 100]
    file = FileDescriptorProto.FromString(base64.b64decode(schema["schema"]))
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    found = message_factory.GetMessageClass(pool.FindMessageTypeByName(file.message_type[0].name))
    return found.FromString(body[6:])


def read(types: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Return the values as DuckDB has them."""
    items = ", ".join(f"CAST({value} AS {type}) AS {name}" for name, (type, value) in types.items())
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        return dict(con.sql(f"SELECT {items}").to_arrow_table().to_pylist()[0])


def test_every_type_in_avro(server: Registry, tmp_path: Path) -> None:
    types = {**TYPES, **OF_AVRO}
    declared = of_registry("avro-confluent", server, {name: type for name, (type, _) in types.items()})
    values = ", ".join(value for _, value in types.values())
    [full, empty] = sent(declared, tmp_path, f"({values}), ({', '.join('NULL' for _ in types)})")
    assert in_avro(server, full[0]) == {"b": True}
    # No datetime of Python is infinite.
    expected = read({name: found for name, found in types.items() if name != "never"})
    found = in_avro(server, full[1].replace(b"\xfe" + b"\xff" * 8 + b"\x01", b"\x00") if full[1] else None)
    del found["never"]
    assert found == {**expected, "m": {"one": 1}}
    assert set(in_avro(server, empty[1]).values()) == {None}
    assert sorted(server.subjects) == ["orders-key", "orders-value"]
    names = [json.loads(schema["schema"])["name"] for schema in server.schemas]
    assert names == ["_1___key", "_1__"]


def test_every_type_in_protobuf(server: Registry, tmp_path: Path) -> None:
    declared = of_registry("protobuf-confluent", server, {name: type for name, (type, _) in TYPES.items()})
    values = ", ".join(value for _, value in TYPES.values())
    [full, empty] = sent(declared, tmp_path, f"({values}), ({', '.join('NULL' for _ in TYPES)})")
    assert in_protobuf(server, full[0]).b is True
    found, expected = in_protobuf(server, full[1]), read(TYPES)
    for name in ("b", "t", "i", "l", "u", "f", "d", "s", "id", "j", "x"):
        assert getattr(found, name) == expected[name], name
    assert found.ts.ToDatetime() == found.tz.ToDatetime() == expected["ts"]
    assert (list(found.fixed), dict(found.m)) == ([1, 2], {"one": 1})
    assert not found.nested.HasField("p")
    assert [q.r for q in found.nested.q] == ["a"]
    assert not in_protobuf(server, empty[1]).ListFields()
    assert sorted(server.subjects) == ["orders-key", "orders-value"]


@pytest.mark.parametrize("form", ["avro-confluent", "protobuf-confluent"])
def test_a_deleted_row_has_no_value_and_a_restart_registers_nothing(
    server: Registry, tmp_path: Path, form: str
) -> None:
    declared = of_registry(form, server, {"k": "INTEGER", "v": "VARCHAR"})
    rows = "(1, 'old', -1), (1, 'new', 1), (2, 'gone', -1)"
    found = sent(declared, tmp_path, rows, upserts=True)
    decode = in_avro if form == "avro-confluent" else in_protobuf
    [one, two] = (decode(server, key) for key, _ in found)
    assert ([one["k"], two["k"]] if isinstance(one, dict) else [one.k, two.k]) == [1, 2]
    assert [value is None for _, value in found] == [False, True]
    before = [dict(schema) for schema in server.schemas]
    schema_registry._registered.cache_clear()
    assert sent(declared, tmp_path, rows, upserts=True) == found
    assert server.schemas == before
    assert [len(ids) for ids in server.subjects.values()] == [1, 1]


def test_a_schema_that_the_registry_refuses(server: Registry, tmp_path: Path) -> None:
    sent(of_registry("avro-confluent", server, {"k": "INTEGER"}), tmp_path, "(1)")
    server.closed.add("orders-value")
    with pytest.raises(DataError, match='not compatible with those of the subject "orders-value"') as raised:
        sent(of_registry("avro-confluent", server, {"k": "VARCHAR"}), tmp_path, "('a')")
    assert "Schema being registered is incompatible with an earlier one" in str(raised.value.detail)


def test_the_newest_schema_of_the_subject(server: Registry, tmp_path: Path) -> None:
    latest = {"avro-confluent.use-latest-version": "true", "avro-confluent.url": server.url}
    declared = table("avro-confluent", {"K": "SMALLINT", "at": "TIMESTAMP"}, **latest)
    with pytest.raises(DataError, match='no subject "orders-value"'):
        sent(declared, tmp_path, "(1, NULL)")
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    given = [field("k", "long"), field("at", ["null", millis]), field("more", "string", default="none")]
    server.add("orders-value", record(*given, name="Theirs"))
    [(_, body)] = sent(declared, tmp_path, "(5, '2026-03-01 12:30:15.123')")
    found = in_avro(server, body)
    assert (found["k"], found["at"].isoformat(), found["more"]) == (5, "2026-03-01T12:30:15.123000+00:00", "none")
    server.add("orders-value", record(*given, field("must", "int"), name="Theirs"))
    with pytest.raises(BindError, match='field "must" of the schema of subject "orders-value" has neither a column'):
        sent(declared, tmp_path, "(5, NULL)")
    with pytest.raises(DataError, match="does not fit the schema"):
        sent(
            table("avro", {"k": "INTEGER"}, **{"avro.schema": json.dumps(record(field("k", "int")))}),
            tmp_path,
            "(NULL)",
        )


def test_what_does_not_fit_is_said_before_a_row_is_read() -> None:
    def refused(declared: Table) -> str:
        with pytest.raises(BindError) as raised:
            MessageLayout(declared, False).check()
        return raised.value.message

    assert "Avro has no type for INTERVAL" in refused(table("avro", {"k": "INTERVAL"}))
    assert "Avro has no type for MAP(INTEGER, VARCHAR)" in refused(table("avro", {"k": "MAP(INTEGER, VARCHAR)"}))
    assert 'Avro has no field called "größe"' in refused(table("avro", {"größe": "INTEGER"}))
    schema = json.dumps(record(field("k", "int"), field("u", ["int", "string"])))
    assert "is BIGINT, which does not fit INTEGER" in refused(table("avro", {"k": "BIGINT"}, **{"avro.schema": schema}))
    assert 'column "u" of table "1-é" is no field' in refused(
        table("avro", {"u": "INTEGER"}, **{"avro.schema": schema})
    )
    apart = table("avro", {"k": "VARCHAR"}, key="raw", keys="k", **{"value.fields-include": "EXCEPT_KEY"})
    assert 'format "avro" holds no column' in refused(apart)


def test_what_protobuf_would_silently_change_is_an_error(server: Registry, tmp_path: Path) -> None:
    path = tmp_path / "shop.desc"
    path.write_bytes(FileDescriptorSet(file=files()).SerializeToString())
    names = {"protobuf.descriptor-file": str(path), "protobuf.message-name": "shop.Order"}

    def fault(type: str, value: str, name: str, **more: str) -> str:
        with pytest.raises(DataError) as raised:
            sent(table("protobuf", {name: type}, **names, **more), tmp_path, f"({value})")
        return str(raised.value.detail)

    assert fault("VARCHAR", "'PINK'", "color") == 'Its "color" is "PINK", which is not one of its names.'
    assert "has a NULL in a list" in fault("STRUCT(name VARCHAR)[]", "[{'name': 'pen'}, NULL]", "items")
    keys = {f"key.{name}": value for name, value in names.items()}
    assert "cannot be told from its default" in fault("BIGINT", "NULL", "k", key="protobuf", keys="k", **keys)
    [(_, body)] = sent(table("protobuf", {"k": "INTEGER", "s": "VARCHAR"}, **names), tmp_path, "(3, 'x')")
    order = of_class("shop.Order").FromString(body)
    assert (order.k, order.s) == (3, "x")
    with pytest.raises(BindError, match="Protobuf has no type for DATE"):
        sent(of_registry("protobuf-confluent", server, {"day": "DATE"}), tmp_path, "(NULL)")


def test_a_registry_that_stays_away_is_an_outage(
    server: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_registry, "_PAUSE", 0.0)
    server.failing = 1000
    with pytest.raises(OutageError, match="does not answer"):
        sent(of_registry("avro-confluent", server, {"away": "INTEGER"}), tmp_path, "(1)")
    server.failing = 0
    assert len(sent(of_registry("avro-confluent", server, {"away": "INTEGER"}), tmp_path, "(1)")) == 1
