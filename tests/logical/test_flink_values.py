"""Flink's values of casts and operators, and DuckDB's of jobs that began with them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sqlstream.compiler.compiler import Compiler
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText, StatementWarning
from sqlstream.jobs.identity import planned_digests
from sqlstream.logical.bind.expressions.decimals import quotient, quotient_type
from sqlstream.session.explaining import explained
from tests.flink_examples import bound, evaluated, literal
from tests.kinds import of_type
from tests.properties.examples import examples

TABLE = (
    "CREATE TABLE t (i INT, j INT, v DOUBLE, d DECIMAL(10,2), s STRING, day DATE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)"
    " WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet');"
)
# SQL, Flink's value and DuckDB's, both as DuckDB's SQL.
VALUES = [
    ("CAST(1.5 AS INT)", "1", "2"),
    ("CAST(-2.9 AS BIGINT)", "-2", "-3"),
    ("CAST(CAST(2.5 AS DECIMAL(10,2)) AS SMALLINT)", "2", "3"),
    ("CAST('12.7' AS INT)", "12", "13"),
    ("CAST(' -0.9 ' AS INT)", "0", "-1"),
    ("TRY_CAST('1.x' AS INT)", "NULL", "NULL"),
    ("CAST(lower(' -12.7 ') AS INT)", "-12", "-13"),
    ("CAST(lower('-9223372036854775808.9') AS BIGINT)", "-9223372036854775808", "-9223372036854775809"),
    ("TRY_CAST(lower('1.x') AS INT)", "NULL", "NULL"),
    ("TRY_CAST(1e300 AS INT)", "NULL", "NULL"),
    ("CAST(CAST(NULL AS DOUBLE) AS INT)", "NULL", "NULL"),
    ("CAST(17 / 10 AS INT)", "1", "2"),
    ("-7 / 2", "-3", "-3.5"),
    ("CAST(NULL AS INT) / 2", "NULL", "NULL"),
    ("7 / 2.0", "3.500000::DECIMAL(17,6)", "3.5"),
    ("CAST(2 AS DECIMAL(10,2)) / 3", "0.6666666666667::DECIMAL(21,13)", "2 / 3"),
    ("CAST(NULL AS DECIMAL(10,2)) / 3", "NULL", "NULL"),
    ("7 / 2e0", "3.5", "3.5"),
    ("SUBSTRING('Hello', 0, 3)", "'Hel'", "'He'"),
    ("SUBSTRING('Hello' FROM 0)", "'Hello'", "'Hello'"),
    ("SUBSTRING('Hello', -9, 6)", "''", "'He'"),
    ("SUBSTRING('Hello', 2, -1)", "NULL", "'H'"),
    ("SUBSTR('Hello', length('ab') - 2, 2)", "'He'", "'H'"),
    ("SUBSTRING(NULL, 0, 1)", "NULL", "NULL"),
    ("'a_c' SIMILAR TO 'a_c'", "true", "true"),
    ("'abc' SIMILAR TO 'a_c'", "true", "false"),
    ("'a.c' SIMILAR TO 'a.c'", "true", "true"),
    ("'axc' SIMILAR TO 'a.c'", "false", "true"),
    ("'axc' NOT SIMILAR TO '%(x|y)c'", "false", "true"),
    ("'abc' SIMILAR TO concat('%', 'c')", "true", "false"),
    ("CAST(NULL AS STRING) SIMILAR TO '%'", "NULL", "NULL"),
    ("EXTRACT(MICROSECOND FROM TIMESTAMP '2020-01-01 00:00:07.123')", "123000", "7123000"),
    ("CEIL(DATE '2020-01-05' TO WEEK)", "DATE '2020-01-05'", "DATE '2020-01-06'"),
    ("FLOOR(CAST(NULL AS TIMESTAMP) TO WEEK)", "NULL", "NULL"),
    (
        "CAST(CAST('2020-01-01 00:00:00' AS TIMESTAMP(3)) AS STRING)",
        "'2020-01-01 00:00:00.000'",
        "'2020-01-01 00:00:00'",
    ),
    (
        "CAST(CAST('2020-01-01 00:00:00.5' AS TIMESTAMP(0)) AS STRING)",
        "'2020-01-01 00:00:00'",
        "'2020-01-01 00:00:00.5'",
    ),
    (
        "CAST(CAST('2020-01-01 00:00:00.123456' AS TIMESTAMP) AS STRING)",
        "'2020-01-01 00:00:00.123456'",
        "'2020-01-01 00:00:00.123456'",
    ),
    ("CAST(TIMESTAMP '2020-01-01 00:00:00' AS STRING)", "'2020-01-01 00:00:00'", "'2020-01-01 00:00:00'"),
    ("CAST(TO_TIMESTAMP_LTZ(0, 3) AS STRING)", "'1970-01-01 00:00:00.000'", "'1970-01-01 00:00:00+00'"),
    ("CAST(1 > 2 AS VARCHAR(3))", "'FAL'", "'false'"),
    ("CAST(CAST(NULL AS BOOLEAN) AS STRING)", "NULL", "NULL"),
    ("CAST('ab' AS CHAR(4))", "'ab  '", "'ab'"),
    ("CAST(INTERVAL '-25' HOUR AS STRING)", "'-1 01:00:00.000'", "'-25:00:00'"),
    ("CAST(INTERVAL '15' MONTH AS STRING)", "'+1-03'", "'1 year 3 months'"),
    ("INTERVAL '1' MONTH + DATE '2020-01-31'", "DATE '2020-02-29'", "TIMESTAMP '2020-02-29 00:00:00'"),
    ("DATE '2020-01-31' - 2 * INTERVAL '1' DAY", "DATE '2020-01-29'", "TIMESTAMP '2020-01-29 00:00:00'"),
    ("DATE '2020-01-31' + INTERVAL '1' HOUR", "TIMESTAMP '2020-01-31 01:00:00'", "TIMESTAMP '2020-01-31 01:00:00'"),
    ("URL_ENCODE('a b*~')", "'a+b*%7E'", "'a%20b%2A~'"),
    ("URL_DECODE('a+b%20c')", "'a b c'", "'a+b c'"),
    ("CHR(CAST(353 AS BIGINT))", "'a'", "NULL"),
    ("CHR(-1)", "''", "NULL"),
    ("TYPEOF(CAST(1.5 AS DECIMAL(10,2)))", "'DECIMAL(10, 2)'", "'DECIMAL(10,2)'"),
    ("TYPEOF('abc')", "'CHAR(3) NOT NULL'", "'VARCHAR'"),
]


@pytest.mark.parametrize(("sql", "flinks", "duckdbs"), VALUES, ids=[sql for sql, _, _ in VALUES])
def test_it_has_flinks_value_or_duckdbs(sql: str, flinks: str, duckdbs: str) -> None:
    assert evaluated(sql) == literal(flinks)
    if not sql.startswith("CHR") and "9223372036854775808" not in sql:
        assert evaluated(sql, "duckdb") == literal(duckdbs)


@pytest.mark.parametrize(
    "sql",
    [
        "CAST(5 AS BIGINT)",
        "CAST('5' AS INT)",
        "CAST(FLOOR(2.5) AS INT)",
        "CAST(DATE '2020-01-01' AS STRING)",
        "CAST('a' AS STRING)",
        "SUBSTRING('Hello', 2, 3)",
        "CHR(97)",
        "EXTRACT(SECOND FROM TIMESTAMP '2020-01-01 00:00:07')",
        "FLOOR(TIMESTAMP '2020-01-01 00:00:07' TO DAY)",
        "TIMESTAMP '2020-01-01 00:00:00' + INTERVAL '1' DAY",
        "'a' LIKE '%'",
    ],
)
def test_what_means_the_same_is_as_duckdb_has_it(sql: str) -> None:
    assert bound(sql) == bound(sql, "duckdb")


def as_java(value: float) -> str:
    """Return Java's text of a double with Python's shortest digits."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, _, exponent = f"{Decimal(repr(value)):E}".partition("E")
    mantissa = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return f"{mantissa}{'' if '.' in mantissa else '.0'}E{int(exponent)}"


