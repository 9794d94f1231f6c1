"""Malformed rows while a job runs: skipped, counted, kept in a table once each, whatever is repeated; times that cannot be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.errors import BindError, DataError
from sqlstream.runtime.batch_descriptors import Descriptor
from sqlstream.testing import Stream
from sqlstream.units import MILLISECOND, ProcessingTime, from_millis
from tests.connectors.formats.test_avro import field, record
from tests.connectors.formats.test_avro_files import avro

KEPT = "SELECT source_table, row_number, text, reason FROM bad ORDER BY file, row_number"
TIMED = "id BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts"
ON_TIME = datetime(2026, 1, 1, 10)
NOW = from_millis(int(ON_TIME.replace(tzinfo=UTC).timestamp() * 1000))


def declared(columns: str, form: str, **options: str) -> str:
    given = {"connector": "filesystem", "path": "in", "format": form}
    given |= {k.replace("_", "-").replace("--", "."): v for k, v in options.items()}
    return f"CREATE TABLE t ({columns}) WITH ({', '.join(f'{k!r} = {v!r}' for k, v in given.items())});"


def copying(table: str, columns: str = "id BIGINT") -> Stream:
    names = ", ".join(c.split()[0] for c in columns.split(", "))
    return Stream(f"{table} CREATE TABLE out ({columns}); INSERT INTO out SELECT {names} FROM t")


def counting(table: str) -> Stream:
    window = "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)"
    query = f"SELECT window_start, COUNT(*) FROM {window} GROUP BY window_start, window_end"
    return Stream(f"{table} CREATE TABLE out (w TIMESTAMP, n BIGINT); INSERT INTO out {query}")


def put(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def lines(path: Path, values: Sequence[object]) -> Path:
    return put(path, "".join(f"{json.dumps(v)}\n" for v in values))


def feed(stream: Stream, *paths: Path, now: ProcessingTime = NOW) -> None:
    splits = [FileSplit(str(p), p.stat().st_size, i, i) for i, p in enumerate(paths)]
    stream.now = now
    for run in stream.runs.values():
        run.batch({0: splits})


def malformed_count(stream: Stream) -> int:
    return int(stream.query("SELECT sum(malformed_rows) FROM sqlstream.watermarks")[0][0])


def test_malformed_json_is_kept_with_its_place(tmp_path: Path) -> None:
    with copying(declared("id BIGINT", "json", json__errors_to="bad")) as stream:
        assert stream.query(KEPT) == []
        first = put(tmp_path / "a.json", '{"id": 1}\n\n{"id": 1.5}\nnothing\n{"id": 2}')
        feed(stream, first)
        assert sorted(stream.rows("out")) == [(1,), (2,)]
        assert malformed_count(stream) == 2
        expected = [
            ("t", 3, '{"id": 1.5}', 'Column "id" does not hold a BIGINT'),
            ("t", 4, "nothing", "The line is not a JSON object"),
        ]
        assert stream.query(KEPT) == expected
        assert stream.query("SELECT DISTINCT job, file, epoch_us(processed_at) FROM bad") == [("out", str(first), NOW)]
        assert stream.query("SELECT rows_in, rows_out FROM sqlstream.jobs") == [(2, 2)]
        stream.restart()
        feed(stream, put(tmp_path / "b.json", f"[1]\n{'x' * 20_000}\n"))
        assert stream.query(KEPT)[:3] == [*expected, ("t", 1, "[1]", "The line is not a JSON object")]
        assert stream.query("SELECT max(length(text)) FROM bad") == [(10_000,)]
        assert stream.query("SELECT count(*) FROM bad AT (VERSION => 0)") == [(2,)]
        assert malformed_count(stream) == 4


def test_a_batch_that_is_repeated_keeps_its_rows_once(tmp_path: Path) -> None:
    """A crash between the results and the commit: the batch is run again, over the results of its first attempt."""
    with counting(declared(TIMED, "json", json__errors_to="bad")) as stream:
        feed(stream, put(tmp_path / "a.json", '{"id": 1, "ts": "2026-01-01 10:00:01"}\nx\n'))
        run = next(iter(stream.runs.values()))
        split = FileSplit(str(put(tmp_path / "b.json", "y\nz\n")), 4, 0, 4)
        descriptor = Descriptor(run.sequence + 1, NOW, {0: [split]}, {})
        commits = run.commits.paths.commits
        number, marks = run.batches.number, run.batches.watermarks
        run.run(descriptor)
        run.commits.warehouse.fs.delete(f"{commits}/{number}")
        stream.restart()
        again = next(iter(stream.runs.values()))
        assert (again.batches.number, again.batches.watermarks) == (number, marks)
        again.run(descriptor)
        assert [text for _, _, text, _ in stream.query(KEPT)] == ["x", "y", "z"]
        assert malformed_count(stream) == 3


def test_malformed_csv_is_kept_with_its_place(tmp_path: Path) -> None:
    options = {"csv__header": "true", "csv__errors_to": "bad"}
    with copying(declared("id BIGINT, s STRING, at TIMESTAMP", "csv", **options)) as stream:
        rows = [
            "id,s,at",
            '1,"two\nlines",',
            "x,,",
            "1.5,,",
            '2,"a ""b""",nope',
            "3,",
            "4,,,z",
            "",
            "5,,",
            '1.5,"c\nd",',
        ]
        feed(stream, put(tmp_path / "a.csv", "\n".join(rows) + "\n"))
        assert sorted(stream.rows("out")) == [(1,), (5,)]
        found = stream.query(KEPT)
        assert [(text, reason) for _, _, text, reason in found] == [
            ("x,,", 'Column "id" does not hold a BIGINT'),
            ("1.5,,", 'Column "id" does not hold a BIGINT'),
            ('2,"a ""b""",nope', 'Column "at" does not hold a TIMESTAMP'),
            ("3,", "The row has fewer than 3 fields"),
            ("4,,,z", "The row has more than 3 fields"),
            ('1.5,"c\nd",', 'Column "id" does not hold a BIGINT'),
        ]
        assert [number for _, number, _, _ in found][:5] == [3, 4, 5, 6, 7]
        assert malformed_count(stream) == 6


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (id) NOT ENFORCED"])
@pytest.mark.parametrize("form", ["json", "csv", "parquet", "avro"])
def test_operations_that_do_not_exist_are_kept(tmp_path: Path, form: str, key: str) -> None:
    values: list[dict[str, Any]] = [
        {"op": "I", "id": 1},
        {"op": "x", "id": 2},
        {"op": None, "id": 3},
        {"op": "I", "id": 4},
    ]
    path = tmp_path / f"a.{form}"
    match form:
        case "json":
            lines(path, values)
        case "csv":
            put(path, "".join(f"{v['op'] or ''},{v['id']}\n" for v in values))
        case "avro":
            avro(path, record(field("op", ["null", "string"]), field("id", "long")), *values)
        case _:
            pq.write_table(pa.Table.from_pylist(values), path)
    options = {"changelog__op_column": "op", f"{form}__errors_to": "bad"}
    with copying(declared(f"op STRING, id BIGINT{key}", form, **options)) as stream:
        feed(stream, path)
        assert sorted(stream.rows("out")) == [(1,), (4,)]
        texts = {"json": ['{"op": "x", "id": 2}', '{"op": null, "id": 3}'], "csv": ["x,2", ",3"]}
        parquet = ['{"op":"x","id":2}', '{"op":null,"id":3}']
        reason = 'Column "op" holds none of I, U, B, D'
        pairs = zip((2, 3), texts.get(form, parquet), strict=True)
        assert stream.query(KEPT) == [("t", number, text, reason) for number, text in pairs]


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (id) NOT ENFORCED"])
def test_envelopes_that_are_wrong_are_kept(tmp_path: Path, key: str) -> None:
    values = [{"op": "c", "after": {"id": 1}}, {"op": "x"}, {"op": "c", "after": {"id": 1.5}}, {"op": "d"}, None]
    with copying(declared(f"id BIGINT{key}", "debezium-json", debezium_json__errors_to="bad")) as stream:
        feed(stream, lines(tmp_path / "a.json", values))
        assert stream.rows("out") == [(1,)]
        assert [(number, reason.split(" does")[0]) for _, number, _, reason in stream.query(KEPT)] == [
            (2, "The envelope has no operation, or not the row that its operation needs"),
            (3, 'Column "after"'),
            (4, "The envelope has no operation, or not the row that its operation needs"),
        ]


