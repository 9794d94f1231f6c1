"""Avro values, with and without a schema registry: every type, evolution, malformed messages, written rows."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import uuid
from collections.abc import Iterator
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pytest

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats import schema_registry
from sqlstream.connectors.formats.avro import decoding
from sqlstream.connectors.formats.avro.encoding import encoder
from sqlstream.connectors.formats.avro.values import columns_of
from sqlstream.connectors.formats.schema_registry import framed
from sqlstream.errors import DataError, JobError, OutageError, UnsupportedError
from tests.connectors.formats.registry_server import Registry, serving
from tests.connectors.test_values import WHERE, Messages, rows, table

CONFLUENT = "avro-confluent"
UTC = dt.UTC
CENTS = decimal.Decimal("-1.25")
MOMENT = dt.datetime(2026, 3, 1, 12, 30, 15, 123456, UTC)
LOCAL = MOMENT.replace(tzinfo=None)


@pytest.fixture(scope="module")
def server() -> Iterator[Registry]:
    with serving() as registry:
        yield registry


@pytest.fixture(params=[True, False], ids=["polars", "fastavro"])
def _each_decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the extra `avro` installs, and where polars is not there."""
    if not request.param:
        monkeypatch.setattr(decoding, "has_polars", lambda: False)


def record(*fields: Any, name: str = "R") -> Any:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t, **more} for n, t, more in fields]}


def field(name: str, type: Any, **more: Any) -> Any:
    return name, type, more


def message(schema: Any, **values: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), values)
    return stream.getvalue()


def confluent(columns: dict[str, str], server: Registry, **options: str) -> Table:
    return table(
        columns, CONFLUENT, **{f"{CONFLUENT}.url": server.url}, **{f"{CONFLUENT}.{k}": v for k, v in options.items()}
    )


SIMPLE = record(field("k", "long"), field("s", ["null", "string"]))
INNER = record(field("p", "int"), field("q", ["null", "string"]), name="I")
# Type of Avro, declared type, value that is written, value that is read.
TYPES: list[tuple[Any, str, Any, Any]] = [
    ("boolean", "BOOLEAN", True, True),
    ("int", "BIGINT", -5, -5),
    ("float", "DOUBLE", 1.5, 1.5),
    (["string", "null"], "VARCHAR", "ü", "ü"),
    ("bytes", "BLOB", b"\0\xff", b"\0\xff"),
    ({"type": "fixed", "name": "F", "size": 2}, "BLOB", b"ab", b"ab"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "VARCHAR", "B", "B"),
    (["null", {"type": "enum", "name": "N", "symbols": ["A", "B"]}], "VARCHAR", "A", "A"),
    ({"type": "int", "logicalType": "date"}, "DATE", MOMENT.date(), MOMENT.date()),
    ({"type": "int", "logicalType": "time-millis"}, "TIME", dt.time(1, 2, 3, 4000), dt.time(1, 2, 3, 4000)),
    ({"type": "long", "logicalType": "timestamp-micros"}, "TIMESTAMP", MOMENT, MOMENT.replace(tzinfo=None)),
    ({"type": "long", "logicalType": "timestamp-millis"}, "TIMESTAMP WITH TIME ZONE", MOMENT, MOMENT.replace(microsecond=123000)),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, "TIMESTAMP", LOCAL, LOCAL),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "DECIMAL(10, 2)", CENTS, CENTS),
    ({"type": "string", "logicalType": "uuid"}, "VARCHAR", uuid.UUID(int=7), str(uuid.UUID(int=7))),
    ({"type": "array", "items": ["null", "int"]}, "INTEGER[]", [1, None], [1, None]),
    ({"type": "map", "values": "long"}, "MAP(VARCHAR, BIGINT)", {"a": 1}, {"a": 1}),
    (INNER, "STRUCT(q VARCHAR, p BIGINT)", {"p": 1, "q": None}, {"p": 1, "q": None}),
    (["null", "long"], "BIGINT", None, None),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("_each_decoder")
def test_every_type_is_read(server: Registry) -> None:
    # Those that polars reads alone first.
    for number, (avro, declared, written, read) in enumerate(TYPES):
        schema = record(field("x", avro), name=f"R{number}")
        id = server.add("types", schema)
        found = confluent({"x": declared}, server)
        with duckdb.connect() as con:
            con.execute("SET TimeZone = 'Asia/Tokyo'")
            plan = Messages(found).take(con, [[framed(id, message(schema, x=written))]], WHERE)
            assert con.execute(f"SELECT x FROM {plan.well_formed}").fetchall() == [(read,)], avro