@examples(200)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False), min_size=1))
def test_texts_of_doubles_are_javas(values: Sequence[float]) -> None:
    for value in values:
        if abs(value) < 1e-300:
            continue
        text = repr(value) if "e" in repr(value) else f"{value!r}e0"
        assert evaluated(f"CAST(CAST({text} AS DOUBLE) AS STRING)") == as_java(value)
    single = struct.unpack("f", struct.pack("f", 1e10))[0]
    assert evaluated(f"CAST(CAST({single!r} AS FLOAT) AS STRING)") == "1.0E10"


SCALES = st.integers(0, 6)


@example(10**12, 6, 7, 6)
@examples(200)
@given(st.integers(-(10**12), 10**12), SCALES, st.integers(-(10**9), 10**9).filter(bool), SCALES)
def test_decimals_are_divided_exactly(a: int, s1: int, b: int, s2: int) -> None:
    one, two = (18, s1), (12, s2)
    precision, scale = quotient_type(one, two)
    dividend, divisor = (Decimal(n).scaleb(-s, Context(60)) for n, s in ((a, s1), (b, s2)))
    casts = [f"CAST('{n:f}' AS DECIMAL{type})" for n, type in ((dividend, one), (divisor, two))]
    exact = Context(80).divide(dividend, divisor)
    expected = exact.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, Context(80))
    assert evaluated(f"{casts[0]} / {casts[1]}") == expected
    assert evaluated(f"TYPEOF({casts[0]} / {casts[1]})") == f"DECIMAL({precision}, {scale})"