FAR = "294247-01-10 00:00:00"


def at(time: str, id: int = 1) -> dict[str, object]:
    return {"id": id, "ts": time}


@pytest.mark.parametrize("time", [FAR, "294001-01-01 00:00:00", "290308-12-22 (BC)"])
def test_a_time_that_cannot_be_fails_with_its_row(tmp_path: Path, time: str) -> None:
    path = lines(tmp_path / "a.json", [at("2026-01-01 10:00:00"), at(time)])
    with counting(declared(TIMED, "json")) as stream:
        with pytest.raises(DataError) as error:
            feed(stream, path)
        assert error.value.message == f'row 2 of file "{path}" of table "t" is malformed'
        assert f'Event time "ts" is {time}' in (error.value.detail or "")
        assert "beyond the years that are possible" in (error.value.detail or "")
        assert "'json.ignore-parse-errors'" in (error.value.hint or "")
        assert "'scan.watermark.max-ahead'" in (error.value.hint or "")


@pytest.mark.parametrize("form", ["json", "csv", "parquet", "avro"])
def test_times_that_cannot_be_are_skipped_and_kept(tmp_path: Path, form: str) -> None:
    times = [
        "2026-01-01 10:00:00",
        FAR,
        "2026-01-01 10:00:05",
        "infinity",
        "294001-01-01 00:00:00",
        "2026-01-01 10:00:11",
    ]
    path = tmp_path / f"a.{form}"
    match form:
        case "json":
            put(path, "!\n" + "".join(f"{json.dumps(at(t))}\n" for t in times))
        case "csv":
            put(path, "!\n" + "".join(f"1,{t}\n" for t in times))
        case "avro":
            moment = {"type": "long", "logicalType": "local-timestamp-micros"}
            micros = [pa_con().execute("SELECT epoch_us(?::TIMESTAMP)", [t]).fetchall()[0][0] for t in times]
            micros[3] = (1 << 63) - 1
            avro(path, record(field("id", "long"), field("ts", moment)), *({"id": 1, "ts": t} for t in micros))
        case _:
            values = ", ".join(f"(1, TIMESTAMP '{t}')" for t in times)
            pa_con().execute(f"COPY (FROM (VALUES {values}) t(id, ts)) TO '{path}'")
    with counting(declared(TIMED, form, **{f"{form}__errors_to": "bad"})) as stream:
        feed(stream, path)
        first = 0 if form in ("parquet", "avro") else 1
        assert stream.rows("out") == [(ON_TIME, 2)]
        found = [(number, reason) for _, number, _, reason in stream.query(KEPT)][first:]
        reason = 'Event time "ts" is {}, beyond the years that are possible'
        assert found == [(2 + first, reason.format(FAR)), (5 + first, reason.format("294001-01-01 00:00:00"))]
        assert malformed_count(stream) == 2 + first
        assert stream.query("SELECT null_rows FROM sqlstream.watermarks") == [(1,)]
        stream.finish()
        assert sorted(n for _, n in stream.rows("out")) == [1, 2]


