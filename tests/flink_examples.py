"""The examples of Flink's published list of functions: what is called, what Flink returns, and what is returned here.

`sqlstream docs sql/values` has a table of those that differ, made from this list; `tests/logical/test_flink_examples.py`
evaluates all of them, with the session's time zone UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb

from sqlstream.compiler.compiler import Compiler
from sqlstream.errors import SourceText, SqlStreamError
from sqlstream.logical.bind.expressions.expressions import ExpressionBinder
from sqlstream.logical.bind.expressions.type_checker import TypeChecker
from sqlstream.logical.bind.scope import Scope
from sqlstream.logical.plan.state_settings import Semantics
from sqlstream.sql.statements import parse_expression


@dataclass(frozen=True, slots=True)
class Example:
    """An example: the SQL of the call, and Flink's result as DuckDB's literal. `here` is another result, or the word refused."""

    sql: str
    flinks: str
    here: str = ""
    # How to have Flink's result.
    instead: str = ""


@cache
def _checker(semantics: Semantics) -> TypeChecker:
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    return TypeChecker(con, semantics=semantics)


def evaluated(sql: str, semantics: Semantics = "flink") -> Any:
    """Return the value of a constant expression, with the values that expressions have in jobs."""
    bound_sql, con = bound(sql, semantics), _checker(semantics).con
    return con.execute(f"SELECT {bound_sql}").fetchall()[0][0]


def bound(sql: str, semantics: Semantics = "flink") -> str:
    """Return the SQL of a constant expression as DuckDB runs it."""
    source = SourceText("example", sql)
    binder = ExpressionBinder(Scope("", (), source, "the example"), Compiler().catalog, _checker(semantics))
    return binder.bind(parse_expression(source)).sql


def literal(sql: str) -> Any:
    """Return the value of DuckDB's SQL."""
    return _checker("duckdb").con.execute(f"SELECT {sql}").fetchall()[0][0]


def is_refused(sql: str) -> bool:
    """Return whether an expression is refused where a job is compiled."""
    try:
        bound(sql)
    except SqlStreamError:
        return True
    return False


def fails(sql: str) -> bool:
    """Return whether an expression compiles, and fails where it is computed."""
    try:
        evaluated(sql)
    except duckdb.Error:
        return True
    except SqlStreamError:
        return False
    return False


REFUSED, FAILS = "refused", "fails"