def test_decimals_of_too_many_digits_stay_doubles() -> None:
    assert quotient("a", (38, 30), "b", (38, 30), quotient_type((38, 30), (38, 30))) is None
    assert evaluated("TYPEOF(CAST(1 AS DECIMAL(38,30)) / CAST(3 AS DECIMAL(38,30)))") == "DOUBLE"


def planned(insert: str, more: str = "") -> PlannedJob:
    compiler = Compiler()
    try:
        return of_type(PlannedJob, compiler.scripts([SourceText("test", TABLE + more + insert)])[-1])
    finally:
        compiler.close()


OUT = "CREATE TABLE o (x INT);"


def test_a_division_of_integers_is_noticed_once_where_it_stands() -> None:
    job = planned("INSERT INTO o SELECT i / j FROM t WHERE i / 2 > 3", OUT)
    notices = [one for one in job.warnings if isinstance(one, StatementWarning)]
    assert sorted(str(one.span and one.span.text) for one in notices) == ["i / 2", "i / j"]
    assert all("sqlstream.sql.division" in str(one.hint) for one in notices)
    assert "-- i / j: / of integers is a whole number, as in Flink: 7 / 2 is 3" in explained(job, "plan").splitlines()
    assert not planned("INSERT INTO o SELECT CAST(v / i AS INT) FROM t", OUT).notices


@pytest.mark.parametrize(("division", "operator"), [("whole", '"i" // "j"'), ("double", '"i" / "j"')])
def test_the_option_says_what_a_division_is_without_a_notice(division: str, operator: str) -> None:
    job = planned("INSERT INTO o SELECT i / j AS x FROM t", f"SET 'sqlstream.sql.division' = '{division}';{OUT}")
    assert operator in job.plan_text
    assert [one for one in job.notices if "/" in one.message] == []


