"""Topics with the last row of each key, read back: what a job has written is what another one finds."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from sqlstream.errors import DataError
from sqlstream.testing import Stream
from tests.connectors.formats.registry_server import Registry, serving
from tests.connectors.formats.test_avro import field, record
from tests.connectors.formats.test_protobuf import LONG, TEXT, add
from tests.connectors.kafka.topics import Topic, rows_of
from tests.connectors.kafka.written import make_topic, raw_messages

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

WITH = """WITH ('connector' = 'upsert-kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}',
    'key.format' = 'json', 'value.format' = 'json'{more});
"""
BOUNDED = ", 'scan.bounded.mode' = 'latest-offset'"
TOTALS = "CREATE TABLE totals (v STRING, n BIGINT, PRIMARY KEY (v) NOT ENFORCED) " + WITH
WRITING = (
    "CREATE TABLE given (v STRING);\n{totals} INSERT INTO totals SELECT v, count(*) FROM given GROUP BY v {having}"
)
READING = """{totals}
CREATE TABLE names (v STRING, name STRING);
CREATE TABLE found (v STRING, n BIGINT);
CREATE TABLE sums (n BIGINT, keys BIGINT);
CREATE TABLE named (name STRING, n BIGINT);
INSERT INTO found SELECT v, n FROM totals;
INSERT INTO sums SELECT n, count(*) FROM totals GROUP BY n;
INSERT INTO named SELECT name, n FROM totals JOIN names ON totals.v = names.v;
"""
BATCHES: list[list[str | None]] = [["a", "b", "c", "d"], ["a", "b", None, "d"], ["a", "a", "b"], ["a", "e", "c"]]
# Of a, three and four rows are none of the result: a tombstone in between, and a new row behind it.
HAVING = "HAVING count(*) < 3 OR count(*) > 4"


def counted(batches: list[list[str | None]]) -> dict[str | None, int]:
    values = [v for batch in batches for v in batch]
    counts = {v: values.count(v) for v in values}
    return {v: n for v, n in counts.items() if n < 3 or n > 4}


def written(totals: str) -> Iterator[list[list[str | None]]]:
    """Write batch after batch, with a restart; yield those that are written."""
    with Stream(WRITING.format(totals=totals, having=HAVING)) as writer:
        for number, batch in enumerate(BATCHES, start=1):
            writer.batch("given", [(v,) for v in batch])
            if number == 2:
                writer.restart()
            yield BATCHES[:number]


def check(stream: Stream, expected: dict[str | None, int], names: dict[str, str]) -> None:
    assert dict(stream.query("SELECT v, n FROM found")) == expected
    sums = {n: sum(other == n for other in expected.values()) for n in expected.values()}
    assert dict(stream.query("SELECT n, keys FROM sums")) == sums
    assert dict(stream.query("SELECT name, n FROM named")) == {names[v]: n for v, n in expected.items() if v in names}


def test_what_was_written_is_read_back(kafka: str) -> None:
    topic = make_topic(kafka, 3, **{"cleanup.policy": "compact"})
    names = {"a": "Ann", "e": "Eve"}
    live = TOTALS.format(topic=topic, servers=kafka, more=", 'sink.delivery-guarantee' = 'exactly-once'")
    *_, whole = written(live)
    assert counted(whole)["a"] == 5
    with Stream(READING.format(totals=TOTALS.format(topic=topic, servers=kafka, more=BOUNDED))) as stream:
        stream.batch("names", list(names.items()))
        stream.finish()
        check(stream, counted(whole), names)


def total_file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="total.proto", syntax="proto3")
    message = file.message_type.add(name="Total")
    add(message, "v", TEXT, optional=True)
    add(message, "n", LONG, optional=True)
    return file


def given(part: str, form: str, folder: Path, server: Registry) -> str:
    """Return the options of a format of bytes, as a key or a value."""
    descriptors = folder / "total.desc"
    descriptors.write_bytes(FileDescriptorSet(file=[total_file()]).SerializeToString())
    fields = [field("v", ["null", "string"]), field("n", ["null", "long"], default=None)]
    options = {
        "avro": {"schema": json.dumps(record(*fields[: 1 if part == "key" else 2]))},
        "protobuf": {"descriptor-file": str(descriptors), "message-name": "Total"},
    }
    own = options.get(form, {"url": server.url})
    return f"'{part}.format' = '{form}'" + "".join(f", '{part}.{form}.{n}' = '{v}'" for n, v in own.items())


def decoded(form: str, body: bytes, server: Registry) -> tuple[str | None, int | None]:
    """Return a value as other programs read it; its schema is the one that its head names."""
    if form == "protobuf":
        pool = descriptor_pool.DescriptorPool()
        pool.AddSerializedFile(total_file().SerializeToString())
        total = message_factory.GetMessageClass(pool.FindMessageTypeByName("Total")).FromString(body)
        return total.v if total.HasField("v") else None, total.n
    schema = json.loads(server.schemas[int.from_bytes(body[1:5], "big") - 100]["schema"])
    row = fastavro.schemaless_reader(io.BytesIO(body[5:]), schema, None)
    assert isinstance(row, dict)
    return row["v"], row["n"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("protobuf-confluent", "avro-confluent"),
        pytest.param("avro", "protobuf", marks=pytest.mark.thorough),
    ],
)
def test_formats_of_bytes_are_read_back(kafka: str, tmp_path: Path, key: str, value: str) -> None:
    topic = make_topic(kafka, 2, **{"cleanup.policy": "compact"})
    with serving() as server:
        formats = f"{given('key', key, tmp_path, server)}, {given('value', value, tmp_path, server)}"
        totals = TOTALS.replace(
            "'key.format' = 'json', 'value.format' = 'json'", formats.replace("{", "{{").replace("}", "}}")
        )
        live = totals.format(topic=topic, servers=kafka, more=", 'sink.delivery-guarantee' = 'exactly-once'")
        *_, whole = written(live)
        last = dict(raw_messages(kafka, topic))
        assert None in last.values(), "a tombstone"
        assert dict(decoded(value, body, server) for body in last.values() if body is not None) == counted(whole)
        reading = totals.format(topic=topic, servers=kafka, more=BOUNDED)
        found = "CREATE TABLE found (v STRING, n BIGINT); INSERT INTO found SELECT v, n FROM totals;"
        with Stream(reading + found) as stream:
            stream.finish()
            assert dict(stream.query("SELECT v, n FROM found")) == counted(whole)


def test_a_reader_follows_the_writer(kafka: str) -> None:
    topic = make_topic(kafka, 2)
    totals = TOTALS.format(topic=topic, servers=kafka, more="")
    with Stream(READING.format(totals=totals)) as stream:
        for written_now in written(totals):
            wanted = counted(written_now)
            while dict(stream.query("SELECT v, n FROM found")) != wanted:
                for run in stream.runs.values():
                    run.pull()
            stream.restart()
        for run in stream.runs.values():
            run.pull()
        check(stream, wanted, {})


def test_keys_stand_in_keys_and_what_is_none_is_named(kafka: str) -> None:
    topic = Topic(kafka)
    sent = [("1", "x"), ("2", "y"), ("1", None), ("3", None), ("3", "z"), ("3", "z2")]
    for key, value in sent:
        topic.send(value, key=key)
    more = BOUNDED + ", 'value.fields-include' = 'EXCEPT_KEY', 'key.fields-prefix' = 'k_'"
    columns = "k_id INT, word STRING, at BIGINT METADATA FROM 'offset', PRIMARY KEY (k_id) NOT ENFORCED"
    table = f"CREATE TABLE t ({columns}) " + WITH.format(topic=topic.name, servers=kafka, more=more)
    table = table.replace(
        "'key.format' = 'json', 'value.format' = 'json'", "'key.format' = 'csv', 'value.format' = 'raw'"
    )
    assert [row[1:] for row in rows_of(table)] == [(2, "y", 1), (3, "z2", 5)]
    topic.send("no key")
    with pytest.raises(DataError, match=f'the value at offset 6 of partition 0 of topic "{topic.name}"') as told:
        rows_of(table)
    assert "The message has no key" in str(told.value.detail)
    skipping = table.replace("'value.format'", "'value.raw.ignore-parse-errors' = 'true', 'value.format'")
    topic.send(None, key="two")
    assert [row[1:] for row in rows_of(skipping)] == [(2, "y", 1), (3, "z2", 5)]
