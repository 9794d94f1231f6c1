"""Scripts to jobs: definitions, names, identity."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sqlstream.compiler.catalog_answers import Answer
from sqlstream.compiler.compiler import Compiler, Explanation
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import BindError, ParseError, SourceText, SqlStreamError
from sqlstream.functions.declare import declare
from sqlstream.jobs.difference import difference
from sqlstream.jobs.launch import job_record, job_spec
from sqlstream.options import Options
from sqlstream.warehouse.jobs import JobRecord
from tests.kinds import jobs_of

TABLES = """
CREATE TABLE t (k BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts)
  WITH ('connector' = 'filesystem', 'path' = 't', 'format' = 'json');
CREATE TABLE out (k BIGINT);
"""
INSERT = "INSERT INTO out SELECT k FROM t"


@pytest.fixture
def compiler() -> Iterator[Compiler]:
    compiler = Compiler(Options({"parallelism.default": "2"}))
    compiler.definitions(SourceText("tables.sql", TABLES))
    yield compiler
    compiler.close()


def names(compiler: Compiler, *texts: str) -> list[str]:
    return [
        job.name for job in jobs_of(compiler.scripts([SourceText(f"{i}.sql", text) for i, text in enumerate(texts)]))
    ]


def test_a_job_is_named_after_its_sink_and_numbered_within_a_run(compiler: Compiler) -> None:
    assert names(compiler, f"{INSERT}; {INSERT}", "SELECT k FROM t; INSERT INTO OUT SELECT k FROM t") == [
        *("out", "out_2", "result", "out_3"),
    ]
    # Another run of the same script means the same jobs.
    assert names(compiler, f"{INSERT}; {INSERT}") == ["out", "out_2"]


def test_an_explicit_name_is_for_one_insert(compiler: Compiler) -> None:
    mine = "SET 'pipeline.name' = 'mine'"
    assert names(compiler, f"{mine}; {INSERT}; SELECT k FROM t") == ["mine", "result"]
    # The next job alone: those before and after are named after their tables.
    assert names(compiler, f"{INSERT}; {mine}; SELECT k FROM t; {INSERT}; {INSERT}") == [
        "out",
        "result",
        "mine",
        "out_2",
    ]
    # A statement that fails has not used it up.
    with pytest.raises(BindError):
        names(compiler, f"{mine}; INSERT INTO out SELECT nothing FROM t")
    assert names(compiler, f"{INSERT}; {INSERT}") == ["mine", "out"]


@pytest.mark.parametrize("before", [f"SET 'pipeline.name' = 'Mine'; {INSERT}", "INSERT INTO mine SELECT k FROM t"])
def test_an_explicit_name_is_not_given_twice(compiler: Compiler, before: str) -> None:
    compiler.definitions(SourceText("more.sql", "CREATE TABLE mine (k BIGINT)"))
    with pytest.raises(BindError) as error:
        names(compiler, f"{before}; SET 'pipeline.name' = 'Mine';\n{INSERT}")
    assert error.value.message == 'a second INSERT runs under the name "Mine"'
    assert error.value.detail is not None
    assert error.value.detail.startswith("The first one is at 0.sql:1:")
    assert str(error.value.span) == "0.sql:2:1"


def test_a_numbered_name_does_not_take_one_that_is_taken(compiler: Compiler) -> None:
    compiler.definitions(SourceText("more.sql", "CREATE TABLE out_2 (k BIGINT)"))
    assert names(compiler, f"INSERT INTO out_2 SELECT k FROM t; {INSERT}; {INSERT}") == ["out_2", "out", "out_3"]


def test_options_are_those_in_force_at_the_statement(compiler: Compiler) -> None:
    text = f"{INSERT}; SET 'parallelism.default' = '7'; {INSERT}"
    assert [job.options.parallelism for job in jobs_of(compiler.scripts([SourceText("x", text)]))] == [2, 7]


def test_nothing_is_bound_before_everything_is_parsed(compiler: Compiler) -> None:
    with pytest.raises(ParseError):
        compiler.scripts([SourceText("a", "CREATE TABLE new (k INT)"), SourceText("b", "SELECT FROM WHERE")])
    assert compiler.catalog.relation("new") is None


def test_the_same_definition_twice_is_one_another_is_refused(compiler: Compiler) -> None:
    names(compiler, TABLES)
    with pytest.raises(BindError, match=r'"out" exists already with another definition at tables\.sql:4:14'):
        names(compiler, "CREATE TABLE out (k INT)")


def test_a_catalog_file_declares_each_name_once_and_holds_only_declarations(compiler: Compiler) -> None:
    with pytest.raises(BindError, match=r'"out" is declared twice, first in tables\.sql'):
        compiler.definitions(SourceText("other.sql", "CREATE TABLE out (k BIGINT)"))
    with pytest.raises(BindError, match="a catalog file holds CREATE TABLE, CREATE VIEW and CREATE FUNCTION only"):
        compiler.definitions(SourceText("other.sql", "SET 'pipeline.name' = 'x'"))


def test_a_function_is_known_to_what_is_compiled_after_it(compiler: Compiler) -> None:
    with pytest.raises(BindError, match='function "twice" does not exist'):
        names(compiler, "SELECT twice(k) FROM t")

    def twice(x: int) -> int:
        return 2 * x

    compiler.add_functions([declare(twice)])
    assert names(compiler, "SELECT twice(k) FROM t") == ["result"]
    with pytest.raises(BindError) as error:
        names(compiler, "SELECT twic(k) FROM t")
    assert error.value.hint == 'did you mean "twice"?'


def test_a_bounded_job_reads_only_bounded_tables(compiler: Compiler) -> None:
    compiler.definitions(
        SourceText(
            "more.sql",
            "CREATE TABLE m (k BIGINT) WITH ('connector' = 'filesystem', 'path' = 'm', 'format' = 'json',"
            " 'source.monitor-interval' = '1 s')",
        )
    )
    jobs = jobs_of(compiler.scripts([SourceText("x", "SELECT k FROM t; SELECT k FROM t UNION ALL SELECT k FROM m")]))
    assert [job.bounded for job in jobs] == [True, False]


def test_the_record_of_a_job_says_all_that_a_later_process_needs(compiler: Compiler) -> None:
    text = """INSERT INTO out WITH hot AS (SELECT k, COUNT(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)
    GROUP BY k, window_start, window_end) SELECT n FROM hot"""
    [planned] = jobs_of(compiler.scripts([SourceText("x", text)]))
    job = job_spec(planned, "/warehouse", [4, 1])
    record = job_record(planned, job, 2)
    assert JobRecord.from_json(record.to_json()) == record
    assert (record.job, record.sql, record.bucket_labels, record.partitions) == ("out", text, (4, 1), 2)
    [operator] = record.operators
    assert (operator.name, operator.kind, operator.key_columns) == ("hot", "window_aggregate", ("k",))
    assert [name for name, _ in operator.view_columns] == ["k", "window_start", "window_end", "window_time", "n"]
    assert record.sinks[0].table == "out"


def test_explain_does_not_take_a_name() -> None:
    compiler = Compiler()
    text = "CREATE TABLE t (a INT); EXPLAIN INSERT INTO t SELECT * FROM (VALUES (1)); INSERT INTO t SELECT * FROM (VALUES (1))"
    explanation, job = compiler.scripts([SourceText("x", text)])
    assert isinstance(explanation, Explanation)
    assert isinstance(job, PlannedJob)
    assert (explanation.job.name, job.name) == ("t", "t")


def test_reset_goes_back_to_what_was_given() -> None:
    compiler = Compiler(Options({"parallelism.default": "3"}))
    text = "SET 'parallelism.default' = '7'; SET 'sqlstream.memory' = '2 GB'; RESET 'parallelism.default'"
    compiler.scripts([SourceText("x", text)])
    assert (compiler.options.parallelism, compiler.options.memory) == (3, "2 gb")
    compiler.scripts([SourceText("x", "RESET")])
    assert compiler.options.memory == Options().memory


def test_a_long_difference_is_cut_to_what_differs() -> None:
    before = ["Sink out", *(f"  Project {i}" for i in range(10)), f"  Filter {'a' * 300}1{'b' * 300}", "  Scan t"]
    after = [*before[:-2], f"  Filter {'a' * 300}2{'b' * 300}", "  Scan t"]
    shown = difference("\n".join(before), "\n".join(after)).splitlines()
    assert shown[:2] == ["--- the job's", "+++ yours"]
    assert [line[:1] for line in shown[2:]] == ["-", "+"]
    assert "a1b" in shown[2]
    assert "a2b" in shown[3]
    assert max(map(len, shown)) < 140
    other = [f"  Project {i + 100}" for i in range(10)]
    assert difference("\n".join(before), "\n".join([before[0], *other, *before[11:]])).endswith(
        "(14 more lines differ)"
    )


def test_show_functions_lists_those_of_the_project() -> None:
    def shorten(text: str, length: int) -> str:
        return text[:length]

    compiler = Compiler()
    compiler.add_functions([declare(shorten)])
    [answer] = compiler.scripts([SourceText("x", "SHOW FUNCTIONS LIKE 'SHORT%'")])
    assert isinstance(answer, Answer)
    assert [row[:3] for row in answer.rows] == [("shorten", "(VARCHAR, BIGINT)", "VARCHAR")]


FILES = "CREATE TABLE f (a INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json'{})"


def plan_of(query: str, more: str = "", /, **given: dict[str, str]) -> PlannedJob:
    compiler = Compiler(Options(), table_options=given)
    compiler.definitions(SourceText("f.sql", FILES.format(more)))
    [job] = compiler.jobs([SourceText("q.sql", query)])
    compiler.close()
    return job


def test_a_job_goes_on_when_its_tables_are_read_at_another_pace() -> None:
    plain = plan_of("SELECT a FROM f")
    watched = plan_of("SELECT a FROM f", ", 'source.monitor-interval' = '1 s', 'source.max-files-per-batch' = '3'")
    assert (plain.bounded, watched.bounded) == (True, False)
    assert plain.fingerprint == watched.fingerprint
    # By hint, and from outside, too.
    hinted = plan_of("SELECT a FROM f /*+ OPTIONS('source.monitor-interval' = '1 s') */")
    outside = plan_of("SELECT a FROM f", F={"source.monitor-interval": "1 s"})
    assert hinted.fingerprint == outside.fingerprint == plain.fingerprint
    assert not hinted.bounded
    assert not outside.bounded
    # Another folder is another job, but what lies outside of the project may move.
    assert plan_of("SELECT a FROM f", f={"path": "other"}).fingerprint != plain.fingerprint
    moved = [plan_of("SELECT a FROM f", f={"path": path}).fingerprint for path in ("/a/in", "/b/in", "s3://b/in")]
    assert len(set(moved)) == 1


def test_each_use_of_a_table_has_its_own_options() -> None:
    both = "SELECT a FROM f UNION ALL SELECT a FROM f{}"
    one, two = plan_of(both.format("")), plan_of(both.format(" /*+ OPTIONS('source.monitor-interval' = '1 s') */"))
    assert [scan.table.options.get("source.monitor-interval") for scan in one.physical.scans] == [None]
    assert [scan.table.options.get("source.monitor-interval") for scan in two.physical.scans] == [None, "1 s"]
    # Two sources where there was one: that is no matter of pace.
    assert one.fingerprint != two.fingerprint


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"g": {"path": "x"}}, 'options are given for table "g", which does not exist'),
        ({"f": {"source.monitor-intervall": "1 s"}}, 'table "f": option "source.monitor-intervall" does not exist'),
        ({"f": {"source.monitor-interval": ""}}, 'table "f" has no option "source.monitor-interval" to remove'),
    ],
)
def test_options_from_outside_are_checked(given: dict[str, dict[str, str]], message: str) -> None:
    with pytest.raises(SqlStreamError) as error:
        plan_of("SELECT a FROM f", "", **given)
    assert error.value.message.startswith(message)


def test_options_from_outside_go_over_those_of_like_and_take_away() -> None:
    more = ", 'source.monitor-interval' = '1 s'"
    bounded = plan_of("CREATE TABLE g LIKE f; SELECT a FROM g", more, g={"source.monitor-interval": ""})
    assert bounded.bounded
    assert not plan_of("CREATE TABLE g LIKE f; SELECT a FROM g", more).bounded
