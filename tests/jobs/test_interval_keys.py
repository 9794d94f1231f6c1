"""Jobs that earlier versions made go on as they spread their keys: intervals by their text."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from msgspec.structs import replace

from sqlstream.duck.key_hash import BY_TEXT, BY_VALUE
from sqlstream.jobs.launch import job_spec, key_hash_of
from sqlstream.queries.lookup import Lookups
from sqlstream.testing import Stream
from sqlstream.testing import stream as streams
from sqlstream.warehouse.jobs import JobRecord, read_record
from sqlstream.warehouse.paths import Warehouse
from tests.kinds import of_type

GROUPED = (
    "CREATE TABLE t (i INTERVAL); CREATE TABLE out (i INTERVAL, n BIGINT);"
    "INSERT INTO out SELECT i, COUNT(*) AS n FROM t GROUP BY i"
)
EQUAL = ("1 month", "30 days", "720 hours")


def record_of(stream: Stream) -> JobRecord:
    warehouse = Warehouse(stream.warehouse)
    return of_type(JobRecord, read_record(warehouse.fs, warehouse.job("out")))


def counts(stream: Stream) -> list[int]:
    return sorted(n for (n,) in stream.query("SELECT n FROM out"))


def test_equal_intervals_are_one_key_of_a_new_job() -> None:
    with Stream(GROUPED, parallelism=3) as stream:
        for text in EQUAL:
            stream.batch("t", [(text,)])
        assert counts(stream) == [3]
        assert record_of(stream).key_hash == BY_VALUE
        stream.restart(5)
        stream.batch("t", [("30 days",)])
        assert counts(stream) == [4]


def test_a_job_of_an_earlier_version_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(streams, "job_spec", partial(job_spec, key_hash=BY_TEXT))
        stream = Stream(GROUPED, parallelism=3)
    with stream:
        for text in EQUAL:
            stream.batch("t", [(text,)])
        # Each where its text belongs: what it has counted stays what it counts.
        before = counts(stream)
        assert before == [1, 1, 1]
        record = record_of(stream)
        assert key_hash_of(record) == record.key_hash == BY_TEXT
        stream.restart()
        stream.batch("t", [("30 days",)])
        assert counts(stream) == [1, 1, 2]


@pytest.mark.slow
def test_a_job_of_an_earlier_version_changes_its_parallelism(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(streams, "job_spec", partial(job_spec, key_hash=BY_TEXT))
        stream = Stream(GROUPED, parallelism=3)
    with stream:
        for parallelism in (3, 5, 2):
            stream.restart(parallelism)
            stream.batch("t", [(f"{n} hours",) for n in range(20)])
        assert counts(stream) == [3] * 20


def test_a_record_of_an_earlier_version_says_nothing_of_the_hash() -> None:
    with Stream(GROUPED) as stream:
        content = msgspec.json.decode(record_of(stream).to_json())
        del content["key_hash"]
        assert JobRecord.from_json(msgspec.json.encode(content).decode()).key_hash == BY_TEXT


def test_a_job_whose_keys_hold_no_intervals_takes_the_new_hash() -> None:
    with Stream(GROUPED.replace("INTERVAL", "BIGINT")) as stream:
        assert key_hash_of(replace(record_of(stream), key_hash=BY_TEXT)) == BY_VALUE
    assert key_hash_of(None) == BY_VALUE


@pytest.mark.slow
@pytest.mark.parametrize("version", [BY_TEXT, BY_VALUE])
def test_a_lookup_finds_the_bucket_of_a_key(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as made:
        made.setattr(streams, "job_spec", partial(job_spec, key_hash=version))
        stream = Stream(GROUPED, parallelism=5)
    with stream:
        stream.batch("t", [(f"{n} hours",) for n in range(20)])
        lookups = Lookups(Warehouse(stream.warehouse), 1 << 30, lambda connection: None)
        for n in range(20):
            for text in (f"{n} hours", f"{n * 60} minutes"):
                assert [row[1] for row in lookups.find("out", "aggregate_1", [text]).rows] == [1]
            why = stream.query(f"SELECT count(*) FROM sqlstream.why('out.aggregate_1', i := '{n * 60} minutes')")
            assert why != [(0,)]
