"""The in-process runner as its users see it."""

from __future__ import annotations

from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pytest

from sqlstream.errors import BindError, JobError, QueryError, UsageError
from sqlstream.testing import Stream

SCRIPT = """
CREATE TABLE bid (auction BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND);
CREATE TABLE counts (auction BIGINT, n BIGINT);
INSERT INTO counts SELECT auction, COUNT(*) AS n
FROM TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY auction, window_start, window_end
"""


def test_rows_are_tuples_or_arrow_and_times_are_text_or_datetimes() -> None:
    with Stream(SCRIPT) as stream:
        stream.batch("bid", [(1, "2026-01-01 10:00:01"), (1, datetime(2026, 1, 1, 10, 0, 2))])
        times = pa.array([datetime(2026, 1, 1, 10, 0, 3), None], pa.timestamp("us"))
        stream.batch("bid", pa.table({"auction": [1, 2], "ts": times}))
        stream.batch("BID", [])
        assert [row[:1] + row[-1:] for row in stream.state("window_aggregate_1")] == [(1, 3)]
        stream.tick("bid", "2026-01-01 10:00:10")
        assert stream.rows() == stream.rows("counts") == [(1, 3)]


def test_ticks_are_microseconds_too() -> None:
    with Stream(SCRIPT) as stream:
        stream.batch("bid", [(1, "1970-01-01 00:00:01")])
        stream.tick("bid", 9_999_999)
        assert stream.rows() == []
        stream.tick("bid", 10_000_000)
        assert stream.rows() == [(1, 1)]


def test_what_a_row_must_be() -> None:
    with Stream(SCRIPT) as stream:
        with pytest.raises(BindError, match='a row of table "bid" has 2 columns, not 1'):
            stream.batch("bid", [(1,)])
        with pytest.raises(BindError, match='table "bids" does not exist'):
            stream.batch("bids", [(1, None)])
        with pytest.raises(UsageError, match='job "count" does not exist') as error:
            stream.rows("count")
        assert error.value.hint == 'did you mean "counts"?'


def test_several_jobs_read_one_table() -> None:
    with Stream(SCRIPT) as stream:
        stream.script("CREATE TABLE copy (auction BIGINT); INSERT INTO copy SELECT auction FROM bid")
        stream.batch("bid", [(1, "2026-01-01 10:00:01")])
        stream.finish()
        assert stream.rows("counts") == [(1, 1)]
        assert stream.rows("copy") == [(1,)]


def test_the_clock_moves_by_hand() -> None:
    with Stream(
        "CREATE TABLE t (x INT); CREATE TABLE out (at TIMESTAMP_LTZ); INSERT INTO out SELECT NOW() FROM t"
    ) as stream:
        stream.batch("t", [(1,)])
        stream.advance(90_000)
        stream.batch("t", [(1,)])
        assert sorted(stream.rows()) == [
            (datetime(1970, 1, 1, tzinfo=UTC),),
            (datetime(1970, 1, 1, 0, 1, 30, tzinfo=UTC),),
        ]


def test_functions_may_change_between_streams() -> None:
    script = "CREATE TABLE t (x BIGINT); CREATE TABLE out (y BIGINT); INSERT INTO out SELECT f(x) FROM t"

    def one() -> object:
        def f(x: int) -> int:
            return x + 1

        return f

    def two() -> object:
        def f(x: int) -> int:
            return x + 2

        return f

    for make, result in ((one, 2), (two, 3), (one, 2)):
        with Stream(script, functions=[make()]) as stream:  # type: ignore[list-item]
            stream.batch("t", [(1,)])
            assert stream.rows() == [(result,)]


def test_a_failed_batch_is_not_committed() -> None:
    with Stream(
        "CREATE TABLE t (x STRING); CREATE TABLE out (x INT); INSERT INTO out SELECT CAST(x AS INT) FROM t"
    ) as stream:
        stream.batch("t", [("1",)])
        with pytest.raises(JobError, match="could not convert string 'one'"):
            stream.batch("t", [("one",)])
        assert stream.rows() == [(1,)]
        stream.restart()
        stream.batch("t", [("2",)])
        assert sorted(stream.rows()) == [(1,), (2,)]


