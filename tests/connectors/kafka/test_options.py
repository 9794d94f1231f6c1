"""Options of topics: what does not go together, what Java clients call differently, and addresses where nobody is."""

from __future__ import annotations

import time

import pytest

from sqlstream.catalog import Table
from sqlstream.connectors.kafka import cluster
from sqlstream.connectors.kafka.client import settings
from sqlstream.connectors.kafka.producing import Sender, Topic
from sqlstream.connectors.registry import source_of
from sqlstream.connectors.tables import identifying_options
from sqlstream.errors import BindError, SqlStreamError, UsageError
from tests.kafka_broker import free_port
from tests.kinds import last_job

KAFKA = {"connector": "kafka", "topic": "orders", "format": "json", "properties.bootstrap.servers": "localhost:1"}


def declared(columns: str = "n INT", /, **options: str | None) -> Table:
    given = {**KAFKA, **{k: v for k, v in options.items() if v is not None}}
    left = {k: v for k, v in given.items() if not (k in options and options[k] is None)}
    pairs = ", ".join(f"'{k}' = '{v}'" for k, v in left.items())
    return last_job(f"CREATE TABLE t ({columns}) WITH ({pairs}); SELECT * FROM t").physical.scans[0].table


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": None}, 'table "t" needs the option "topic"'),
        ({"topic-pattern": "o.*"}, 'table "t" has both "topic" and "topic-pattern"'),
        ({"topic-pattern": "(", "topic": None}, 'table "t": option "topic-pattern": "(" is no regular expression'),
        ({"properties.no.such": "x"}, 'table "t": librdkafka refuses the properties'),
        ({"properties.fetch.min.bytes": "x"}, 'table "t": librdkafka refuses the properties'),
        (
            {"properties.ssl.truststore.location": "/a.jks"},
            'table "t": option "properties.ssl.truststore.location" is one of Java clients, which librdkafka does not have',
        ),
        (
            {"properties.ssl.keystore.type": "JKS"},
            'table "t": option "properties.ssl.keystore.type" is one of Java clients, which librdkafka does not have',
        ),
        (
            {"properties.ssl.keystore.location": "/ann.pem"},
            'table "t": option "properties.ssl.keystore.location" has no meaning without encryption',
        ),
        (
            {"properties.security.protocol": "SSL", "properties.ssl.ca.pem": "no certificate"},
            'table "t": librdkafka refuses the properties',
        ),
        (
            {"scan.startup.mode": "timestamp"},
            '"scan.startup.mode" = "timestamp" needs the option "scan.startup.timestamp',
        ),
        ({"scan.startup.mode": "sometimes"}, 'option "scan.startup.mode": "sometimes" is not one of earliest-offset'),
        ({"scan.bounded.timestamp-millis": "1"}, 'option "scan.bounded.timestamp-millis" has no meaning here'),
        (
            {"scan.startup.mode": "group-offsets", "properties.group.id": "g", "properties.auto.offset.reset": "first"},
            'option "properties.auto.offset.reset": "first" is not one of earliest, latest, none',
        ),
        ({"scan.startup.mode": "group-offsets"}, 'needs the option "properties.group.id"'),
        (
            {"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "0:1"},
            '"0:1" is not as partition:0,offset:42',
        ),
        ({"key.format": "raw"}, 'option "key.format" needs the option "key.fields"'),
        ({"key.format": "raw", "key.fields": "m"}, 'column "m" of "key.fields" does not exist'),
        (
            {"key.format": "json", "key.fields": "k_n", "key.fields-prefix": "k_"},
            'option "key.fields-prefix" needs "value.fields-include" = "EXCEPT_KEY"',
        ),
        (
            {"key.format": "json", "key.fields": "n", "key.fields-prefix": "k_"},
            'column "n" of "key.fields" does not begin with "k_"',
        ),
        (
            {"key.format": "raw", "key.fields": "n;k_n"},
            'key.format "raw" holds one column, a number, BOOLEAN, STRING or BYTES, not n INTEGER, k_n INTEGER',
        ),
        ({"format": "raw"}, 'format "raw" holds one column, a number, BOOLEAN, STRING or BYTES, not n INTEGER, k_n'),
        (
            {"key.format": "raw", "key.fields": "n", "key.raw.endianness": "middle"},
            'option "key.raw.endianness": "middle" is neither big-endian nor little-endian',
        ),
        ({"value.format": "json"}, 'table "t" has both "format" and "value.format"'),
        ({"format": "avro2"}, 'format "avro2" does not exist'),
    ],
)
def test_what_is_refused(options: dict[str, str | None], message: str) -> None:
    with pytest.raises(SqlStreamError) as raised:
        declared("n INT, k_n INT", **options)
    assert message in raised.value.message


