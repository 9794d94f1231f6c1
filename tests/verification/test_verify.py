"""What `verify` says: each cause of a difference, a bug in an operator, and what has no batch answer."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from sqlstream import udaf
from sqlstream.duck.sql import Relation
from sqlstream.jobs.verification import Verification
from sqlstream.jobs.verification.compare import ComparedTables, compare
from sqlstream.jobs.verification.verify import batch_query
from sqlstream.operators.windows.assigners import Arrival, AssignedWindows
from sqlstream.physical.batch.rows import CannotVerify
from sqlstream.testing import Stream


@dataclasses.dataclass
class Length:
    most: int = 0


CLICKS = "CREATE TABLE clicks (k INT, x DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND);"
COUNTS = (
    f"{CLICKS} CREATE TABLE counts (k INT, ends TIMESTAMP, n BIGINT); INSERT INTO counts SELECT k, window_end, COUNT(*)"
    " FROM TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY k, window_start, window_end"
)


def at(seconds: int) -> str:
    return f"2026-01-01 10:00:{seconds:02}"


def causes(report: Verification) -> dict[str, tuple[int, int]]:
    [table] = report.tables
    return {d.cause: (d.missing, d.extra) for d in table.differences}


def test_a_table_that_is_the_batch_answer() -> None:
    with Stream(COUNTS) as stream:
        stream.batch("clicks", [(1, 1.0, at(1)), (2, 1.0, at(3)), (1, 1.0, at(9))])
        stream.finish()
        report = stream.verify()
        assert report
        assert causes(report) == {}
        assert str(report).splitlines()[1:] == ['table "counts": 2 rows, equal to the batch answer']


def test_late_rows_rows_without_a_time_and_open_windows() -> None:
    with Stream(COUNTS) as stream:
        stream.batch("clicks", [(1, 1.0, at(1)), (1, 1.0, None), (3, 1.0, None), (2, 1.0, at(15))])
        # The window until 10 has closed: of key 1 its count is another one, of key 2 there is none.
        stream.batch("clicks", [(1, 1.0, at(2)), (2, 1.0, at(3)), (2, 1.0, at(16))])
        report = stream.verify()
    assert report
    assert causes(report) == {"untimed": (2, 0), "late": (2, 1), "due": (1, 0)}


def test_a_row_is_late_by_the_watermark_before_its_batch() -> None:
    with Stream(COUNTS) as stream:
        # In one batch no row is late because of another.
        stream.batch("clicks", [(2, 1.0, at(15)), (1, 1.0, at(1))])
        stream.finish()
        assert causes(stream.verify()) == {}


def test_keys_that_expired() -> None:
    script = (
        f"{CLICKS} CREATE TABLE totals (k INT, n BIGINT);"
        "SET 'table.exec.state.ttl' = '10 s'; INSERT INTO totals SELECT k, COUNT(*) FROM clicks GROUP BY k"
    )
    with Stream(script) as stream:
        stream.batch("clicks", [(1, 1.0, at(1)), (2, 1.0, at(1))])
        stream.advance(11_000)
        stream.batch("clicks", [(1, 1.0, at(2))])
        report = stream.verify()
        assert sorted(stream.rows()) == [(1, 1), (1, 1), (2, 1)]
    assert report
    assert causes(report) == {"expired": (1, 2)}


def test_a_lookup_table_that_has_changed() -> None:
    script = (
        "CREATE TABLE names (k INT, name STRING) WITH ('connector' = 'filesystem', 'path' = 'names', 'format' = 'parquet');"
        "CREATE TABLE visits (k INT, at TIMESTAMP_LTZ(3) AS PROCTIME()); CREATE TABLE named (k INT, name STRING);"
        "INSERT INTO named SELECT v.k, n.name FROM visits v JOIN names FOR SYSTEM_TIME AS OF v.at AS n ON v.k = n.k"
    )
    with Stream(script.replace("at TIMESTAMP_LTZ(3) AS PROCTIME()", "at AS PROCTIME()")) as stream:
        _names(stream, "(1, 'ann'), (2, 'bob')")
        stream.batch("visits", [(1,), (2,)])
        assert causes(stream.verify()) == {}
        _names(stream, "(1, 'eve'), (2, 'bob')")
        report = stream.verify()
    assert report
    assert causes(report) == {"lookup": (1, 1)}


def _names(stream: Stream, rows: str) -> None:
    folder = f"{stream.compiler.project}/names"
    con = duckdb.connect()
    con.execute(
        f"COPY (FROM (VALUES {rows}) AS t(k, name)) TO '{folder}' (FORMAT parquet, PER_THREAD_OUTPUT, OVERWRITE)"
    )


def test_a_lookup_table_of_the_warehouse() -> None:
    script = (
        "CREATE TABLE n (k INT, name STRING); CREATE TABLE names (k INT, name STRING, PRIMARY KEY (k) NOT ENFORCED) WITH"
        " ('lookup.cache' = 'NONE'); CREATE TABLE visits (k INT, at AS PROCTIME()); CREATE TABLE named (k INT, name STRING);"
        "INSERT INTO names SELECT k, MAX(name) FROM n GROUP BY k;"
        "INSERT INTO named SELECT v.k, s.name FROM visits v JOIN names FOR SYSTEM_TIME AS OF v.at AS s ON v.k = s.k"
    )
    with Stream(script) as stream:
        stream.batch("n", [(1, "ann"), (2, "bob")])
        stream.batch("visits", [(1,), (2,), (3,)])
        assert causes(stream.verify("named")) == {}
        stream.batch("n", [(1, "eve")])
        report = stream.verify("named")
        assert causes(stream.verify("names")) == {}
    assert report
    assert causes(report) == {"lookup": (1, 1)}


@pytest.mark.parametrize("is_wrong", [False, True])
def test_an_aggregate_function_of_python(is_wrong: bool) -> None:
    class Longest:
        def accumulate(self, acc: Length, word: str) -> None:
            acc.most = max(acc.most, len(word))

        def merge(self, acc: Length, other: Length) -> None:
            acc.most = other.most if is_wrong else max(acc.most, other.most)

        def finish(self, acc: Length) -> int:
            return acc.most

    script = (
        "CREATE TABLE t (k INT, word STRING); CREATE TABLE lengths (k INT, n BIGINT, other BIGINT);"
        "INSERT INTO lengths SELECT k, longest(word), longest(DISTINCT word) FILTER (WHERE k > 1) FROM t GROUP BY k"
    )
    with Stream(script, functions=[udaf(Longest)]) as stream:
        stream.batch("t", [(1, "abc"), (2, "z"), (2, "zz")])
        stream.batch("t", [(1, "a"), (2, "yyyy")])
        report = stream.verify()
    assert bool(report) is not is_wrong
    assert causes(report) == ({"unexplained": (1, 1)} if is_wrong else {})


def test_sums_of_floating_point_numbers() -> None:
    script = f"{CLICKS} CREATE TABLE sums (k INT, s DOUBLE); INSERT INTO sums SELECT k, SUM(x) FROM clicks GROUP BY k"
    with Stream(script) as stream:
        # (0.1 + 0.2) + 0.3 is 0.6000000000000001, 0.1 + (0.2 + 0.3) is 0.6.
        stream.batch("clicks", [(1, 0.1, at(1))])
        stream.batch("clicks", [(1, 0.2, at(1)), (1, 0.3, at(1))])
        report = stream.verify()
        [(streamed,)] = stream.query("SELECT s FROM sums")
    assert report
    assert causes(report) == {"float": (1, 1)}, streamed


@pytest.mark.parametrize("keys", [(), ("k",)])
def test_a_wrong_row_is_found_among_many_that_differ_in_their_last_digits(keys: tuple[str, ...]) -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE answer AS SELECT i AS k, CAST(i AS DOUBLE) / 3 AS x FROM range(110_000) AS r(i)")
        con.execute(
            "CREATE TABLE actual AS SELECT k, CASE k WHEN 109_998 THEN -1 WHEN 109_999 THEN 'inf' ELSE x * (1 + 1e-12) END AS x"
            " FROM answer"
        )
        report = compare(con, ComparedTables("t", ("k", "x"), Relation("actual"), {"": Relation("answer")}, keys))
    found = {d.cause: (d.missing, d.extra) for d in report.differences}
    # That of key 0 is 0 on both sides.
    assert found.pop("unexplained") == (2, 2)
    assert found == {"float": (109_997, 109_997)}


@pytest.mark.parametrize("lost", ["dropped", "counted twice"])
def test_a_bug_in_an_operator_is_found(monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    right = AssignedWindows.arrive

    def wrong(self: AssignedWindows, rows: pa.Table, watermark: Any) -> Arrival:
        arrival = right(self, rows, watermark)
        before = arrival.before
        changed = before.slice(1) if lost == "dropped" else pa.concat_tables([before, before.slice(0, 1)])
        return dataclasses.replace(arrival, before=changed)

    with Stream(COUNTS, parallelism=1) as stream:
        stream.batch("clicks", [(1, 1.0, at(1))])
        monkeypatch.setattr(AssignedWindows, "arrive", wrong)
        stream.batch("clicks", [(1, 1.0, at(5)), (2, 1.0, at(4)), (2, 1.0, at(6))])
        stream.finish()
        report = stream.verify()
    assert not report
    assert "unexplained" in causes(report), report
    assert "NOT EXPLAINED" in str(report)


def test_what_has_no_batch_form_is_named() -> None:
    counts = "SELECT k, x, COUNT(*) AS n FROM clicks GROUP BY k, x"
    script = f"{CLICKS} CREATE TABLE any (k INT, n BIGINT); INSERT INTO any SELECT k, ANY_VALUE(n) FROM ({counts}) GROUP BY k"
    with Stream(script) as stream:
        stream.batch("clicks", [(1, 1.0, at(1))])
        with pytest.raises(CannotVerify) as error:
            stream.verify()
    assert "depends on the order in which rows come" in error.value.message
    assert error.value.exit_code == 2
    assert error.value.render().startswith("cannot be verified:")


def test_rows_that_are_no_longer_there_are_named() -> None:
    with Stream(COUNTS) as stream:
        stream.batch("clicks", [(1, 1.0, at(1))])
        stream.batch("clicks", [(1, 1.0, at(2))])
        job = stream.runs["counts"].commits
        job.warehouse.fs.delete(f"{job.paths.root}/splits/next/0000000000.json")
        with pytest.raises(CannotVerify, match="does not say what all its batches have read"):
            stream.verify()


def test_the_batch_query_runs_in_duckdb() -> None:
    with Stream(COUNTS) as stream:
        stream.batch("clicks", [(1, 1.0, at(1)), (2, 1.0, at(3)), (1, 1.0, at(12))])
        stream.finish()
        written = stream.rows()
        sql = batch_query(stream.planned("counts"))
    con = duckdb.connect()
    con.execute(
        f"CREATE TABLE clicks AS SELECT k, 1.0 AS x, CAST(t AS TIMESTAMP) AS ts"
        f" FROM (VALUES (1, '{at(1)}'), (2, '{at(3)}'), (1, '{at(12)}')) AS v(k, t)"
    )
    assert sorted(con.execute(sql).fetchall()) == sorted(written)


@pytest.mark.parametrize(
    "branches",
    [
        "SELECT k, v FROM changes UNION ALL SELECT k, COUNT(*) FROM clicks GROUP BY k",
        "SELECT k, COUNT(*) FROM clicks GROUP BY k UNION ALL SELECT k, v FROM changes",
        "SELECT k, 0 FROM (SELECT DISTINCT k FROM clicks) UNION ALL SELECT k, v + 1 FROM changes WHERE v > 0",
        "SELECT k, COUNT(*) FROM (SELECT k FROM (SELECT DISTINCT k FROM clicks) UNION ALL SELECT k FROM changes) GROUP BY k",
    ],
)
def test_a_union_of_results_and_a_table_of_changes(branches: str) -> None:
    script = f"""
    CREATE TABLE changes (op STRING, k BIGINT, v BIGINT, PRIMARY KEY (k) NOT ENFORCED)
        WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = 'changes', 'changelog.op-column' = 'op',
              'source.monitor-interval' = '100 ms');
    CREATE TABLE clicks (k BIGINT);
    CREATE TABLE out (k BIGINT, n BIGINT);
    INSERT INTO out {branches}
    """
    with Stream(script) as stream:
        stream.batches({"changes": [("I", 1, 2), ("I", 2, 2)], "clicks": [(1,), (1,)]})
        stream.batches({"changes": [("U", 1, 3), ("D", 2, None)]})
        report = stream.verify()
        assert report, str(report)


def test_each_use_of_a_table_with_other_options_has_its_own_rows() -> None:
    script = (
        "CREATE TABLE t (a INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json'); CREATE TABLE out (a INT);"
        "INSERT INTO out SELECT a FROM t UNION ALL SELECT a * 10 FROM t /*+ OPTIONS('path' = 'old') */"
    )
    with Stream(script) as stream:
        for folder, rows in (("in", [1, 2]), ("old", [3])):
            place = Path(str(stream.compiler.project)) / folder
            place.mkdir()
            (place / "a.json").write_text("".join(f'{{"a": {a}}}\n' for a in rows))
        stream.finish()
        assert sorted(stream.rows()) == [(1,), (2,), (30,)]
        report = stream.verify()
        sql = batch_query(stream.planned("out"))
    assert report, str(report)
    assert causes(report) == {}
    assert report.read == (("t", 3),)
    # The text says which is which.
    assert """FROM "t" /*+ OPTIONS('path' = 'old') */""" in sql


def test_the_batch_query_has_the_rows_of_values() -> None:
    script = (
        "CREATE TABLE out (k INT);"
        "INSERT INTO out SELECT k FROM (VALUES (1), (2)) AS a(k) UNION ALL SELECT k * 10 FROM (VALUES (3)) AS b(k)"
    )
    with Stream(script) as stream:
        assert stream.verify().read == (("values", 3),)
        sql = batch_query(stream.planned("out"))
    with duckdb.connect() as con:
        assert sorted(con.execute(sql).fetchall()) == [(1,), (2,), (30,)]
