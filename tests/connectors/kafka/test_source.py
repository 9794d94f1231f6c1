"""Topics of a real broker as tables: what is read, from where to where, and what becomes of what cannot be read."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from sqlstream.connectors.kafka.ranges import OffsetRange
from sqlstream.connectors.kafka.ranges import TopicPartition as MessagePartition
from sqlstream.connectors.kafka.reader import MessageReader
from sqlstream.connectors.kafka.sizes import MessageSizes
from sqlstream.errors import DataError, SqlStreamError, UsageError
from sqlstream.testing import Stream
from tests.connectors.kafka.topics import Topic, rows_of
from tests.connectors.kafka.written import raw_messages
from tests.processes import wait_until

pytestmark = pytest.mark.kafka


def test_a_message_has_a_key_a_value_and_metadata(kafka: str) -> None:
    topic = Topic(kafka, 2)
    topic.send({"n": 1}, key='{"id": 7}', headers=[("h", b"x"), ("h", b"y")], timestamp=1_767_225_600_000)
    topic.send({"n": 2}, None, partition=1)
    columns = """k_id BIGINT, n INT, topic STRING METADATA, p INT METADATA FROM 'partition',
        o BIGINT METADATA FROM 'offset', h MAP<STRING, BYTES> METADATA FROM 'headers',
        made TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', kind STRING METADATA FROM 'timestamp-type',
        epoch INT METADATA FROM 'leader-epoch'"""
    keyed = """, 'value.format' = 'json', 'key.format' = 'json', 'key.fields' = 'k_id', 'key.fields-prefix' = 'k_',
        'value.fields-include' = 'EXCEPT_KEY'"""
    script = topic.table(columns, keyed, format=None)
    select = f"SELECT k_id, n, p, o, topic = '{topic.name}', CAST(h AS STRING), epoch_ms(made), kind, epoch FROM t"
    found = rows_of(script, select)
    assert found[0] == (7, 1, 0, 0, True, "{h=y}", 1_767_225_600_000, "CreateTime", 0)
    # A message without a value is no row; one without a key has no column of it.
    assert [row[:4] for row in found[1:]] == [(None, 2, 1, 0)]


def test_formats(kafka: str) -> None:
    csv = Topic(kafka)
    csv.send('1,"a, b"', "2,")
    assert rows_of(csv.table("k INT, s STRING", format="csv")) == [(1, "a, b"), (2, None)]
    raw = Topic(kafka)
    raw.send(b"text", b"")
    assert rows_of(raw.table("line STRING", format="raw")) == [("",), ("text",)]
    raw.send(b"\xff")
    assert rows_of(raw.table("data BYTES", format="raw")) == [(b"",), (b"\xff",), (b"text",)]
    with pytest.raises(
        SqlStreamError, match=f'offset 2 of partition 0 of topic "{raw.name}" of table "t" is malformed'
    ):
        rows_of(raw.table("line STRING", format="raw"))


# Of each type a value, and its bytes as Flink's raw format has them.
RAW = {
    "BOOLEAN": (True, b"\x01"),
    "TINYINT": (-2, b"\xfe"),
    "SMALLINT": (258, b"\x01\x02"),
    "INT": (258, b"\x00\x00\x01\x02"),
    "BIGINT": (-2, b"\xff" * 7 + b"\xfe"),
    "FLOAT": (1.5, b"\x3f\xc0\x00\x00"),
    "DOUBLE": (1.5, b"\x3f\xf8" + b"\x00" * 6),
    "STRING": ("zürich", "zürich".encode()),
    "BYTES": (b"\x00\xff", b"\x00\xff"),
}


def test_raw_keys_of_every_type_are_written_and_read(kafka: str) -> None:
    names = {kind: f"t_{kind.lower()}" for kind in RAW}
    topics = {kind: Topic(kafka) for kind in RAW}
    tables = "".join(
        topics[kind].table(
            f"k {kind}, n INT",
            ", 'key.format' = 'raw', 'key.fields' = 'k', 'value.fields-include' = 'EXCEPT_KEY'",
            name=name,
        )
        for kind, name in names.items()
    )
    columns = ", ".join(f"c_{kind.lower()} {kind}" for kind in RAW)
    inserts = "".join(f"INSERT INTO {name} SELECT c_{kind.lower()}, n FROM given;\n" for kind, name in names.items())
    with Stream(f"CREATE TABLE given (n INT, {columns});\n{tables}{inserts}") as stream:
        stream.batch("given", [(1, *(value for value, _ in RAW.values())), (2, *(None for _ in RAW))])
    for kind, (value, encoded) in RAW.items():
        assert {*raw_messages(kafka, topics[kind].name)} == {(encoded, b'{"n":1}'), (None, b'{"n":2}')}, kind
        more = ", 'key.format' = 'raw', 'key.fields' = 'k', 'value.fields-include' = 'EXCEPT_KEY'"
        assert rows_of(topics[kind].table(f"k {kind}, n INT", more)) == sorted([(value, 1), (None, 2)], key=repr), kind


def test_raw_options_of_keys_and_values(kafka: str) -> None:
    topic = Topic(kafka)
    more = ", 'key.format' = 'raw', 'key.fields' = 'k', 'value.fields-include' = 'EXCEPT_KEY', 'value.format' = 'raw'"
    more += ", 'key.raw.endianness' = 'little-endian', 'value.raw.charset' = 'UTF-16'"
    table = topic.table("k BIGINT, v STRING", more, format=None)
    with Stream(f"CREATE TABLE given (k BIGINT, v STRING);\n{table}INSERT INTO t SELECT * FROM given;") as stream:
        stream.batch("given", [(258, "zü"), (None, ""), (3, None)])
    written = [
        (None, b"\xfe\xff"),
        (b"\x02\x01" + b"\x00" * 6, b"\xfe\xff\x00z\x00\xfc"),
        (b"\x03" + b"\x00" * 7, None),
    ]
    assert sorted(raw_messages(kafka, topic.name), key=str) == sorted(written, key=str)
    # A message without a value is no row.
    assert rows_of(table) == [(258, "zü"), (None, "")]
    topic.send(b"\x00", key=b"\x01" * 8)
    with pytest.raises(DataError) as raised:
        rows_of(topic.table("k BIGINT, v STRING", more, format=None))
    assert raised.value.detail == "The bytes are no text: 0x00"
    topic.send(b"", key=b"123")
    skipping = f"{more}, 'value.raw.errors-to' = 'wrong'"
    script = f"CREATE TABLE o (k BIGINT, v STRING);\n{topic.table('k BIGINT, v STRING', skipping, format=None)}"
    with Stream(f"{script} INSERT INTO o SELECT * FROM t;") as stream:
        stream.finish()
        reasons = stream.query("SELECT row_number, reason FROM wrong ORDER BY row_number")
    assert reasons == [(3, "The bytes are no text"), (4, "Of the key: BIGINT has 8 bytes, and the value 3")]


@pytest.mark.parametrize("keyed", [False, True])
def test_the_bytes_of_messages_are_those_of_keys_values_and_headers(kafka: str, keyed: bool) -> None:
    topic = Topic(kafka, 2)
    topic.send("{}", key="k" * 10, headers=[("h", b"x" * 5), ("ü", None)])
    topic.send('{"n": 1}', None, partition=1, key="key")
    more = ", 'key.format' = 'raw', 'key.fields' = 'k', 'value.fields-include' = 'EXCEPT_KEY'" if keyed else ""
    with Stream(topic.table("k STRING, n INT", more) + "SELECT * FROM t;") as stream:
        stream.finish()
        [run] = stream.runs.values()
        [source] = run.totals.sources.values()
        assert source.bytes == (2 + 10 + 1 + 5 + 2) + (8 + 3) + 3


def test_changes_of_debezium_are_netted(kafka: str) -> None:
    topic = Topic(kafka)
    topic.send(
        {"op": "c", "after": {"id": 1, "n": 5}},
        {"op": "c", "after": {"id": 2, "n": 7}},
        {"op": "u", "before": {"id": 1, "n": 5}, "after": {"id": 1, "n": 6}},
        {"op": "d", "before": {"id": 2, "n": 7}},
        None,
    )
    script = topic.table("id INT, n INT, PRIMARY KEY (id) NOT ENFORCED", format="debezium-json")
    script += "CREATE TABLE kept (id INT, n INT, PRIMARY KEY (id) NOT ENFORCED); INSERT INTO kept SELECT * FROM t;"
    with Stream(script) as stream:
        stream.finish()
        assert stream.query("SELECT * FROM kept") == [(1, 6)]


def test_where_to_begin_and_to_end(kafka: str) -> None:
    topic = Topic(kafka, 2)
    for n in range(4):
        topic.send({"n": n}, timestamp=1_000_000 + n)
    topic.send({"n": 10}, partition=1, timestamp=1_000_002)
    group = f"group-{uuid.uuid4().hex[:8]}"
    commit(kafka, group, TopicPartition(topic.name, 0, 3))

    def found(more: str) -> list[int]:
        return sorted(n for (n,) in rows_of(topic.table("n INT", more)))

    assert found(", 'scan.startup.mode' = 'latest-offset'") == []
    startup, bounded = "'scan.startup.mode' =", "'scan.bounded.mode' ="
    assert found(f", {startup} 'timestamp', 'scan.startup.timestamp-millis' = '1000002'") == [2, 3, 10]
    assert found(f", {bounded} 'timestamp', 'scan.bounded.timestamp-millis' = '1000002'") == [0, 1]
    assert found(f", {startup} 'specific-offsets', 'scan.startup.specific-offsets' = 'partition:0,offset:2'") == [
        2,
        3,
        10,
    ]
    assert found(f", {bounded} 'specific-offsets', 'scan.bounded.specific-offsets' = 'partition:0,offset:1'") == [0, 10]
    in_group = f", 'properties.group.id' = '{group}'"
    assert found(f"{in_group}, {startup} 'group-offsets'") == [3, 10]
    # The job has published how far it was.
    assert found(f"{in_group}, {startup} 'group-offsets', {bounded} 'group-offsets'") == []
    with pytest.raises(SqlStreamError, match=f'topic "{topic.name}" has no partition 5'):
        found(f", {startup} 'specific-offsets', 'scan.startup.specific-offsets' = 'partition:5,offset:2'")
    fresh = (
        f", 'properties.group.id' = 'no-{group}', 'properties.auto.offset.reset' = 'none', {startup} 'group-offsets'"
    )
    with pytest.raises(SqlStreamError, match="has committed no offset of partition 0"):
        found(fresh)


def commit(kafka: str, group: str, *places: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": group})
    consumer.commit(offsets=list(places), asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
def test_a_bound_by_a_group_needs_its_offsets_whatever_the_reset(kafka: str, reset: str) -> None:
    # The last partition has no message, and so no offset at which to end.
    topic, group = Topic(kafka, 3), f"group-{uuid.uuid4().hex[:8]}"
    topic.send(*({"n": n} for n in range(4)))
    topic.send({"n": 10}, {"n": 11}, partition=1)
    commit(kafka, group, TopicPartition(topic.name, 0, 3))
    more = f", 'properties.group.id' = '{group}', 'properties.auto.offset.reset' = '{reset}'"
    script = topic.table("n INT", f"{more}, 'scan.bounded.mode' = 'group-offsets'")
    with pytest.raises(UsageError) as raised:
        rows_of(script)
    assert raised.value.message == (
        f'table "t": group "{group}" has committed no offset of partition 1 of topic "{topic.name}"'
    )
    assert "'scan.bounded.mode' = 'latest-offset'" in (raised.value.hint or "")
    commit(kafka, group, TopicPartition(topic.name, 1, 1))
    assert rows_of(script) == [(0,), (1,), (10,), (2,)]


def test_a_job_that_goes_on_needs_no_offsets_of_its_group(kafka: str) -> None:
    topic, group = Topic(kafka), f"group-{uuid.uuid4().hex[:8]}"
    topic.send({"n": 1}, {"n": 2})
    commit(kafka, group, TopicPartition(topic.name, 0, 1))
    more = f", 'properties.group.id' = '{group}', 'properties.auto.offset.reset' = 'none'"
    more += ", 'scan.startup.mode' = 'group-offsets', 'scan.bounded.mode' = 'unbounded'"
    script = topic.table("n INT", more) + "CREATE TABLE kept (n INT); INSERT INTO kept SELECT n FROM t;"
    with Stream(script) as stream:

        def kept(*numbers: int) -> bool:
            for run in stream.runs.values():
                run.pull()
            return stream.query("SELECT n FROM kept ORDER BY n") == [(n,) for n in numbers]

        wait_until(lambda: kept(2))
        topic.grow(2)
        topic.send({"n": 3}, partition=1)
        # The new partition is read from its first message.
        stream.restart()
        wait_until(lambda: kept(2, 3))


def test_transactions_leave_holes(kafka: str) -> None:
    topic = Topic(kafka)
    topic.transact(([{"n": 1}, {"n": 2}], True), ([{"n": 3}], False), ([{"n": 4}], True), ([{"n": 5}], False))
    assert rows_of(topic.table("n INT")) == [(1,), (2,), (4,)]
    one = ", 'scan.max-rows-per-batch' = '1'"
    assert rows_of(topic.table("n INT", one)) == [(1,), (2,), (4,)]
    everything = rows_of(topic.table("n INT", ", 'properties.isolation.level' = 'read_uncommitted'"))
    assert everything == [(1,), (2,), (3,), (4,), (5,)]


def _places(messages: Sequence[Message]) -> pa.RecordBatch:
    found = [{"topic": m.topic(), "partition": m.partition(), "offset": m.offset()} for m in messages]
    return pa.RecordBatch.from_pylist(found)


def test_ranges_are_read_in_any_order_and_from_anywhere(kafka: str) -> None:
    topic, other = Topic(kafka, 2), Topic(kafka)
    topic.send(*({"n": n} for n in range(100)))
    topic.send(*({"n": n} for n in range(100, 150)), partition=1)
    other.send({"n": 1000})
    opened = MessageReader({"bootstrap.servers": kafka, "client.id": topic.name})

    def offsets(*ranges: OffsetRange) -> list[list[int]]:
        found = opened.read(ranges, "t", _places, patience=60, continues=False)
        places = {r: [place for part in found[r].parts for place in part.to_pylist()] for r in ranges}
        assert all((p["topic"], p["partition"]) == r.partition for r in ranges for p in places[r])
        return [[p["offset"] for p in places[r]] for r in ranges]

    def part(partition: int, start: int, end: int) -> OffsetRange:
        return OffsetRange(topic.name, partition, start, end)

    assert offsets(part(0, 0, 10), part(1, 0, 5)) == [list(range(10)), list(range(5))]
    # It goes on where it stands, also in one partition alone, is sent elsewhere, and reads another topic beside it.
    assert offsets(part(0, 10, 60)) == [list(range(10, 60))]
    assert offsets(part(1, 5, 50), part(0, 60, 61)) == [list(range(5, 50)), [60]]
    assert offsets(part(0, 20, 25)) == [list(range(20, 25))]
    assert offsets(part(0, 25, 30), OffsetRange(other.name, 0, 0, 1)) == [list(range(25, 30)), [0]]
    assert offsets(part(0, 30, 100), part(1, 0, 50)) == [list(range(30, 100)), list(range(50))]


def test_a_partition_that_others_read_is_left(kafka: str) -> None:
    topic = Topic(kafka, 2)
    for number in (0, 1):
        topic.send(*([b"{}"] * 6000), partition=number)
    opened = MessageReader({"bootstrap.servers": kafka, "client.id": topic.name})

    def offsets(number: int, start: int, end: int) -> list[int]:
        split = OffsetRange(topic.name, number, start, end)
        parts = opened.read([split], "t", _places, patience=60, continues=False)[split].parts
        return [place["offset"] for part in parts for place in part.to_pylist()]

    def assigned() -> set[int]:
        return {p.partition for p in opened._consumer.assignment()}

    assert offsets(0, 0, 3000) == list(range(3000))
    # Its other messages are on the way.
    assert offsets(1, 0, 3000) == list(range(3000))
    assert assigned() == {1}
    assert offsets(0, 5990, 6000) == list(range(5990, 6000))
    # Of one that is read a few at a time the next ones may be asked for as well.
    assert offsets(1, 3000, 3010) == list(range(3000, 3010))
    assert assigned() == {0, 1}
    topic.send(*([b"{}"] * 6000), partition=0)
    assert offsets(1, 3010, 6000) == list(range(3010, 6000))
    assert offsets(0, 6000, 12000) == list(range(6000, 12000))


def test_what_retention_removed_is_an_error_or_counted(kafka: str) -> None:
    topic = Topic(kafka)
    topic.send(*({"n": n} for n in range(10)))
    from_start = ", 'scan.startup.mode' = 'specific-offsets', 'scan.startup.specific-offsets' = 'partition:0,offset:1'"
    topic.forget(4)
    with pytest.raises(DataError) as raised:
        rows_of(topic.table("n INT", from_start))
    assert raised.value.message == f'table "t": offsets 1 to 3 of partition 0 of topic "{topic.name}" are gone'
    going_on = topic.table("n INT", f"{from_start}, 'scan.on-data-loss' = 'continue'")
    with Stream(f"{going_on} SELECT * FROM t;") as stream:
        stream.finish()
        assert [n for (n,) in stream.rows()] == [4, 5, 6, 7, 8, 9]
        assert stream.query("SELECT lost_rows FROM sqlstream.watermarks") == [(3,)]
    topic.forget(10)
    assert rows_of(going_on) == []


def test_malformed_messages_are_skipped_counted_and_kept(kafka: str) -> None:
    topic = Topic(kafka, 2)
    topic.send({"n": 1}, "no json", {"n": "x"})
    topic.send({"n": 2}, b"\xff", partition=1)
    skipping = topic.table("n INT", ", 'json.errors-to' = 'bad'")
    with Stream(f"{skipping} CREATE TABLE good (n INT); INSERT INTO good SELECT n FROM t;") as stream:
        stream.finish()
        assert stream.query("SELECT n FROM good ORDER BY n") == [(1,), (2,)]
        bad = stream.query("SELECT file, row_number, text FROM bad ORDER BY ALL")
        place = f'partition {{}} of topic "{topic.name}"'
        assert bad[:2] == [(place.format(0), 1, "no json"), (place.format(0), 2, '{"n": "x"}')]
        assert bad[2][:2] == (place.format(1), 1)
        assert stream.query("SELECT malformed_rows FROM sqlstream.watermarks") == [(3,)]


def test_a_computed_column_that_fails_names_the_message(kafka: str) -> None:
    topic = Topic(kafka)
    topic.transact(([{"n": 1}], True), ([{"n": 0}], True))
    with pytest.raises(
        SqlStreamError, match=re.escape(f'the message at offset 2 of partition 0 of topic "{topic.name}"')
    ):
        rows_of(topic.table("n INT"), "SELECT CAST('a' || CAST(n AS STRING) AS INT) FROM t WHERE n = 0")


def test_a_job_goes_on_where_it_was_and_finds_new_partitions(kafka: str, tmp_path: Path) -> None:
    topic = Topic(kafka)
    topic.send({"n": 1}, {"n": 2})
    more = ", 'scan.bounded.mode' = 'unbounded', 'scan.topic-partition-discovery.interval' = '1 ms', 'scan.startup.mode' = "
    script = (
        topic.table("n INT", more + "'latest-offset'") + "CREATE TABLE kept (n INT); INSERT INTO kept SELECT n FROM t;"
    )
    with Stream(script) as stream:

        def kept(*numbers: int) -> bool:
            for run in stream.runs.values():
                run.pull()
            return stream.query("SELECT n FROM kept ORDER BY n") == [(n,) for n in numbers]

        assert kept()
        topic.send({"n": 3})
        wait_until(lambda: kept(3))
        stream.restart()
        # What came while it was down is read, too, though it first began at the end.
        topic.send({"n": 4})
        wait_until(lambda: kept(3, 4))
        topic.grow(2)
        topic.send({"n": 5}, partition=1)
        wait_until(lambda: kept(3, 4, 5))


def test_a_batch_takes_fewer_messages_where_they_are_long(kafka: str) -> None:
    topic = Topic(kafka, 2)
    topic.send(*({"n": n, "text": "x" * 2_000} for n in range(2_000)))
    topic.send(*({"n": n, "text": ""} for n in range(2_000)), partition=1)
    batches = []
    for limit in ("1 MB", "256 MB"):
        script = topic.table("n INT", f", 'scan.max-bytes-per-batch' = '{limit}'")
        with Stream(f"{script} CREATE TABLE kept (n INT); INSERT INTO kept SELECT n FROM t;") as stream:
            stream.finish()
            assert stream.query("SELECT count(*), count(DISTINCT n) FROM kept") == [(4_000, 2_000)]
            [(version,)] = stream.query("SELECT version FROM sqlstream.jobs")
            batches.append(version + 1)
    # There are some 4.1 MB: of a MB a batch has about a fourth of the messages.
    few, whole = batches
    assert 4 <= few - whole + 1 <= 8, batches


def test_partitions_of_few_or_lost_messages_are_not_waited_for(kafka: str) -> None:
    topic = Topic(kafka, 3)
    topic.send(*({"text": "x" * 988} for _ in range(500)))
    topic.send({"text": "x" * 88}, partition=1)
    topic.send("{}", "{}", partition=2)
    topic.forget(2, partition=2)
    first, second, lost = (MessagePartition(topic.name, number) for number in range(3))
    with Stream(topic.table("n INT") + "SELECT n FROM t") as stream:
        [table] = [s.table for run in stream.runs.values() for s in run.job.plan.scans]
        sizes, began = MessageSizes(table), time.monotonic()
        # What is not known of the last one is taken to be as of the others.
        wanted = {first: 400, second: 1, lost: 2}
        cut = sizes.cut(wanted, dict.fromkeys(wanted, 0), 200_000)
        assert time.monotonic() - began < 0.9
    assert {p: size for p, (size, _) in sizes._samples.items()} == {first: 1_000, second: 100}
    assert (195 <= cut[first] <= 200, cut[second], cut[lost]) == (True, 1, 1)


def test_lengths_are_not_known_where_nobody_answers(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, read = Topic(kafka), Mock(wraps=MessageSizes._read)
    monkeypatch.setattr(MessageSizes, "_read", lambda self, ranges: read(self, ranges))
    with Stream(topic.table("n INT") + "SELECT n FROM t") as stream:
        [table] = [s.table for run in stream.runs.values() for s in run.job.plan.scans]
        gone = replace(table, options={**table.options, "properties.bootstrap.servers": "localhost:1"})
        sizes, partition = MessageSizes(gone), MessagePartition(topic.name, 0)
        for _ in range(3):
            assert sizes.cut({partition: 1_000}, {partition: 0}, 1) == {partition: 1_000}
    # It is not asked, and waited for, with each batch.
    assert read.call_count == 1