def test_a_job_gets_another_database_after_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    from sqlstream.runtime import worker

    monkeypatch.setattr(worker, "MOST_CONNECTIONS", 1)
    others = set(worker._databases)
    with Stream(SCRIPT) as stream:
        had = []
        for second in range(3):
            stream.batch("bid", [(1, f"2026-01-01 10:00:0{second}")])
            [key] = worker._databases.keys() - others
            had.append(worker._databases[key].database)
        stream.tick("bid", "2026-01-01 10:00:20")
        assert stream.rows() == [(1, 3)]
    assert len({id(database) for database in had}) == 3
    with pytest.raises(duckdb.ConnectionException):
        had[0].cursor()


def test_many_streams_do_not_keep_many_databases() -> None:
    from sqlstream.functions import databases
    from sqlstream.runtime import worker

    for number in range(worker.KEPT + 4):
        with Stream(
            f"CREATE TABLE t (x INT); CREATE TABLE out (x INT); INSERT INTO out SELECT x + {number} FROM t"
        ) as stream:
            stream.batch("t", [(1,)])
            assert stream.rows() == [(1 + number,)]
    assert len(worker._databases) <= worker.KEPT
    assert len(databases._idle) <= databases.IDLE


@pytest.mark.slow
def test_state_survives_more_versions_than_are_kept() -> None:
    with Stream(SCRIPT, options={"sqlstream.state.retention": "0"}, parallelism=1) as stream:
        for number in range(130):
            stream.advance(1000)
            stream.batch("bid", [(number % 7, f"2026-01-01 10:{number // 60:02}:{number % 60:02}")])
            if number == 100:
                stream.restart()
        oldest, newest = stream.query("SELECT min(version), max(version) FROM sqlstream.snapshots")[0]
        assert newest > 130
        [(segments,)] = stream.query("SELECT segments FROM sqlstream.operators")
        assert segments < 60
        [(open_rows,)] = stream.query("SELECT sum(n) FROM state.counts.window_aggregate_1")
        assert open_rows <= 14
        assert (
            stream.query(f"SELECT sum(n) FROM state.counts.window_aggregate_1 AT (VERSION => {newest - 90})")[0][0] > 0
        )
        assert oldest <= newest - 90
        stream.finish()
        assert sum(n for _, n in stream.rows()) == 130
        assert len(stream.rows()) == len(
            {(w, k) for w in range(13) for k in [x % 7 for x in range(w * 10, w * 10 + 10)]}
        )


@pytest.mark.slow
def test_versions_are_kept_for_a_number_of_batches() -> None:
    with Stream(SCRIPT, options={"sqlstream.state.retention": "12 batches"}, parallelism=1) as stream:
        for number in range(60):
            stream.advance(1000)
            stream.batch("bid", [(number % 7, f"2026-01-01 10:00:{number:02}")])
        [(newest,)] = stream.query("SELECT max(version) FROM sqlstream.snapshots")
        state = "SELECT sum(n) FROM state.counts.window_aggregate_1"
        [(open_rows,)] = stream.query(f"{state} AT (VERSION => {newest - 12})")
        assert open_rows > 0
        with pytest.raises(QueryError, match="keeps no version"):
            stream.query(f"{state} AT (VERSION => {newest - 50})")
        # The log has them all, for nobody has pruned it: of a job that was killed it is left so.
        [(oldest,)] = stream.query("SELECT min(version) FROM sqlstream.snapshots")
        assert newest - 50 < oldest <= newest - 12
        for relation in ("state.counts.window_aggregate_1", "counts"):
            assert stream.query(f"SELECT count(*) > 0 FROM {relation} AT (VERSION => {oldest})") == [(True,)]
        with pytest.raises(QueryError, match=f"Its oldest version is {oldest} "):
            stream.query(f"{state} AT (VERSION => {oldest - 1})")


