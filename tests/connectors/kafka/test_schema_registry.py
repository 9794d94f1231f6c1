"""Topics whose messages have their schemas in a registry: columns, evolution, dead letters, keys."""

from __future__ import annotations

import pytest

from sqlstream.connectors.formats.schema_registry import framed
from sqlstream.errors import BindError
from sqlstream.testing import Stream
from tests.connectors.formats.registry_server import serving
from tests.connectors.formats.test_avro import SIMPLE, field, message, record
from tests.connectors.kafka.topics import Topic

pytestmark = pytest.mark.kafka


def test_avro_with_a_registry(kafka: str) -> None:
    topic, older = Topic(kafka), record(field("k", "int"))
    with serving() as server:
        first, newest = server.add(f"{topic.name}-value", older), server.add(f"{topic.name}-value", SIMPLE)
        key = server.add(f"{topic.name}-key", record(field("id", "string")))
        topic.send(framed(first, message(older, k=1)), framed(newest, message(SIMPLE, k=2, s="two")), b"nothing", None)
        name = message(record(field("id", "string")), id="x")
        topic.send(framed(newest, message(SIMPLE, k=3, s=None)), key=framed(key, name))
        options = f", 'avro-confluent.url' = '{server.url}', 'avro-confluent.errors-to' = 'dead'"
        script = topic.table("COLUMNS", options, format="avro-confluent").replace("(COLUMNS)", "")
        keyed = topic.table(
            "id STRING, k BIGINT",
            f", 'key.format' = 'avro-confluent', 'key.avro-confluent.url' = '{server.url}', 'key.fields' = 'id'"
            f", 'value.fields-include' = 'EXCEPT_KEY', 'avro-confluent.url' = '{server.url}'"
            ", 'avro-confluent.ignore-parse-errors' = 'true'",
            name="keyed",
            format="avro-confluent",
        )
        script += f"{keyed} CREATE TABLE kept (k BIGINT, s STRING); CREATE TABLE ids (id STRING, k BIGINT);"
        script += "INSERT INTO kept SELECT k, s FROM t; INSERT INTO ids SELECT id, k FROM keyed"
        with Stream(script) as stream:
            stream.finish()
            assert sorted(stream.query("SELECT * FROM kept")) == [(1, None), (2, "two"), (3, None)]
            assert sorted(stream.query("SELECT * FROM ids"), key=repr) == [("x", 3), (None, 1), (None, 2)]
            dead = stream.query("SELECT source_table, row_number, text, reason FROM dead")
            assert dead == [("t", 2, "nothing", "The value has no schema id of a registry in front")]


def test_a_table_names_its_registry(kafka: str) -> None:
    with pytest.raises(BindError, match=r'table "t" needs the option "avro-confluent\.url"'):
        Stream(Topic(kafka).table("k BIGINT", format="avro-confluent") + "SELECT * FROM t")
