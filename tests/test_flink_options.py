"""Options, hints and statements of Flink that need nothing: each is accepted with one notice, and changes nothing."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sqlstream.compiler.compiler import Compiler
from sqlstream.connectors.flink_options import OPTIONS
from sqlstream.errors import SourceText, SqlStreamError
from sqlstream.options import Options
from sqlstream.session.changes import RowPrinter
from sqlstream.testing import Stream

FILES = "'connector' = 'filesystem', 'path' = 'in'"
INDEX = "'connector' = 'elasticsearch-7', 'hosts' = 'http://localhost:1', 'index' = 'i'"
KAFKA = "'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'localhost:1'"


@pytest.fixture
def noticed() -> Iterator[Callable[[str], list[str]]]:
    """Returns the messages of the notices about a script."""
    compiler = Compiler(Options({"parallelism.default": "2"}))

    def messages(script: str) -> list[str]:
        found: list[SqlStreamError] = []
        compiler.warn = found.append
        compiler.scripts([SourceText("script", script)])
        assert all(notice.span is not None for notice in found)
        return [notice.message for notice in found]

    yield messages
    compiler.close()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (f"{FILES}, 'format' = 'json', 'json.map-null-key.mode' = 'LITERAL'", "json.map-null-key.mode"),
        (f"{FILES}, 'format' = 'json', 'json.map-null-key.literal' = 'x'", "json.map-null-key.literal"),
        (f"{FILES}, 'format' = 'json', 'sink.parallelism' = '4'", "sink.parallelism"),
        (f"{FILES}, 'format' = 'json', 'scan.parallelism' = '4'", "scan.parallelism"),
        (
            f"{FILES}, 'format' = 'json', 'sink.rolling-policy.rollover-interval' = '1 min'",
            "sink.rolling-policy.rollover",
        ),
        (f"{FILES}, 'format' = 'csv', 'csv.allow-comments' = 'false'", "csv.allow-comments"),
        (f"{FILES}, 'format' = 'csv', 'csv.disable-quote-character' = 'false'", "csv.disable-quote-character"),
        (f"{FILES}, 'format' = 'csv', 'csv.disable-quote-character' = 'true'", "csv.disable-quote-character"),
        (f"{KAFKA}, 'format' = 'json', 'properties.zookeeper.connect' = 'z:2181'", "properties.zookeeper.connect"),
        (f"{KAFKA}, 'format' = 'json', 'sink.semantic' = 'at-least-once'", "sink.semantic"),
        (f"{KAFKA}, 'format' = 'json', 'sink.buffer-flush.max-rows' = '10'", "sink.buffer-flush.max-rows"),
        (f"{KAFKA}, 'value.format' = 'json', 'value.json.map-null-key.mode' = 'FAIL'", "value.json.map-null-key.mode"),
        ("'connector' = 'print', 'standard-error' = 'true'", "standard-error"),
        (f"{INDEX}, 'sink.bulk-flush.backoff.strategy' = 'DISABLED'", "sink.bulk-flush.backoff.strategy"),
        (f"{INDEX}, 'failure-handler' = 'retry-rejected'", "failure-handler"),
        (f"{INDEX}, 'sink.delivery-guarantee' = 'at-least-once'", "sink.delivery-guarantee"),
        (f"{INDEX}, 'format' = 'json', 'json.encode.decimal-as-plain-number' = 'true'", "json.encode.decimal"),
        ("'value.format' = 'avro-registry'", "value.format"),
    ],
)
def test_an_option_without_an_effect_has_one_notice(
    noticed: Callable[[str], list[str]], options: str, named: str
) -> None:
    [message] = noticed(f"CREATE TABLE a (n INT) WITH ({options}); CREATE TABLE b (n INT) WITH ({options});")
    assert message.startswith(f'option "{named}')


def test_options_that_are_built_have_no_notice(noticed: Callable[[str], list[str]]) -> None:
    built = "'json.fail-on-missing-field' = 'false', 'json.timestamp-format.standard' = 'ISO-8601'"
    assert noticed(f"CREATE TABLE a (n INT) WITH ({FILES}, 'format' = 'json', {built})") == []
    assert noticed(f"CREATE TABLE b (n INT) WITH ({KAFKA}, 'format' = 'json', 'sink.parallelism' = '2')") == []
    assert noticed("CREATE TABLE c (n INT) WITH ('connector' = 'print', 'print-identifier' = 'x')") == []


def test_options_of_a_hint_are_accepted_too(noticed: Callable[[str], list[str]]) -> None:
    noticed(f"CREATE TABLE a (n INT) WITH ({FILES}, 'format' = 'csv'); CREATE TABLE o (n INT)")
    hint = "/*+ OPTIONS('scan.parallelism' = '4') */"
    [message] = noticed(f"INSERT INTO o SELECT n FROM a {hint}")
    assert message.startswith('option "scan.parallelism" has no effect')


def test_a_table_of_the_catalog_is_noticed_where_a_job_uses_it() -> None:
    compiler = Compiler(Options({"parallelism.default": "2"}))
    found: list[SqlStreamError] = []
    compiler.warn = found.append
    table = f"CREATE TABLE {{}} (n INT) WITH ({FILES}, 'format' = 'json', '{{}}' = '4');"
    text = table.format("a", "scan.parallelism") + table.format("b", "sink.parallelism") + "CREATE TABLE o (n INT);"
    compiler.definitions(SourceText("tables.sql", text))
    assert found == []
    compiler.scripts([SourceText("script", "INSERT INTO o SELECT n FROM a")])
    assert [notice.message.split('"')[1] for notice in found] == ["scan.parallelism"]
    compiler.close()


def test_hints_and_clauses(noticed: Callable[[str], list[str]]) -> None:
    tables = "CREATE TABLE a (n INT, ts TIMESTAMP(9)); CREATE TABLE b (n INT) DISTRIBUTED BY (n); ADD JAR 'x.jar';"
    joined = "SELECT /*+ BROADCAST(b), STATE_TTL('a' = '1 d'), NEST_LOOP(b) */ a.n FROM a JOIN b ON a.n = b.n"
    messages = noticed(f"{tables} CREATE TABLE o (n INT); INSERT INTO o {joined}")
    named = ["the precision 9", "DISTRIBUTED", "ADD JAR", "the hint BROADCAST", "the hint NEST_LOOP"]
    assert [message.partition(" has no effect")[0] for message in messages] == named
    more = "ALTER TABLE a MODIFY DISTRIBUTION BY (n) INTO 3 BUCKETS; DROP MATERIALIZED TABLE IF EXISTS m;"
    more += "CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '3' MINUTES REFRESH_MODE = FULL AS SELECT n FROM a"
    messages = noticed(more)
    named = ["DISTRIBUTION", "MATERIALIZED", "FRESHNESS", "REFRESH_MODE"]
    assert [message.partition(" has no effect")[0] for message in messages] == named
    more = "LOAD MODULE hive WITH ('hive-version' = '3.1.2'); USE MODULES core, hive; UNLOAD MODULE hive;"
    messages = noticed(f"{more} EXPLAIN ESTIMATED_COST, CHANGELOG_MODE SELECT 1")
    named = ["LOAD MODULE", "USE MODULES", "UNLOAD MODULE", "the detail ESTIMATED_COST", "the detail CHANGELOG_MODE"]
    assert [message.partition(" has no effect")[0] for message in messages] == named


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE t (a INT); CREATE TABLE o AS SELECT a, COUNT(*) AS n FROM t GROUP BY a",
        """CREATE DATABASE shop; USE shop; CREATE TABLE shop (a INT); CREATE VIEW v AS SELECT a FROM shop.shop;
        USE default_database; CREATE TABLE default_database.o (a INT); INSERT INTO o SELECT a FROM `shop`.v""",
        "CREATE DATABASE d; CREATE TABLE t (a INT); USE d; CREATE TABLE o AS SELECT a FROM default_database.t",
        """CREATE TABLE t (a INT); ALTER TABLE t ADD (ts TIMESTAMP(3), WATERMARK FOR ts AS ts); ALTER TABLE t RENAME a TO b;
        ALTER TABLE t RENAME TO u; CREATE TABLE o (b INT); ALTER TABLE o ADD n BIGINT;
        INSERT INTO o SELECT b, COUNT(*) FROM TABLE(TUMBLE(TABLE u, DESCRIPTOR(ts), INTERVAL '1' DAY)) GROUP BY b, window_start,
        window_end""",
        """CREATE DATABASE d; USE d; CREATE TABLE t (a INT); USE default_database; ALTER TABLE d.t MODIFY a BIGINT;
        CREATE OR ALTER MATERIALIZED TABLE o FRESHNESS = INTERVAL '1' HOUR AS SELECT a FROM d.t""",
    ],
)
def test_a_job_is_compiled_again_from_what_its_record_says(script: str) -> None:
    compiler = Compiler(Options({"parallelism.default": "2"}))
    [job] = compiler.jobs([SourceText("script", script)])
    compiler.close()
    assert job.script is not None
    again = Compiler(Options({"parallelism.default": "2"}))
    [same] = again.jobs([SourceText("record", text) for text in (*job.script.declarations, job.sql)])
    again.close()
    assert same.fingerprint == job.fingerprint


def test_set_has_one_notice(noticed: Callable[[str], list[str]]) -> None:
    script = "SET 'table.exec.mini-batch.enabled' = 'true'; SET 'table.exec.mini-batch.enabled' = 'false'; RESET"
    [message] = noticed(script)
    assert message.startswith('option "table.exec.mini-batch.enabled" has no effect: every batch is a mini-batch')


def test_no_option_of_the_table_hides_one_of_ours() -> None:
    from sqlstream.connectors.registry import built_in, named
    from sqlstream.connectors.tables import all_options

    ours = {option.name for name in built_in() for option in all_options(named(name))}
    both = {option.name for option in OPTIONS if any(option.covers(name) for name in ours)}
    # Topics are written by several writers, and with several guarantees. Tables without a connector have no format.
    assert both <= {"sink.parallelism", "sink.delivery-guarantee", "value.format", "key.format"}
    assert all(other in ours for option in OPTIONS for other, _ in option.means.values())


LINES = '{"n": 1, "r": {"a": 1, "b": null}, "l": [{"x": 1}], "m": {"k": {"y": 2}}}\n'
COLUMNS = "n INT, r ROW<a INT, b INT>, l ARRAY<ROW<x INT>>, m MAP<STRING, ROW<y INT>>"


def read_json(path: Path, more: str = "") -> list[tuple[object, ...]]:
    script = f"""CREATE TABLE t ({COLUMNS}) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'json',
    'json.fail-on-missing-field' = 'true'{more}); CREATE TABLE o (n INT); INSERT INTO o SELECT n FROM t"""
    with Stream(script) as stream:
        stream.finish()
        rows = stream.query("SELECT n FROM o ORDER BY n")
        return [*rows, *(stream.query("SELECT row_number, reason FROM wrong ORDER BY 1") if "errors" in more else [])]


def test_a_missing_field_is_malformed(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(LINES + '{"n": null, "r": null, "l": [], "m": {}}\n')
    assert read_json(tmp_path) == [(1,), (None,)]
    lacking = [LINES.replace(part, "") for part in ('"n": 1, ', ', "b": null', '"x": 1', '"y": 2')]
    for line in lacking:
        (tmp_path / "b.json").write_text(line)
        with pytest.raises(SqlStreamError) as raised:
            read_json(tmp_path)
        assert "line 1 of file" in raised.value.message
        assert "The object has no field" in (raised.value.detail or "")
    (tmp_path / "b.json").write_text("".join(lacking))
    kept = read_json(tmp_path, ", 'json.errors-to' = 'wrong'")
    reasons = [f'The object has no field "{name}", or one within it is missing' for name in "nrlm"]
    assert kept == [(1,), (None,), *enumerate(reasons, start=1)]


def test_times_are_written_as_iso_8601_says(tmp_path: Path) -> None:
    script = """CREATE TABLE given (ts TIMESTAMP(3), z TIMESTAMP_LTZ(3), d DATE);
    CREATE TABLE o (ts TIMESTAMP(3), z TIMESTAMP_LTZ(3), d DATE) WITH ('connector' = 'filesystem', 'path' = '{}',
    'format' = 'json', 'json.timestamp-format.standard' = '{}'); INSERT INTO o SELECT * FROM given"""
    row = ("2026-01-01 10:00:00.5", "2026-01-01 10:00:00+00", "2026-01-01")
    written = {}
    for standard in ("SQL", "ISO-8601"):
        folder = tmp_path / standard
        with Stream(script.format(folder, standard)) as stream:
            stream.batch("given", [row, (None, None, None)])
        [file] = folder.glob("*.json")
        written[standard] = file.read_text().splitlines()[0]
        with Stream(
            script.split(";")[1].replace(" o ", " t ").format(folder, standard) + "; SELECT ts, d FROM t;"
        ) as stream:
            stream.finish()
            assert [str(cell) for cell in stream.rows()[0]] == ["2026-01-01 10:00:00.500000", "2026-01-01"]
    assert written["ISO-8601"] == '{"ts":"2026-01-01T10:00:00.5","z":"2026-01-01T10:00:00Z","d":"2026-01-01"}'
    assert written["SQL"].startswith('{"ts":"2026-01-01 10:00:00.5","z":"2026-01-01 10:00:00')
    nested = "CREATE TABLE given (r ROW<ts TIMESTAMP(3)>); CREATE TABLE o (r ROW<ts TIMESTAMP(3)>)"
    nested += f" WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'json',"
    nested += " 'json.timestamp-format.standard' = 'ISO-8601'); INSERT INTO o SELECT * FROM given"
    with pytest.raises(SqlStreamError, match="times within other values"):
        Stream(nested)


def test_an_identifier_stands_before_printed_rows(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("1\n20\n")
    output = io.StringIO()
    script = """CREATE TABLE t (n INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'csv');
    CREATE TABLE shown WITH ('connector' = 'print', 'print-identifier' = 'rows') AS SELECT n FROM t"""
    columns = (("n", "INTEGER"),)
    with Stream(script.replace("'in'", f"'{tmp_path}/in'")) as stream:
        [job] = [run.job for run in stream.runs.values()]
        [sink] = job.plan.sinks
        assert sink.columns == columns
        RowPrinter(output, sink).write([["+I", "1"], ["+I", "20"]])
    assert output.getvalue() == "         |  n\n      ---+---\nrows> +I |  1\nrows> +I | 20\n"