def pa_con() -> Any:
    import duckdb

    return duckdb.connect(config={"threads": 1})


def test_times_ahead_of_the_batchs_clock(tmp_path: Path) -> None:
    options = {"scan__watermark__max_ahead": "1 min", "json__errors_to": "bad"}
    path = lines(
        tmp_path / "a.json", [at("2026-01-01 10:00:00"), at("2026-01-01 10:01:00.001"), at("2026-01-01 10:01:00")]
    )
    with counting(declared(TIMED, "json", **options)) as stream:
        feed(stream, path)
        assert stream.rows("out") == [(ON_TIME, 1)]
        reason = 'Event time "ts" is 2026-01-01 10:01:00.001, ahead of the clock by more than 1 min'
        assert [(number, why) for _, number, _, why in stream.query(KEPT)] == [(2, reason)]
        # The clock is that of the batch, so that a repeated batch drops the same rows.
        feed(stream, lines(tmp_path / "b.json", [at("2026-01-01 10:01:00.001")]), now=ProcessingTime(NOW + MILLISECOND))
        assert malformed_count(stream) == 1
        stream.finish()
        assert sorted(n for _, n in stream.rows("out")) == [1, 2]


def test_any_source_may_have_a_bound_on_times() -> None:
    script = "CREATE TABLE t (id BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) {};"
    bound = "WITH ('scan.watermark.max-ahead' = '1 min')"
    with Stream(script.format(bound) + "CREATE TABLE out (id BIGINT); INSERT INTO out SELECT id FROM t") as stream:
        stream.now = NOW
        stream.batch("t", [(1, "2026-01-01 10:00:00"), (2, FAR), (3, "2027-01-01 00:00:00")])
        assert stream.rows("out") == [(1,)]
        assert malformed_count(stream) == 2
    with pytest.raises(BindError, match='max-ahead" needs a watermark'):
        Stream(script.replace(", WATERMARK FOR ts AS ts", "").format(bound))