def decimal_type(base: str = "bytes", **more: int) -> Any:
    return {"type": base, **({"name": "D"} if base == "fixed" else {}), "logicalType": "decimal", **more}


# Logical types that do not fit the type below them, or are not known: Avro says that the type below is read. Type of Avro,
# declared type, value.
IGNORED: list[tuple[Any, str, Any]] = [
    (decimal_type(precision=40, scale=2), "BLOB", b"\0\xff"),
    (decimal_type("fixed", size=20, precision=45), "BLOB", b"a" * 20),
    (decimal_type(precision=4, scale=5), "BLOB", b"\1"),
    (decimal_type(precision=0), "BLOB", b"\1"),
    (decimal_type("string", precision=9, scale=2), "VARCHAR", "1.25"),
    (decimal_type("string"), "VARCHAR", "1.25"),
    (decimal_type("int", precision=9, scale=2), "INTEGER", 125),
    ({"type": "string", "logicalType": "timestamp-millis"}, "VARCHAR", "2026-03-01T12:30:15Z"),
    ({"type": "int", "logicalType": "timestamp-millis"}, "INTEGER", 125),
    ({"type": "string", "logicalType": "date"}, "VARCHAR", "2026-03-01"),
    ({"type": "long", "logicalType": "date"}, "BIGINT", 125),
    ({"type": "long", "logicalType": "time-millis"}, "BIGINT", 125),
    ({"type": "int", "logicalType": "time-micros"}, "INTEGER", 125),
    ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, "BLOB", uuid.UUID(int=7).bytes),
    ({"type": "int", "logicalType": "uuid"}, "INTEGER", 7),
    ({"type": "fixed", "name": "P", "size": 12, "logicalType": "duration"}, "BLOB", b"\1\0\0\0" * 3),
    ({"type": "long", "logicalType": "timestamp-nanos"}, "BIGINT", 1_772_368_215_123_456_789),
    ({"type": "long", "logicalType": "local-timestamp-nanos"}, "BIGINT", 1_772_368_215_123_456_789),
    ({"type": "bytes", "logicalType": "big-decimal"}, "BLOB", b"\2\x7d\4"),
    ({"type": "string", "logicalType": "of-our-own"}, "VARCHAR", "x"),
]


def below(avro: Any) -> Any:
    """Return a type without its logical type."""
    return {key: value for key, value in avro.items() if key != "logicalType"}


@pytest.mark.usefixtures("_each_decoder")
@pytest.mark.parametrize(("avro", "declared", "value"), IGNORED)
def test_a_logical_type_that_does_not_fit_is_ignored(server: Registry, avro: Any, declared: str, value: Any) -> None:
    for wrapped in (avro, ["null", avro]):
        schema = record(field("k", "int"), field("x", wrapped))
        written = message(
            record(field("k", "int"), field("x", below(avro) if wrapped is avro else ["null", below(avro)])),
            k=1,
            x=value,
        )
        id = server.add("ignored", schema)
        assert rows(confluent({"k": "INTEGER"}, server), framed(id, written)) == [(1, 100)]
        assert rows(confluent({"x": declared}, server), framed(id, written)) == [(value, 100)]
        [column] = columns_of(confluent({}, server, schema=json.dumps(record(field("x", wrapped)))), CONFLUENT)
        assert column.type == declared


LARGEST = 2**63 - 1
# Values that do not fit their type, some only in Python: type of Avro, declared type, value as it is stored, value that is read,
# None if the message is malformed.
UNFIT: list[tuple[Any, str, Any, Any]] = [
    (decimal_type(precision=4, scale=2), "DECIMAL(4, 2)", b"\1\xe2\x40", None),
    (decimal_type(precision=4, scale=2), "DECIMAL(4, 2)", b"\x7f" * 16, None),
    (decimal_type(precision=4, scale=2), "DECIMAL(4, 2)", b"\x7f" * 200_000, None),
    (decimal_type(precision=4, scale=2), "DECIMAL(4, 2)", b"\0" * 30 + b"\x7d", decimal.Decimal("1.25")),
    (decimal_type("fixed", size=20, precision=4), "DECIMAL(4, 0)", b"\x7f" * 20, None),
    (decimal_type(precision=38, scale=38), "DECIMAL(38, 38)", b"\xff", -decimal.Decimal(1).scaleb(-38)),
    ({"type": "long", "logicalType": "time-micros"}, "TIME", -1, None),
    ({"type": "long", "logicalType": "time-micros"}, "TIME", 86_400_000_000, None),
    ({"type": "int", "logicalType": "time-millis"}, "TIME", 86_400_000, None),
    ({"type": "long", "logicalType": "timestamp-millis"}, "TIMESTAMP", LARGEST, None),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, "TIMESTAMP", -LARGEST, None),
    ({"type": "string", "logicalType": "uuid"}, "VARCHAR", "No UUID", "No UUID"),
    ({"type": "string", "logicalType": "uuid"}, "VARCHAR", "A" * 32, "A" * 32),
]