def test_a_value_that_does_not_fit_its_column() -> None:
    script = "CREATE TABLE t (id INT, at TIMESTAMP); CREATE TABLE out (id INT); INSERT INTO out SELECT id FROM t"
    with Stream(script) as stream:
        with pytest.raises(BindError) as caught:
            stream.batch("t", [(1, "2026-01-01 10:00:00"), (2, "yesterday")])
        assert caught.value.message == 'row 2 for table "t": column "at" cannot hold \'yesterday\' (TIMESTAMP)'
        stream.batch("t", [{"ID": 3}, {"at": None, "id": 4}])
        assert sorted(stream.rows("out")) == [(3,), (4,)]
        with pytest.raises(BindError, match='column "idd" does not exist in table "t"') as caught:
            stream.batch("t", [{"idd": 3}])
        assert caught.value.hint == 'did you mean "id"?'


def test_rows_of_values_come_once() -> None:
    script = """
    CREATE TABLE o (id BIGINT, cur STRING);
    CREATE TABLE sink (a BIGINT, b STRING);
    INSERT INTO sink SELECT o.id, v.w FROM o JOIN (VALUES ('USD', 'd')) AS v(cur, w) ON v.cur = o.cur"""
    with Stream(script) as stream:
        stream.batch("o", [(1, "USD")])
        stream.finish()
        assert stream.rows() == [(1, "d")]


def test_limit_ends_a_select() -> None:
    with Stream(f"{SCRIPT}; SELECT auction FROM bid LIMIT 3", name="limit") as stream:
        stream.batch("bid", [(1, "2026-01-01 10:00:01"), (2, "2026-01-01 10:00:02")])
        assert sorted(stream.rows("result")) == [(1,), (2,)]
        stream.batch("bid", [(3, "2026-01-01 10:00:03"), (3, "2026-01-01 10:00:04")])
        version = stream.runs["result"].commits.totals.version
        stream.batch("bid", [(4, "2026-01-01 10:00:05")])
        assert sorted(stream.rows("result")) == [(1,), (2,), (3,)]
        assert stream.runs["result"].commits.totals.version == version


NESTED: dict[str, list[object]] = {
    "MAP(VARCHAR, INTEGER)[]": [[{"a": 1}, {"b": 2}, {}, None], []],
    "MAP(VARCHAR, MAP(VARCHAR, INTEGER))": [{"x": {"a": 1}, "y": {"b": 2}}, {}],
    "STRUCT(a INTEGER, b VARCHAR)": [{"a": 1, "b": "x"}],
    "STRUCT(m MAP(VARCHAR, INTEGER), l INTEGER[])[]": [[{"m": {"a": 1}, "l": [1]}, {"m": {"b": 2}, "l": None}]],
}


@pytest.mark.parametrize("kind", NESTED)
def test_nested_values_come_as_they_are(kind: str) -> None:
    script = f"CREATE TABLE t (k INT, v {kind}); CREATE TABLE out (k INT, v {kind}); INSERT INTO out SELECT * FROM t"
    with Stream(script) as stream:
        stream.batch("t", list(enumerate(NESTED[kind])))
        assert sorted(stream.rows("out"), key=lambda row: row[0]) == list(enumerate(NESTED[kind]))


def test_what_a_mapping_lacks_of_a_struct_is_null() -> None:
    kind = "STRUCT(a INTEGER, t TIMESTAMP, inner_ STRUCT(b INTEGER)[])"
    script = f"CREATE TABLE t (v {kind}); CREATE TABLE out (v {kind}); INSERT INTO out SELECT v FROM t"
    nothing = {"a": None, "t": None, "inner_": None}
    with Stream(script) as stream:
        stream.batch("t", [({},)])
        assert stream.rows("out") == [(nothing,)]
        stream.batch("t", [({"A": 1, "t": "2026-01-01", "inner_": [{}, {"b": "2"}]},)])
        filled = {"a": 1, "t": datetime(2026, 1, 1), "inner_": [{"b": None}, {"b": 2}]}
        assert sorted(stream.rows("out"), key=str) == sorted([(nothing,), (filled,)], key=str)
        with pytest.raises(BindError, match='column "v" cannot hold'):
            stream.batch("t", [({"c": 1},)])
