"""All of Flink SQL's statements and clauses: they are read, or refused as unsupported at their place, never anything else."""

import pytest

from sqlstream.errors import SourceText, UnsupportedError
from sqlstream.sql import unsupported
from sqlstream.sql.statements import parse_script

# Statements with the words that the error points at.
STATEMENTS = [
    ("REPLACE TABLE t AS SELECT 1", "REPLACE TABLE"),
    ("CREATE TABLE c.d.t (a INT)", "c.d.t"),
    ("CREATE TABLE t (a INT, UNIQUE (a))", "UNIQUE"),
    ("CREATE TABLE t (a INT DEFAULT 1)", "DEFAULT"),
    ("CREATE TABLE t (a INT PRIMARY KEY ENFORCED)", "ENFORCED"),
    ("CREATE TABLE t (a ROW<b RAW('x', 'y')>)", "RAW"),
    ("CREATE TABLE t (a TIMESTAMP(10))", "10"),
    ("CREATE TABLE t (a TIMESTAMP_LTZ(12))", "12"),
    ("CREATE TABLE t (a INTERVAL YEAR TO MONTH)", "INTERVAL YEAR TO MONTH"),
    ("CREATE TABLE t (a INTERVAL DAY(3) TO SECOND(3))", "INTERVAL DAY(3) TO SECOND(3)"),
    ("CREATE TABLE t (WATERMARK FOR a.b AS a.b)", "a.b"),
    ("CREATE FUNCTION f AS 'com.F' LANGUAGE JAVA USING JAR 'x.jar'", "JAVA"),
    ("CREATE FUNCTION f AS 'm.f' LANGUAGE PYTHON USING ARTIFACT 'x.zip'", "USING"),
    ("CREATE TEMPORARY SYSTEM FUNCTION f AS 'com.F' LANGUAGE JAVA", "JAVA"),
    ("CREATE CATALOG IF NOT EXISTS c WITH ('type'='jdbc')", "CREATE CATALOG"),
    ("CREATE TEMPORARY MODEL m INPUT (text STRING) OUTPUT (label STRING) WITH ('a'='b')", "CREATE TEMPORARY MODEL"),
    ("CREATE MODEL m WITH ('a'='b')", "CREATE MODEL"),
    ("CREATE CONNECTION c WITH ('a'='b')", "CREATE CONNECTION"),
    ("CREATE OR ALTER TABLE t (a INT)", "CREATE OR ALTER TABLE"),
    ("CREATE MATERIALIZED TABLE m START_MODE = FROM_NOW AS SELECT 1", "FROM_NOW"),
    ("ALTER MATERIALIZED TABLE m SUSPEND", "ALTER MATERIALIZED TABLE"),
    ("ALTER TABLE t ADD IF NOT EXISTS PARTITION (p='v')", "IF NOT EXISTS PARTITION"),
    ("ALTER TABLE t DROP PARTITION (p='v')", "PARTITION"),
    ("ALTER VIEW v RENAME TO w", "ALTER VIEW"),
    ("ALTER FUNCTION f AS 'x'", "ALTER"),
    ("ALTER CATALOG c SET ('a'='b')", "ALTER"),
    ("DROP CATALOG c", "DROP CATALOG"),
    ("DROP MODEL m", "DROP MODEL"),
    ("TRUNCATE TABLE t", "TRUNCATE TABLE"),
    ("CALL cat.db.proc(1)", "CALL"),
    ("ANALYZE TABLE t COMPUTE STATISTICS", "ANALYZE TABLE"),
    ("INSERT INTO t PARTITION (p) SELECT 1", "p"),
    ("INSERT INTO c.d.t SELECT 1", "c.d.t"),
    ("INSERT INTO t SELECT a FROM s ON CONFLICT DO DEDUPLICATE", "ON CONFLICT"),
    ("WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x", "INSERT"),
    ("DELETE FROM t WHERE a = 1", "DELETE"),
    ("UPDATE t SET a = 1", "UPDATE"),
    ("MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE", "MERGE"),
    ("COMPILE PLAN 'p.json' FOR INSERT INTO t SELECT 1", "COMPILE PLAN"),
    ("EXECUTE PLAN 'p.json'", "EXECUTE PLAN"),
    ("COMPILE AND EXECUTE PLAN 'p.json' FOR INSERT INTO t SELECT 1", "COMPILE AND EXECUTE PLAN"),
    ("DESC CATALOG EXTENDED c", "DESC CATALOG"),
    ("DESC JOB 'id'", "DESC JOB"),
    ("USE CATALOG c", "c"),
    ("USE MODULES hive, core", "USE MODULES hive, core"),
    ("UNLOAD MODULE core", "UNLOAD MODULE core"),
    ("REMOVE JAR 'p'", "REMOVE JAR"),
    ("STOP JOB 'id' WITH SAVEPOINT WITH DRAIN", "STOP JOB"),
    # DuckDB's
    ("COPY t TO 'x.csv'", "COPY"),
    ("ATTACH 'x.db'", "ATTACH"),
    ("PRAGMA threads", "PRAGMA"),
    ("ANALYZE", "ANALYZE"),
    ("INSERT OR REPLACE INTO t VALUES (1)", "INSERT OR REPLACE"),
    ("INSERT OR IGNORE INTO t SELECT 1", "INSERT OR IGNORE"),
    ("INSERT INTO t SELECT 1 ON CONFLICT DO NOTHING", "ON CONFLICT"),
    ("INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = 1", "ON DUPLICATE KEY"),
    # in queries
    ("SELECT * FROM t AS x /*+ OPTIONS('k'='v') */", "/*+ OPTIONS('k'='v') */"),
    ("INSERT INTO t SELECT 1 /*+ OPTIONS('k'='v') */", "/*+ OPTIONS('k'='v') */"),
    ("SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY a ORDER BY b DEFINE A AS TRUE) AS m", "MATCH_RECOGNIZE"),
    ("SELECT * FROM o JOIN r FOR SYSTEM_TIME FROM a TO b ON o.a = r.a", "FOR SYSTEM_TIME FROM a TO b"),
    ("SELECT * FROM o JOIN r FOR VERSION AS OF 3 ON o.a = r.a", "FOR VERSION AS OF 3"),
    ("SELECT CAST(a AS INTERVAL DAY TO SECOND) FROM t", "INTERVAL DAY TO SECOND"),
    ("SELECT 5! FROM t", "!"),
    ("SELECT t.a.upper() FROM t", "upper"),
    ("SELECT f(a).b.sum() OVER () FROM t", "sum"),
    ("SELECT 0xff FROM t", "0xff"),
]