@pytest.mark.usefixtures("_each_decoder")
@pytest.mark.parametrize(("avro", "declared", "stored", "read"), UNFIT)
def test_a_value_that_does_not_fit_costs_its_message_only_if_a_column_names_it(
    server: Registry, avro: Any, declared: str, stored: Any, read: Any
) -> None:
    id = server.add("unfit", record(field("k", "int"), field("x", avro)))
    schema = record(field("k", "int"), field("x", below(avro)))
    messages = [framed(id, message(schema, k=k, x=stored)) for k in (1, 2)]
    options = {"ignore-parse-errors": "true"}
    assert rows(confluent({"k": "INTEGER"}, server), *messages) == [(1, 100), (2, 101)]
    found = confluent({"K": "INTEGER", "X": declared}, server, **options)
    assert rows(found, *messages) == ([] if read is None else [(1, read, 100), (2, read, 101)])
    malformed = list(Messages(found).malformed_rows([messages]))
    assert [row.number for row in malformed] == ([100, 101] if read is None else [])
    assert all(row.reason.startswith(f"The value does not fit schema {id}: ") for row in malformed)


@pytest.mark.usefixtures("_each_decoder")
def test_a_time_after_the_year_9999_is_read(server: Registry) -> None:
    micros, day = {"type": "long", "logicalType": "timestamp-micros"}, {"type": "int", "logicalType": "date"}
    schema = record(field("at", micros), field("day", day), field("l", {"type": "array", "items": day}))
    id = server.add("late", schema)
    stored = record(field("at", "long"), field("day", "int"), field("l", {"type": "array", "items": "int"}))
    body = message(stored, at=10**18, day=10**7, l=[10**7])
    found = confluent({"at": "TIMESTAMP", "day": "DATE", "l": "DATE[]"}, server)
    with duckdb.connect() as con:
        plan = Messages(found).take(con, [[framed(id, body)]], WHERE)
        texts = con.execute(
            f'SELECT CAST("at" AS VARCHAR), CAST(day AS VARCHAR), CAST(l[1] AS VARCHAR) FROM {plan.well_formed}'
        ).fetchall()
    assert texts == [("33658-09-27 01:46:40", "29349-01-26", "29349-01-26")]


@pytest.mark.usefixtures("_each_decoder")
def test_a_default_that_does_not_fit_is_no_matter_of_reading(server: Registry) -> None:
    id = server.add(
        "defaults", record(field("k", "int", default="x"), field("m", {"type": "map", "values": "int"}, default=3))
    )
    body = message(record(field("k", "int"), field("m", {"type": "map", "values": "int"})), k=1, m={})
    assert rows(confluent({"k": "INTEGER"}, server), framed(id, body)) == [(1, 100)]


def test_a_field_without_a_type_cannot_be_a_column(server: Registry) -> None:
    schema = record(field("k", "int"), field("u", ["string", "int"]), field("n", ["null"]), name="Union")
    id = server.add("untyped", schema)
    body = framed(id, message(schema, k=1, u="x", n=None))
    assert rows(confluent({"k": "INTEGER", "n": "VARCHAR", "more": "DATE"}, server), body) == [(1, None, None, 100)]
    with pytest.raises(
        DataError, match=f'column "U" of table "t": its field in schema {id} has no type in SQL'
    ) as raised:
        rows(confluent({"k": "INTEGER", "U": "VARCHAR"}, server), body)
    assert raised.value.detail == 'It is: ["string", "int"].'


def test_a_schema_that_fastavro_rejects_is_no_matter_of_messages(server: Registry) -> None:
    schema = record(field("k", "int"), field("e", {"type": "enum", "name": "E", "symbols": ["A", "A"]}))
    id = server.add("rejected", schema)
    found = confluent({"k": "INTEGER"}, server, **{"ignore-parse-errors": "true"})
    with pytest.raises(DataError, match=f"schema {id} is no Avro schema"):
        rows(found, framed(id, b"\2\0\0"), framed(id, b"\2"))