def test_an_insert_cuts_fractions_off_and_says_so() -> None:
    job = planned("INSERT INTO o SELECT v FROM t", OUT)
    assert 'CAST(trunc("v") AS INTEGER)' in job.plan_text
    [notice] = job.notices
    assert notice.message == 'column "v" is DOUBLE, and is written into INTEGER: its fraction is cut off'
    assert not planned("INSERT INTO o SELECT CAST(v AS INT) FROM t", OUT).notices


def test_a_job_has_its_old_values_where_they_differ_and_only_there() -> None:
    same = planned("INSERT INTO o SELECT i + 1 FROM t WHERE s LIKE '%a' AND v > 1", OUT)
    assert not same.has_semantics
    assert same.under("arrival", "duckdb") is same
    job = planned("INSERT INTO o SELECT CAST(v AS INT) AS x FROM t", OUT)
    old = job.under("arrival", "duckdb")
    assert (job.semantics, old.semantics) == ("flink", "duckdb")
    assert 'CAST("v" AS INTEGER)' in old.plan_text
    assert planned_digests(old) != planned_digests(job)


def test_computed_columns_and_views_have_both_values() -> None:
    more = (
        "CREATE TABLE c (i INT, half AS i / 2) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet');"
        f"CREATE VIEW w AS SELECT half, SUBSTRING('Hello', 0, i) AS part FROM c;{OUT}"
    )
    job = planned("INSERT INTO o SELECT half FROM w WHERE part = 'x'", more)
    old = job.under("arrival", "duckdb")
    assert [notice.span and notice.span.text for notice in job.notices] == ["i / 2"]
    assert ('"i" // 2' in job.plan_text, "CASE WHEN" in job.plan_text) == (True, True)
    assert ('"i" / 2' in old.plan_text, "CASE WHEN" in old.plan_text) == (True, False)


def test_the_average_of_decimals_is_a_decimal() -> None:
    target = "CREATE TABLE m (i INT, m DECIMAL(38,6), PRIMARY KEY (i) NOT ENFORCED);"
    job = planned("INSERT INTO m SELECT i, AVG(d) AS m FROM t GROUP BY i", target)
    assert "m DECIMAL(38,6)" in job.plan_text
    assert 'count("d") AS count_d, sum("d") AS sum_d' in job.plan_text
    assert 'avg("d") AS m' in job.under("arrival", "duckdb").plan_text
    over = planned(
        "INSERT INTO m SELECT i, AVG(d) OVER (PARTITION BY i ORDER BY ts) AS m FROM t",
        target.replace(", PRIMARY KEY (i) NOT ENFORCED", ""),
    )
    assert "m DECIMAL(38,6)" in over.plan_text
    # AVG of other numbers stays DuckDB's.
    assert 'avg("v")' in planned("INSERT INTO m SELECT i, AVG(v) AS m FROM t GROUP BY i", target).plan_text


def test_a_text_beside_a_number_is_noticed_where_it_stands() -> None:
    job = planned("INSERT INTO o SELECT i + '1' FROM t WHERE s > 3 AND s IN (1, 2.5)", OUT)
    messages = [notice.message for notice in job.notices]
    assert messages == [
        "s is a text beside a number, and is read as INT",
        "s is a text beside a number, and is read as DECIMAL(38,19)",
    ]
    assert not planned("INSERT INTO o SELECT i FROM t WHERE TRY_CAST(s AS INT) > 3 AND i = '5'", OUT).notices


def test_a_text_that_is_compared_is_one_in_jobs_of_earlier_versions() -> None:
    job = planned("INSERT INTO o SELECT i FROM t WHERE s = 3", OUT)
    assert "TRY_CAST" in job.plan_text
    assert job.in_duckdbs is not None
    assert "TRY_CAST" not in job.in_duckdbs.plan_text
    # DuckDB refuses this one.
    assert planned("INSERT INTO o SELECT i FROM t WHERE s > i", OUT).in_duckdbs is None