@pytest.mark.parametrize(("text", "words"), STATEMENTS, ids=lambda value: value[:60])
def test_unsupported_where_it_stands(text: str, words: str) -> None:
    source = SourceText("q", f"SELECT 1;\n{text}; SELECT 2")
    with pytest.raises(UnsupportedError) as caught:
        parse_script(source)
    assert caught.value.span is not None
    assert caught.value.span.text == words
    assert caught.value.span.start >= len("SELECT 1;\n")
    assert caught.value.hint is None or caught.value.hint.endswith(".")


@pytest.mark.parametrize("clauses", [unsupported.STATEMENTS, unsupported.CONSTRAINTS, unsupported.COLUMN_CLAUSES])
def test_what_is_unsupported_says_what_to_do(clauses: dict[str, str]) -> None:
    for words, hint in clauses.items():
        assert hint.endswith("."), words


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        (
            "ALTER VIEW t RENAME TO s",
            """\
unsupported: ALTER VIEW
  --> q:1:1
   |
 1 | ALTER VIEW t RENAME TO s
   | ^^^^^^^^^^
hint: Write DROP VIEW, then CREATE VIEW.""",
        ),
        (
            "SELECT * FROM t AS x /*+ OPTIONS('k'='v') */",
            """\
unsupported: the hint OPTIONS here
  --> q:1:22
   |
 1 | SELECT * FROM t AS x /*+ OPTIONS('k'='v') */
   |                      ^^^^^^^^^^^^^^^^^^^^^^^
hint: Write it behind the name of a table, before its alias: FROM orders /*+ OPTIONS('key' = 'value') */ AS o.""",
        ),
        (
            "CREATE TABLE t (ts TIMESTAMP(10))",
            """\
unsupported: TIMESTAMP with more than 9 digits
  --> q:1:30
   |
 1 | CREATE TABLE t (ts TIMESTAMP(10))
   |                              ^^
hint: Times are kept in microseconds: write a precision of 6 or less.""",
        ),
    ],
)
def test_golden_unsupported_errors(text: str, rendered: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        parse_script(SourceText("q", text))
    assert caught.value.render() == rendered


def test_comments_that_look_like_hints() -> None:
    script = """/*++++ a decoration ++++*/ SELECT '/*+ no(hint) */' -- /*+ none(here) */
        , "/*+ nor(here) */" /* nor /*+ here() */ */ FROM t"""
    assert len(parse_script(SourceText("q", script))) == 1


@pytest.mark.parametrize(
    "relation",
    [
        "(t) AS x",
        "( (t /* twice */) ) x",
        "(t AS x)",
        "(TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR))) x",
        "(f(TABLE t PARTITION BY (k))) x",
        "(t x JOIN u USING (k))",
        "u, (t) x WHERE (x.a) = (u.a)",
    ],
)
def test_a_table_may_stand_in_parentheses(relation: str) -> None:
    assert parse_script(SourceText("q", f"SELECT x.a FROM {relation}"))