def test_a_row_whose_time_cannot_be_is_no_longer_there(tmp_path: Path) -> None:
    columns = "id BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, PRIMARY KEY (id) NOT ENFORCED"
    for form in ("json", "debezium-json"):
        options = {f"{form.replace('-', '_')}__errors_to": "bad"} | (
            {"changelog__op_column": "op"} if form == "json" else {}
        )
        table = declared(columns, form, **options)
        rows = [at("2026-01-01 10:00:00", 1), at("2026-01-01 10:00:01", 2), at(FAR, 1)]
        values: Sequence[object] = [{"op": "I", **r} for r in rows[:2]] + [{"op": "U", **rows[2]}]
        if form != "json":
            values = [{"op": "c", "after": r} for r in rows[:2]] + [{"op": "u", "after": rows[2]}]
        with counting(table) as stream:
            feed(stream, lines(tmp_path / "a.json", values))
            assert [number for _, number, _, _ in stream.query(KEPT)] == [3]
            stream.finish()
            assert stream.rows("out") == [(ON_TIME, 1)]


def test_what_becomes_of_malformed_rows_can_change_while_a_job_lives() -> None:
    with (
        copying(declared("id BIGINT", "json")) as before,
        copying(declared("id BIGINT", "json", json__errors_to="bad")) as after,
    ):
        assert before.runs["out"].job.fingerprint == after.runs["out"].job.fingerprint


def test_names_that_cannot_keep_malformed_rows() -> None:
    for script, message in (
        (
            declared("id BIGINT", "json", json__errors_to="out"),
            'malformed rows cannot go into "out", which is declared with other columns',
        ),
        (
            "CREATE TABLE bad (id BIGINT) WITH ('connector' = 'print');"
            + declared("id BIGINT", "json", json__errors_to="BAD"),
            'malformed rows cannot go into "BAD", which is declared with other columns',
        ),
        (declared("id BIGINT", "json", json__errors_to=""), 'option "json.errors-to": it names a table'),
    ):
        with pytest.raises(BindError, match=message):
            copying(script)


def test_another_job_reads_what_is_kept(tmp_path: Path) -> None:
    bad = (
        "CREATE TABLE bad (job STRING, source_table STRING, file STRING, row_number BIGINT, text STRING, reason STRING,"
    )
    bad += " processed_at TIMESTAMP_LTZ(3));"
    script = "CREATE TABLE copy (text STRING); INSERT INTO copy SELECT text FROM bad;"
    with copying(declared("id BIGINT", "json", json__errors_to="bad")) as stream:
        stream.script(bad + script)
        feed_one = [FileSplit(str(put(tmp_path / "a.json", "x\n")), 2, 0, 2)]
        stream.now = NOW
        stream.runs["out"].batch({0: feed_one})
        stream.pull()
        assert stream.rows("copy") == [("x",)]