def test_rows_are_written_as_they_are_read(server: Registry) -> None:
    with duckdb.connect() as con:
        given = con.sql(
            "SELECT 1::BIGINT AS k, 'a' AS s, [1, NULL] AS l, MAP {'a': 1.5::DOUBLE} AS m, {'p': 1, 'q': ['x']} AS r,"
            " TIMESTAMP '2026-03-01 12:30:15.123456' AS t, TIMESTAMPTZ '2026-03-01 12:30:15+00' AS z, 1.25::DECIMAL(5, 2) AS d,"
            " DATE '2026-03-01' AS day, TIME '01:02:03' AS at, 'ab'::BLOB AS b, true AS o UNION ALL SELECT 2"
            + ", NULL"
            * 11
        )
        columns = [Column(n, str(t)) for n, t in zip(given.columns, given.types, strict=True)]
        expected, arrow = given.fetchall(), given.to_arrow_table()
    declared = confluent({c.name: c.type for c in columns}, server)
    encode = encoder(declared, CONFLUENT, columns)
    messages = encode(arrow)
    assert server.subjects["t-value"]
    # The registry is asked once, and a second writer finds the schema.
    before = len(server.asked)
    assert encoder(declared, CONFLUENT, columns)(arrow) == messages
    assert len(server.asked) == before
    assert [row[:-1] for row in rows(declared, *messages)] == expected


def test_a_schema_must_be_there_where_none_is_registered(server: Registry) -> None:
    columns = [Column("unheard", "BIGINT")]
    declared = confluent({"unheard": "BIGINT"}, server, **{"auto-register": "false"})
    with pytest.raises(DataError, match="is not registered") as raised:
        encoder(declared, CONFLUENT, columns)
    assert "t-value" in raised.value.message
    encode = encoder(confluent({"unheard": "BIGINT"}, server), CONFLUENT, columns)
    rows_ = pa.table({"unheard": [1]})
    assert encoder(declared, CONFLUENT, columns)(rows_) == encode(rows_)


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [("topic", "clicks-value"), ("record", "org.Click"), ("topic-record", "clicks-org.Click"), (None, "own")],
)
def test_subjects(server: Registry, strategy: str | None, subject: str) -> None:
    schema = {**record(field("k", "long"), name="Click"), "namespace": "org"}
    options = {
        "schema": json.dumps(schema),
        **({"subject-name-strategy": strategy} if strategy else {"subject": "own"}),
    }
    found = confluent({"k": "BIGINT"}, server, **options)
    found.options["topic"] = "clicks"  # type: ignore[index]
    encoder(found, CONFLUENT, found.stored)
    assert subject in server.subjects


@pytest.mark.usefixtures("_each_decoder")
def test_evolution_by_names_aliases_and_defaults(server: Registry) -> None:
    older = record(field("id", "int"), field("gone", "string"))
    newer = record(field("k", "long"), field("s", ["null", "string"]), field("n", "int"))
    messages = [
        framed(server.add("e", older), message(older, id=1, gone="x")),
        framed(server.add("e", newer), message(newer, k=2, s="y", n=7)),
        framed(server.add("e", older), message(older, id=3, gone="z")),
    ]
    reader = record(
        field("k", "long", aliases=["id"]), field("s", "string", default="none"), field("n", "int", default=-1)
    )
    columns = {"K": "BIGINT", "s": "VARCHAR", "n": "BIGINT"}
    found = confluent(columns, server, schema=json.dumps(reader))
    assert rows(found, *messages) == [(1, "none", -1, 100), (2, "y", 7, 101), (3, "none", -1, 102)]
    # Without a schema of the reader's, what is not there is NULL.
    assert rows(confluent({"k": "BIGINT", "id": "INTEGER"}, server), *messages) == [
        (None, 1, 100),
        (2, None, 101),
        (None, 3, 102),
    ]
    with pytest.raises(DataError, match='column "s" of table "t" is BIGINT, and VARCHAR in schema') as raised:
        rows(confluent({"s": "BIGINT"}, server), *messages)
    assert raised.value.hint == "Declare it as VARCHAR, and convert it in the query."