def test_names_of_java_clients_are_translated() -> None:
    login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="hunter2";'
    given = {
        "sasl.jaas.config": login,
        "fetch.max.wait.ms": "10",
        "ssl.truststore.location": "/ca.pem",
        "enable.auto.commit": "false",
        "ssl.endpoint.identification.algorithm": "",
    }
    table = Table("t", (), options={**KAFKA, **{f"properties.{k}": v for k, v in given.items()}})
    assert settings(table) == {
        "bootstrap.servers": "localhost:1",
        "sasl.username": "ann",
        "sasl.password": "hunter2",
        "fetch.wait.max.ms": "10",
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }
    other = Table("t", (), options={**KAFKA, "properties.sasl.jaas.config": "com.x.Krb5LoginModule required;"})
    with pytest.raises(BindError):
        settings(other)


def test_a_job_is_the_same_however_it_connects() -> None:
    here = declared(
        "k STRING, n INT", **{"value.format": "json", "format": None, "value.json.ignore-parse-errors": "true"}
    )
    there = declared(
        "k STRING, n INT", **{"properties.bootstrap.servers": "elsewhere:1", "scan.startup.mode": "latest-offset"}
    )
    assert identifying_options(here) == identifying_options(there)
    assert identifying_options(here) != identifying_options(declared(topic="others"))


@pytest.mark.slow
def test_nobody_answers_at_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 1.0)
    address = f"127.0.0.1:{free_port()}"
    source, began = source_of(declared(**{"properties.bootstrap.servers": address})), time.monotonic()
    with pytest.raises(UsageError) as raised:
        source.check_input("")
    assert time.monotonic() - began < 60
    assert raised.value.message == f'table "t": no broker of Kafka answers at {address}'
    assert "Connection refused" in (raised.value.detail or "")


def test_a_file_of_certificates_is_missed_where_a_job_connects() -> None:
    options = {"properties.security.protocol": "SSL", "properties.ssl.truststore.location": "/no-ca.pem"}
    # A plan is made without it, on any machine.
    table = declared(**options)
    for connects in (lambda: source_of(table).check_input(""), lambda: Sender(Topic(table), {})):
        with pytest.raises(UsageError) as raised:
            connects()
        assert raised.value.message == 'table "t": file "/no-ca.pem" does not exist'
        assert raised.value.span is not None
        assert raised.value.span.text == "'/no-ca.pem'"


def test_where_changes_can_be_written_is_said() -> None:
    pairs = ", ".join(f"'{k}' = '{v}'" for k, v in KAFKA.items())
    with pytest.raises(SqlStreamError) as refused:
        last_job(
            f"CREATE TABLE s (k INT) WITH ('connector' = 'datagen'); CREATE TABLE t (k INT, n BIGINT) WITH ({pairs});"
            "INSERT INTO t SELECT k, COUNT(*) FROM s GROUP BY k"
        )
    assert refused.value.hint is not None
    told = "Write into a table with the connector 'upsert-kafka' or the format 'debezium-json', or aggregate in windows"
    assert told in refused.value.hint


def test_what_is_refused_of_keys_of_changes() -> None:
    replacing = {"connector": "upsert-kafka", "format": None, "key.format": "json", "value.format": "json"}
    with pytest.raises(BindError) as unlike:
        declared("id INT, n INT, PRIMARY KEY (id) NOT ENFORCED", **replacing, **{"key.fields-prefix": "k_"})
    assert unlike.value.message == 'table "t": column "id" of the PRIMARY KEY does not begin with "k_"'
    keyed = {"format": "debezium-json", "key.format": "json", "key.fields": "id", "value.fields-include": "EXCEPT_KEY"}
    with pytest.raises(BindError) as apart:
        declared("id INT, n INT", **keyed)
    assert apart.value.message == (
        'table "t": "value.fields-include" = "EXCEPT_KEY" does not go with rows that are changes'
    )