def rows_of(form: str, path: Path) -> Path:
    """Write three rows, of which the second one has no `id`."""
    ids = [1, None, 3]
    if form == "csv":
        return put(path, "".join(f"{'' if n is None else n},x\n" for n in ids))
    if form == "json":
        return lines(path, [{"id": n, "s": "x"} for n in ids])
    if form == "avro":
        fields = field("id", ["null", "long"]), field("s", ["null", "string"])
        avro(path, record(*fields), *({"id": n, "s": "x"} for n in ids))
        return path
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), "s": ["x"] * 3}), path)
    return path


NULLS = "id BIGINT NOT NULL, s STRING"


@pytest.mark.parametrize("form", ["json", "csv", "parquet", "avro"])
def test_a_row_without_a_value_that_is_never_null_fails_the_job(tmp_path: Path, form: str) -> None:
    path = rows_of(form, tmp_path / f"a.{form}")
    with copying(declared(NULLS, form), "id BIGINT") as stream:
        with pytest.raises(DataError) as caught:
            feed(stream, path)
        assert caught.value.message == (
            f'row 2 of file "{path}" of table "t": column "id" is NOT NULL, but the row has no value for it'
        )
        assert str(caught.value.hint).startswith(f"Set '{form}.ignore-parse-errors' = 'true' to skip such rows")


@pytest.mark.parametrize("form", ["json", "csv", "parquet", "avro"])
def test_a_row_without_a_value_that_is_never_null_is_kept(tmp_path: Path, form: str) -> None:
    path = rows_of(form, tmp_path / f"a.{form}")
    with copying(declared(NULLS, form, **{f"{form}__errors_to": "bad"}), "id BIGINT") as stream:
        feed(stream, path)
        assert sorted(stream.rows("out")) == [(1,), (3,)]
        assert malformed_count(stream) == 1
        why = 'Column "id" is NOT NULL, but the row has no value for it'
        assert stream.query("SELECT row_number, reason, file FROM bad") == [(2, why, str(path))]
        assert stream.verify("out").is_explained


def test_not_in_relies_on_columns_that_are_never_null(tmp_path: Path) -> None:
    tables = "".join(
        f"CREATE TABLE {name} (k INT NOT NULL) WITH ('connector' = 'filesystem', 'path' = '{name}', 'format' = 'json'{more});"
        for name, more in (("t", ", 'json.ignore-parse-errors' = 'true'"), ("p", ""))
    )
    query = "CREATE TABLE out (k INT); INSERT INTO out SELECT k FROM p WHERE k NOT IN (SELECT k FROM t)"
    for values, expected in (([1, None], [(2,)]), ([1], [(2,)]), ([None], [(1,), (2,)])):
        with Stream(tables + query) as stream:
            places = {scan.table.name: i for i, scan in enumerate(stream.runs["out"].job.plan.scans)}
            for name, ks in (("t", values), ("p", [1, 2])):
                path = lines(tmp_path / f"{name}.json", [{"k": k} for k in ks])
                split = FileSplit(str(path), path.stat().st_size, 0, 0)
                stream.runs["out"].batch({places[name]: [split]})
            assert sorted(stream.rows("out")) == expected


@pytest.mark.parametrize("skips", [False, True])
def test_a_delete_needs_its_key_alone(tmp_path: Path, skips: bool) -> None:
    columns = "id BIGINT NOT NULL, s STRING NOT NULL, PRIMARY KEY (id) NOT ENFORCED"
    more = {"json__errors_to": "bad"} if skips else {}
    options = {"changelog__op_column": "op", **more}
    with copying(declared(columns, "json", **options), "id BIGINT") as stream:
        feed(stream, lines(tmp_path / "a.json", [{"op": "I", "id": n, "s": "x"} for n in (1, 2)]))
        feed(stream, lines(tmp_path / "b.json", [{"op": "D", "id": 1}]))
        assert sorted(stream.rows("out")) == [(2,)]
        wrong = lines(tmp_path / "c.json", [{"op": "U", "id": 2, "s": None}])
        if not skips:
            with pytest.raises(DataError, match='column "s" is NOT NULL'):
                feed(stream, wrong)
            return
        feed(stream, wrong)
        assert sorted(stream.rows("out")) == [(2,)]
        assert [reason for *_, reason in stream.query(KEPT)] == [
            'Column "s" is NOT NULL, but the row has no value for it'
        ]