EXAMPLES = (
    # Comparisons
    Example("1 IS DISTINCT FROM NULL", "true"),
    Example("NULL IS DISTINCT FROM NULL", "false"),
    Example("1 IS NOT DISTINCT FROM NULL", "false"),
    Example("NULL IS NOT DISTINCT FROM NULL", "true"),
    Example("12 BETWEEN 15 AND 12", "false"),
    Example("12 BETWEEN SYMMETRIC 15 AND 12", "true"),
    Example("12 BETWEEN 10 AND NULL", "NULL"),
    Example("12 BETWEEN NULL AND 10", "false"),
    Example("12 NOT BETWEEN 15 AND 12", "true"),
    Example("12 NOT BETWEEN NULL AND 15", "NULL"),
    Example("12 NOT BETWEEN 15 AND NULL", "true"),
    Example("4 IN (1, 2, 3)", "false"),
    Example("1 IN (1, 2, NULL)", "true"),
    Example("4 IN (1, 2, NULL)", "NULL"),
    Example("4 NOT IN (1, 2, 3)", "true"),
    Example("1 NOT IN (1, 2, NULL)", "false"),
    Example("4 NOT IN (1, 2, NULL)", "NULL"),
    Example("TRUE OR CAST(NULL AS BOOLEAN)", "true"),
    Example("TRUE AND CAST(NULL AS BOOLEAN)", "NULL"),
    Example("'hello' SIMILAR TO '%ell%'", "true"),
    Example("(TIME '2:55:00', INTERVAL '1' HOUR) OVERLAPS (TIME '3:30:00', INTERVAL '2' HOUR)", "true"),
    Example("(TIME '9:00:00', TIME '10:00:00') OVERLAPS (TIME '10:15:00', INTERVAL '3' HOUR)", "false"),
    Example("'12' + 1", "13"),
    Example("'12.7' > 12", "false"),
    # Numbers
    Example("7 / 2", "3"),
    Example("-7 % 2", "-1"),
    Example("BIN(4)", "'100'"),
    Example("BIN(12)", "'1100'"),
    Example("HEX(20)", "'14'"),
    Example("HEX(100)", "'64'"),
    Example("HEX('hello,world')", "'68656C6C6F2C776F726C64'"),
    Example("TRUNCATE(42.324, 2)", "42.32"),
    Example("TRUNCATE(42.324)", "42"),
    Example("LOG(2, 8)", "3.0"),
    Example("LOG(100)", "4.605170185988092e0", "2.0", "`LN(x)`"),
    # Texts
    Example("LTRIM(' This is a test String.')", "'This is a test String.'"),
    Example("RTRIM('This is a test String. ')", "'This is a test String.'"),
    Example("REPEAT('This is a test String.', 2)", "'This is a test String.This is a test String.'"),
    Example("REGEXP_REPLACE('foobar', 'oo|ar', '')", "'fb'"),
    Example("OVERLAY('xxxxxtest' PLACING 'xxxx' FROM 6)", "'xxxxxxxxx'"),
    Example("OVERLAY('xxxxxtest' PLACING 'xxxx' FROM 6 FOR 2)", "'xxxxxxxxxst'"),
    Example("REPLACE('hello world', 'world', 'flink')", "'hello flink'"),
    Example("REPLACE('ababab', 'abab', 'z')", "'zab'"),
    Example("REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)', 2)", "'bar'"),
    Example("INITCAP('hello wORLD')", "'Hello World'"),
    Example("CONCAT('AA', 'BB', 'CC')", "'AABBCC'"),
    Example("CONCAT('AA', NULL)", "NULL", "'AA'", "`'AA' || x`"),
    Example("CONCAT_WS('~', 'AA', CAST(NULL AS STRING), 'BB', '', 'CC')", "'AA~BB~~CC'"),
    Example("LPAD('hi', 4, '??')", "'??hi'"),
    Example("LPAD('hi', 1, '??')", "'h'"),
    Example("RPAD('hi', 4, '??')", "'hi??'"),
    Example("RPAD('hi', 1, '??')", "'h'"),
    Example("FROM_BASE64('aGVsbG8gd29ybGQ=')", "'hello world'", "'hello world'::BLOB", "`decode(FROM_BASE64(x))`"),
    Example("TO_BASE64('hello world')", "'aGVsbG8gd29ybGQ='"),
    Example("ASCII('abc')", "97"),
    Example("ASCII(CAST(NULL AS STRING))", "NULL"),
    Example("CHR(97)", "'a'"),
    Example("CHR(353)", "'a'"),
    Example("LEFT('abc', -1)", "''", "'ab'", "`LEFT(x, GREATEST(n, 0))`"),
    Example("INSTR('hello', 'l')", "3"),
    Example("LOCATE('l', 'hello', 4)", "4"),
    Example("POSITION('l' IN 'hello')", "3"),
    Example("PARSE_URL('http://facebook.com/path1/p.php?k1=v1&k2=v2#Ref1', 'HOST')", "'facebook.com'"),
    Example("PARSE_URL('http://facebook.com/path1/p.php?k1=v1&k2=v2#Ref1', 'QUERY', 'k1')", "'v1'"),
    Example("REVERSE('abc')", "'cba'"),
    Example("SPLIT_INDEX('a,b,c', ',', 1)", "'b'"),
    Example("STR_TO_MAP('a=1,b=2')", "MAP {'a': '1', 'b': '2'}"),
    Example("SUBSTRING('Hello', 0, 3)", "'Hel'"),
    Example("SUBSTR('Hello', -3, 2)", "'ll'"),
    Example("URL_ENCODE('a b')", "'a+b'"),
    Example("URL_DECODE('a+b')", "'a b'"),
    Example("TRIM(BOTH 'x' FROM 'xxabcx')", "'abc'"),
    # Times
    Example("EXTRACT(DAY FROM DATE '2006-06-05')", "5"),
    Example("EXTRACT(MILLISECOND FROM TIMESTAMP '2020-01-01 00:00:07.123')", "123"),
    Example("EXTRACT(DOW FROM DATE '2020-01-05')", "1", "0", "`DAYOFWEEK(d)`"),
    Example("YEAR(DATE '1994-09-27')", "1994"),
    Example("QUARTER(DATE '1994-09-27')", "3"),
    Example("MONTH(DATE '1994-09-27')", "9"),
    Example("WEEK(DATE '1994-09-27')", "39"),
    Example("DAYOFYEAR(DATE '1994-09-27')", "270"),
    Example("DAYOFMONTH(DATE '1994-09-27')", "27"),
    Example("DAYOFWEEK(DATE '1994-09-27')", "3"),
    Example("HOUR(TIMESTAMP '1994-09-27 13:14:15')", "13"),
    Example("MINUTE(TIMESTAMP '1994-09-27 13:14:15')", "14"),
    Example("SECOND(TIMESTAMP '1994-09-27 13:14:15')", "15"),
    Example("FLOOR(TIME '12:44:31' TO MINUTE)", "TIME '12:44:00'"),
    Example("CEIL(TIME '12:44:31' TO MINUTE)", "TIME '12:45:00'"),
    Example("FLOOR(TIMESTAMP '2020-01-02 03:04:05' TO WEEK)", "TIMESTAMP '2019-12-29 00:00:00'"),
    Example("CEIL(TIMESTAMP '2020-01-02 03:04:05' TO WEEK)", "TIMESTAMP '2020-01-05 00:00:00'"),
    Example("TIMESTAMPADD(WEEK, 1, DATE '2003-01-02')", "DATE '2003-01-09'"),
    Example("TIMESTAMPDIFF(DAY, TIMESTAMP '2020-01-01 00:00:00', TIMESTAMP '2020-01-03 12:00:00')", "2"),
    Example("CONVERT_TZ('1970-01-01 00:00:00', 'UTC', 'America/Los_Angeles')", "'1969-12-31 16:00:00'"),
    Example("FROM_UNIXTIME(44)", "'1970-01-01 00:00:44'"),
    Example("UNIX_TIMESTAMP('1970-01-01 08:00:01.001', 'yyyy-MM-dd HH:mm:ss.SSS')", "28801"),
    Example("UNIX_TIMESTAMP('no time', 'yyyy-MM-dd')", "-9223372036854775808", "NULL"),
    Example("TO_DATE('2020-01-02')", "DATE '2020-01-02'"),
    Example("TO_TIMESTAMP('2020-01-02 03:04:05')", "TIMESTAMP '2020-01-02 03:04:05'"),
    Example("DATE_FORMAT(TIMESTAMP '2020-01-02 03:04:05', 'yyyy/MM/dd')", "'2020/01/02'"),
    Example("DATE '2020-01-31' + INTERVAL '1' DAY", "DATE '2020-02-01'"),
    # Conditions
    Example("NULLIF(5, 5)", "NULL"),
    Example("NULLIF(5, 0)", "5"),
    Example("COALESCE(NULL, 'default')", "'default'"),
    Example("IF(5 > 3, 5, 3)", "5"),
    Example("IFNULL(CAST(NULL AS INT), 5)", "5"),
    Example("IS_ALPHA('abc')", "true"),
    Example("IS_DECIMAL('1.5')", "true"),
    Example("IS_DIGIT('15')", "true"),
    Example("GREATEST(1, NULL)", "NULL", "1", "`CASE WHEN x IS NOT NULL THEN GREATEST(1, x) END`"),
    Example("LEAST(1, NULL)", "NULL", "1", "`CASE WHEN x IS NOT NULL THEN LEAST(1, x) END`"),
    # Conversions
    Example("CAST('42' AS INT)", "42"),
    Example("CAST(NULL AS STRING)", "NULL"),
    Example("TRY_CAST('42' AS INT)", "42"),
    Example("TRY_CAST('non-number' AS INT)", "NULL"),
    Example("COALESCE(TRY_CAST('non-number' AS INT), 0)", "0"),
    Example("CAST('12.7' AS INT)", "12"),
    Example("CAST(2.9 AS INT)", "2"),
    Example("CAST(CAST(3000000000 AS DOUBLE) AS INT)", "2147483647", FAILS, "`CAST(x AS BIGINT)`, or `TRY_CAST`"),
    Example("2147483647 + 1", "-2147483648", FAILS, "`CAST(x AS BIGINT) + 1`, or `TRY(x + 1)`"),
    Example("CAST(1e7 AS STRING)", "'1.0E7'"),
    Example("CAST(TRUE AS STRING)", "'TRUE'"),
    Example("CAST(INTERVAL '90' SECOND AS STRING)", "'+0 00:01:30.000'"),
    Example("CAST('abcdef' AS VARCHAR(3))", "'abc'"),
    Example("CAST(ARRAY[1, 2] AS STRING)", "'[1, 2]'"),
    Example("TYPEOF(1)", "'INT NOT NULL'"),
    # Lists and maps
    Example("CARDINALITY(ARRAY[1, 2, 3])", "3"),
    Example("ELEMENT(ARRAY[7])", "7"),
    Example("ARRAY_CONTAINS(ARRAY[1, 2], 2)", "true"),
    Example("ARRAY_POSITION(ARRAY[1, 2], 2)", "2"),
    Example("ARRAY_POSITION(ARRAY[1, 2], 3)", "0", "NULL", "`COALESCE(ARRAY_POSITION(l, x), 0)`"),
    Example("ARRAY_REMOVE(ARRAY[1, 2, 1], 1)", "[2]"),
    Example("ARRAY_REVERSE(ARRAY[1, 2, 3])", "[3, 2, 1]"),
    Example("CARDINALITY(MAP_FROM_ARRAYS(ARRAY['a'], ARRAY[1]))", "1"),
    # JSON
    Example("'1' IS JSON", "true"),
    Example("'abc' IS JSON", "false"),
    Example("'1' IS JSON SCALAR", "true"),
    Example("'1' IS JSON ARRAY", "false"),
    Example("'{}' IS JSON OBJECT", "true"),
    Example("CAST(NULL AS STRING) IS JSON", "false", "NULL", "`COALESCE(x IS JSON, FALSE)`"),
    Example("JSON_EXISTS('{\"a\": true}', '$.a')", "true"),
    Example("JSON_EXISTS('{\"a\": true}', '$.b')", "false"),
    Example("JSON_EXISTS('{\"a\": [{ \"b\": 1 }]}', '$.a[0].b')", "true"),
    Example("JSON_STRING(CAST(NULL AS INT))", "NULL"),
    Example("JSON_STRING(1)", "'1'"),
    Example("JSON_STRING(TRUE)", "'true'"),
    Example("JSON_STRING('Hello, World!')", "'\"Hello, World!\"'"),
    Example("JSON_STRING(ARRAY[1, 2])", "'[1,2]'"),
    Example("CAST(JSON_ARRAY() AS STRING)", "'[]'"),
    Example("CAST(JSON_ARRAY(1, '2') AS STRING)", "'[1,\"2\"]'"),
    Example("CAST(JSON_ARRAY(CAST(NULL AS STRING) NULL ON NULL) AS STRING)", "'[null]'"),
    Example("CAST(JSON_ARRAY(CAST(NULL AS STRING) ABSENT ON NULL) AS STRING)", "'[]'"),
    Example("CAST(JSON_ARRAY(JSON_ARRAY(1)) AS STRING)", "'[[1]]'"),
    Example("JSON_VALUE('{\"a\": true}', '$.a')", "'true'"),
    Example("JSON_VALUE('{\"a\": true}', '$.a' RETURNING BOOLEAN)", "true"),
    Example("JSON_VALUE('{\"a\": true}', 'lax $.b' DEFAULT FALSE ON EMPTY)", "'false'"),
    Example("JSON_VALUE('{\"a\": true}', 'strict $.b' DEFAULT FALSE ON ERROR)", "'false'"),
    Example("JSON_VALUE('{\"a.b\": [0.998,0.996]}', '$.[\"a.b\"][0]' RETURNING DOUBLE)", "0.998e0"),
    Example(
        "JSON_VALUE('{\"contains blank\": \"right\"}', 'strict $.[''contains blank'']' NULL ON EMPTY DEFAULT 'wrong' ON ERROR)",
        "'right'",
    ),
    Example("JSON_EXISTS('{\"a\": true}', 'strict $.b' TRUE ON ERROR)", "true"),
    Example("JSON_QUERY('{ \"a\": { \"b\": 1 } }', '$.a')", "'{ \"b\": 1 }'", "'{\"b\":1}'"),
    Example("JSON_QUERY('[1, 2]', '$')", "'[1, 2]'", "'[1,2]'"),
    Example("JSON_QUERY(CAST(NULL AS STRING), '$')", "NULL"),
    Example('JSON_QUERY(\'{"a":[{"c":"c1"},{"c":"c2"}]}\', \'lax $.a[*].c\' RETURNING ARRAY<STRING>)', "['c1', 'c2']"),
    Example("JSON_QUERY('{}', '$' WITH CONDITIONAL ARRAY WRAPPER)", "'[{}]'"),
    Example("JSON_QUERY('[1, 2]', '$' WITH CONDITIONAL ARRAY WRAPPER)", "'[1, 2]'", "'[1,2]'"),
    Example("JSON_QUERY('[1, 2]', '$' WITH UNCONDITIONAL ARRAY WRAPPER)", "'[[1, 2]]'", "'[[1,2]]'"),
    Example("JSON_QUERY('1', '$')", "NULL"),
    Example("JSON_QUERY('{}', 'lax $.invalid' EMPTY OBJECT ON EMPTY)", "'{}'"),
    Example("JSON_QUERY('{}', 'strict $.invalid' EMPTY ARRAY ON ERROR)", "'[]'"),
    # Hashes
    Example("MD5('abc')", "'900150983cd24fb0d6963f7d28e17f72'"),
    Example("SHA1('abc')", "'a9993e364706816aba3e25717850c26c9cd0d89d'"),
    Example("SHA256('abc')", "'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'"),
    Example("SHA512('abc')", "'..'", REFUSED),
)


def differences() -> str:
    """Return the table of the manual with the examples whose results differ."""
    rows = [f"| `{e.sql}` | {_shown(e.flinks)} | {_shown(e.here)} | {e.instead} |" for e in EXAMPLES if e.here]
    counted = f"{len(EXAMPLES) - len(rows)} of {len(EXAMPLES)} examples give Flink's result. The others:"
    return "\n".join([counted, "", "| | in Flink | here | for Flink's result write |", "|---|---|---|---|", *rows])


def _shown(result: str) -> str:
    return result if result in (REFUSED, FAILS) else "a hash" if result == "'..'" else f"`{result}`"