@pytest.mark.usefixtures("_each_decoder")
def test_malformed_messages_are_told_from_their_neighbours(server: Registry) -> None:
    id = server.add("m", SIMPLE)
    good = [framed(id, message(SIMPLE, k=k, s=f"s{k}")) for k in range(6)]
    # Cut off, with bytes behind, a text that is none, a schema that does not exist, no frame.
    bad = [good[1][:-1], good[1] + b"x", good[1][:-1] + b"\xff", framed(7, b""), b'{"k": 1}']
    messages = [m for pair in zip(good, [*bad, good[0]], strict=True) for m in pair]
    found = confluent({"k": "BIGINT", "s": "VARCHAR"}, server, **{"ignore-parse-errors": "true"})
    assert [k for k, *_ in rows(found, *messages)] == [0, 1, 2, 3, 4, 5, 0]
    malformed = list(Messages(found).malformed_rows([messages]))
    assert [row.number for row in malformed] == [101, 103, 105, 107, 109]
    assert "1 bytes are left over" in malformed[1].reason
    assert malformed[3].reason == "The registry has no schema 7"
    assert malformed[4].reason == "The value has no schema id of a registry in front"
    assert malformed[4].text == '{"k": 1}'
    assert malformed[0].text == f"0x{bad[0].hex().upper()}"


def test_messages_without_a_registry() -> None:
    declared = table({"k": "BIGINT", "s": "VARCHAR"}, "avro", **{"avro.schema": json.dumps(SIMPLE)})
    messages = encoder(declared, "avro", declared.stored)(pa.table({"k": [1, 2], "s": ["a", None]}))
    assert messages == [message(SIMPLE, k=1, s="a"), message(SIMPLE, k=2, s=None)]
    assert rows(declared, *messages) == [(1, "a", 100), (2, None, 101)]
    with pytest.raises(DataError, match="do not say what their schema is"):
        rows(table({"k": "BIGINT"}, "avro"), *messages)
    with pytest.raises(DataError, match='a row of table "t" does not fit'):
        encoder(declared, "avro", declared.stored)(pa.table({"k": [None], "s": ["a"]}))


def test_columns_of_the_registry(server: Registry) -> None:
    address = record(field("street", "string"), name="Address")
    server.add("address", address)
    schema = record(
        field("k", "long"),
        field("home", "Address"),
        field("work", ["null", "Address"]),
        field("at", {"type": "long", "logicalType": "timestamp-millis"}),
    )
    id = server.add("t-value", schema, references=({"name": "Address", "subject": "address", "version": 1},))
    found = confluent({}, server)
    assert [(c.name, c.type) for c in columns_of(found, CONFLUENT)] == [
        ("k", "BIGINT"),
        ("home", "STRUCT(street VARCHAR)"),
        ("work", "STRUCT(street VARCHAR)"),
        ("at", "TIMESTAMP WITH TIME ZONE"),
    ]
    parsed: dict[str, Any] = {}
    fastavro.parse_schema(dict(address), parsed)
    stream = io.BytesIO()
    value = {"k": 1, "home": {"street": "a"}, "work": None, "at": MOMENT}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema, parsed), value)
    home = confluent({"home": "STRUCT(street VARCHAR)"}, server)
    assert rows(home, framed(id, stream.getvalue())) == [({"street": "a"}, 100)]
    server.add("u-value", record(field("u", ["string", "int"])))
    with pytest.raises(UnsupportedError, match='field "u"'):
        columns_of(confluent({}, server, subject="u-value"), CONFLUENT)
    with pytest.raises(DataError, match='no subject "nowhere"'):
        columns_of(confluent({}, server, subject="nowhere"), CONFLUENT)


def test_who_asks_and_a_registry_that_stays_away(server: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "_PAUSE", 0.01)
    id = server.add("guarded", record(field("guarded", "long")))
    body = framed(id, message(record(field("guarded", "long")), guarded=1))
    server.authorization = "Basic dTpw"
    try:
        with pytest.raises(JobError, match="refuses: 401 Unauthorized"):
            rows(confluent({"guarded": "BIGINT"}, server), body)
        options = {"basic-auth.user-info": "u:p"}
        server.failing = 2
        assert rows(confluent({"guarded": "BIGINT"}, server, **options), body) == [(1, 100)]
        server.authorization = "Bearer abc"
        elsewhere = {"url": f"http://127.0.0.1:9, {server.url}", "bearer-auth.token": "abc"}
        found = confluent({"guarded": "BIGINT"}, server)
        found = table({"guarded": "BIGINT"}, CONFLUENT, **{f"{CONFLUENT}.{k}": v for k, v in elsewhere.items()})
        assert rows(found, body) == [(1, 100)]
    finally:
        server.authorization = None
    gone = table({"guarded": "BIGINT"}, CONFLUENT, **{f"{CONFLUENT}.url": "http://u:geheim@127.0.0.1:9"})
    with pytest.raises(OutageError, match="does not answer") as raised:
        rows(gone, body)
    assert "geheim" not in str(raised.value)