@pytest.mark.parametrize("skips", [False, True])
def test_rows_of_an_envelope_have_values(tmp_path: Path, skips: bool) -> None:
    columns = "id BIGINT NOT NULL, s STRING NOT NULL, PRIMARY KEY (id) NOT ENFORCED"
    more = {"debezium-json__errors_to": "bad"} if skips else {}
    envelopes: list[dict[str, object]] = [
        {"before": None, "after": {"id": 1, "s": "x"}, "op": "c"},
        {"before": {"id": 1}, "after": {"id": 1, "s": "y"}, "op": "u"},
        {"before": None, "after": {"id": 2}, "op": "c"},
        {"before": {"id": 1}, "after": None, "op": "d"},
    ]
    with copying(declared(columns, "debezium-json", **more), "id BIGINT") as stream:
        path = lines(tmp_path / "a.json", envelopes)
        if not skips:
            with pytest.raises(DataError, match='column "s" is NOT NULL'):
                feed(stream, path)
            return
        feed(stream, path)
        assert stream.rows("out") == []
        found = stream.query(KEPT)
        assert [(n, why) for _, n, _, why in found] == [(3, 'Column "s" is NOT NULL, but the row has no value for it')]


UNFIT = "A text that the query reads as a number is none"


def test_a_text_that_a_query_reads_as_a_number_is_kept_with_its_place(tmp_path: Path) -> None:
    table = declared("id BIGINT, s STRING", "json", json__errors_to="bad")
    query = "INSERT INTO out SELECT id + 1 FROM (SELECT id, s AS code FROM t WHERE id > 0) WHERE code > 3 OR id = 9"
    with Stream(f"{table} CREATE TABLE out (id BIGINT); {query}") as stream:
        texts = [(1, "5"), (2, "five"), (9, "nine"), (0, "none"), (3, "2"), (4, None)]
        feed(stream, lines(tmp_path / "a.json", [{"id": n, "s": s} for n, s in texts]))
        # Of the others the text decides nothing.
        assert sorted(stream.rows("out")) == [(2,), (10,)]
        assert malformed_count(stream) == 1
        assert stream.query(KEPT) == [("t", 2, '{"id": 2, "s": "five"}', UNFIT)]
        stream.restart()
        feed(stream, lines(tmp_path / "b.json", [{"id": 5, "s": "x"}, {"id": 6, "s": "6"}]))
        assert sorted(stream.rows("out")) == [(2,), (7,), (10,)]
        assert malformed_count(stream) == 2


def test_a_text_that_is_no_number_counts_without_an_option(tmp_path: Path) -> None:
    """It counts once, though it is in several windows, and read by several queries."""
    table = declared("s STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts", "json")
    windows = "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND)"
    script = f"""{table} CREATE TABLE sums (w TIMESTAMP, total BIGINT); CREATE TABLE out (n INT);
        EXECUTE STATEMENT SET BEGIN
        INSERT INTO sums SELECT window_start, SUM(s + 1) FROM {windows} GROUP BY window_start, window_end;
        INSERT INTO out SELECT s + 1 FROM t; END"""
    with Stream(script) as stream:
        rows = [{"s": s, "ts": "2026-01-01 10:00:05"} for s in ("1", "one", "2")]
        feed(stream, lines(tmp_path / "a.json", rows))
        assert malformed_count(stream) == 1
        assert sorted(stream.query("SELECT n FROM out")) == [(2,), (3,)]
        stream.finish()
        assert {total for _, total in stream.query("SELECT * FROM sums")} == {5}


def test_a_text_above_an_operator_is_null(tmp_path: Path) -> None:
    table = declared("id BIGINT, s STRING", "json")
    query = "INSERT INTO out SELECT id, MAX(s) + 1 FROM t GROUP BY id"
    with Stream(f"{table} CREATE TABLE out (id BIGINT, n INT, PRIMARY KEY (id) NOT ENFORCED); {query}") as stream:
        feed(stream, lines(tmp_path / "a.json", [{"id": 1, "s": "5"}, {"id": 2, "s": "five"}]))
        assert sorted(stream.rows("out"), key=str) == [(1, 6), (2, None)]
        assert malformed_count(stream) == 0
