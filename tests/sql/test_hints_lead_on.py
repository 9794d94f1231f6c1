"""What a hint says to write is compiled, and not refused: no hint leads nowhere, and none in a circle.

`EXAMPLES` has a script that is refused, and the script that its hint asks for. A walk through the code finds all hints that say
what to write; those without an example are counted, and may only become fewer.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import sqlstream
from sqlstream.compiler.compiler import Compiler
from sqlstream.errors import SourceText, SqlStreamError

TABLES = """
CREATE TABLE t (a INT, b INT, s STRING, ts TIMESTAMP(3), d TIME, list INT[], p AS PROCTIME(),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND);
CREATE TABLE u (a INT, b INT, s STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND);
CREATE TABLE o (a INT);
"""
# Hints that say what to write, and have no example yet.
WITHOUT_EXAMPLE = 108
FOLDERS = ("sql", "logical", "compiler", "physical", "connectors")
MYSQL_CDC = "(a INT) WITH ('connector' = 'mysql-cdc', 'hostname' = 'h', 'table-name' = 't'"
SPECIFIC = f"{MYSQL_CDC}, 'database-name' = 'd', 'scan.startup.mode' = 'specific-offset'"
PLACE = "'scan.startup.specific-offset.file' = 'binlog.000001'"
EXAMPLES = [
    ("CREATE TABLE x (a INT, UNIQUE (a))", "CREATE TABLE x (a INT, PRIMARY KEY (a) NOT ENFORCED)"),
    ("CREATE TABLE x (a INT UNIQUE)", "CREATE TABLE x (a INT, PRIMARY KEY (a) NOT ENFORCED)"),
    ("CREATE TABLE x (a INT PRIMARY KEY ENFORCED)", "CREATE TABLE x (a INT PRIMARY KEY NOT ENFORCED)"),
    ("CREATE TABLE x (a INT GENERATED ALWAYS AS (1))", "CREATE TABLE x (b INT, a AS b + 1)"),
    (
        "CREATE TABLE x (a INT) WITH ('connector' = 'kinesis')",
        "CREATE TABLE x (a INT) WITH ('connector' = 'kafka', 'topic' = 't',"
        " 'properties.bootstrap.servers' = 'k:1', 'format' = 'json')",
    ),
    (
        "CREATE TABLE x (a INT) WITH ('connector' = 'mongodb-cdc')",
        "CREATE TABLE x (a INT) WITH ('connector' = 'kafka', 'topic' = 't',"
        " 'properties.bootstrap.servers' = 'k:1', 'format' = 'debezium-json')",
    ),
    ("REPLACE TABLE o AS SELECT 1", "DROP TABLE IF EXISTS o; CREATE TABLE o (a INT); INSERT INTO o SELECT a FROM t"),
    ("CREATE DATABASE default_database", "CREATE DATABASE IF NOT EXISTS default_database"),
    (
        "CREATE DATABASE x; CREATE TABLE x.y (a INT); DROP DATABASE x",
        "CREATE DATABASE x; CREATE TABLE x.y (a INT); DROP TABLE x.y; DROP DATABASE x",
    ),
    (
        "CREATE TABLE x (a STRING) WITH ('connector' = 'faker')",
        "CREATE TABLE x (a STRING) WITH ('connector' = 'faker', 'fields.a.expression' = '#{Name.fullName}')",
    ),
    (
        "CREATE TABLE x (a INT) WITH ('url' = 'jdbc:oracle:thin:@h:1521/d', 'connector' = 'jdbc', 'table-name' = 'x')",
        "CREATE TABLE x (a INT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://h:5432/d', 'table-name' = 'x')",
    ),
    (
        "CREATE TABLE x (a INT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://h:x/d', 'table-name' = 'x')",
        "CREATE TABLE x (a INT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://host:1234/database',"
        " 'table-name' = 'x')",
    ),
    ("EXECUTE PLAN 'p.json'", "INSERT INTO o SELECT a FROM t"),
    ("INSERT OVERWRITE o SELECT a FROM t", "INSERT INTO o SELECT a FROM t"),
    (
        "INSERT OR REPLACE INTO o SELECT a FROM t",
        "CREATE TABLE k (a INT, PRIMARY KEY (a) NOT ENFORCED); INSERT INTO k SELECT a FROM t",
    ),
    (
        "WITH x AS (SELECT a FROM t) INSERT INTO o SELECT a FROM x",
        "INSERT INTO o WITH x AS (SELECT a FROM t) SELECT a FROM x",
    ),
    ("DROP TEMPORARY SYSTEM FUNCTION IF EXISTS f", "DROP FUNCTION IF EXISTS f"),
    ("ALTER VIEW v RENAME TO w", "CREATE VIEW v AS SELECT a FROM t; DROP VIEW v; CREATE VIEW v AS SELECT b FROM t"),
    ("DROP MATERIALIZED TABLE o", "DROP TABLE o"),
    ("SELECT NVL(a, b) FROM t", "SELECT COALESCE(a, b) FROM t"),
    (
        "SELECT SOURCE_WATERMARK() FROM t",
        "CREATE TABLE x (ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)",
    ),
    (f"CREATE TABLE c1 {MYSQL_CDC})", f"CREATE TABLE c1 {MYSQL_CDC}, 'database-name' = 'shop')"),
    (f"CREATE TABLE c2 {SPECIFIC})", f"CREATE TABLE c2 {SPECIFIC}, {PLACE})"),
    (f"CREATE TABLE c3 {MYSQL_CDC}, 'database-name' = 'd', {PLACE})", f"CREATE TABLE c3 {SPECIFIC}, {PLACE})"),
    ("SELECT COLLECT(a) FROM t GROUP BY b", "SELECT list(a) FROM t GROUP BY b"),
    (
        "SELECT JSON_ARRAYAGG(a) FROM t GROUP BY b",
        "SELECT to_json(list(a) FILTER (WHERE a IS NOT NULL)) FROM t GROUP BY b",
    ),
    ("SELECT JSON_OBJECTAGG(s, a) FROM t GROUP BY b", "SELECT json_group_object(s, a) FROM t GROUP BY b"),
    ("SELECT SHA2(s, 512) FROM t", "SELECT SHA2(s, 256) FROM t"),
    (
        "SELECT DISTINCT ON (a) a, b FROM t",
        "SELECT * FROM (SELECT a, b, ROW_NUMBER() OVER (PARTITION BY a ORDER BY ts) AS n FROM t) WHERE n = 1",
    ),
    ("SELECT a FROM TABLE(f(1))", "SELECT x FROM t CROSS JOIN LATERAL TABLE(UNNEST(list)) AS l(x)"),
    ("SELECT * FROM (t JOIN u ON t.a = u.a)", "SELECT * FROM (SELECT t.a FROM t JOIN u ON t.a = u.a) AS ab"),
    ("SELECT a FROM t UNION ALL BY NAME SELECT a FROM u", "SELECT a FROM t UNION ALL SELECT a FROM u"),
    ("SELECT a FROM t AS x /*+ OPTIONS('source.idle-timeout' = '1 s') */", "SELECT a FROM t AS x"),
    ("SELECT 5! FROM t", "SELECT factorial(5), NOT a = 1 FROM t"),
    ("SELECT a FROM t LIMIT 3 OFFSET 2", "SELECT a FROM t ORDER BY a LIMIT 3 OFFSET 2"),
    ("INSERT INTO o SELECT a FROM t LIMIT 3", "INSERT INTO o SELECT a FROM t ORDER BY a LIMIT 3"),
    ("INSERT INTO o SELECT a FROM t ORDER BY a", "INSERT INTO o SELECT a FROM t ORDER BY a LIMIT 3"),
    ("SELECT a, s FROM t GROUP BY a", "SELECT a, any_value(s) FROM t GROUP BY a"),
    ("SELECT DATE_FORMAT(ts, s) FROM t", "SELECT DATE_FORMAT(ts, 'yyyy') FROM t"),
    (
        "SELECT * FROM t CROSS JOIN UNNEST(list, list) AS x(c, d)",
        "SELECT * FROM t CROSS JOIN UNNEST(list_zip(list, list)) AS x(c)",
    ),
]


@cache
def error_of(script: str) -> SqlStreamError | None:
    """Return the error with which a script behind the tables is refused, None if it compiles."""
    compiler = Compiler()
    try:
        compiler.scripts([SourceText("tables", TABLES), SourceText("script", script)])
    except SqlStreamError as error:
        return error
    finally:
        compiler.close()
    return None


@pytest.mark.parametrize(("refused", "written"), EXAMPLES, ids=lambda text: text[:50])
def test_what_a_hint_says_to_write_is_compiled(refused: str, written: str) -> None:
    error = error_of(refused)
    assert error is not None, "it runs: take it off the list"
    assert error.hint, error.render()
    if (again := error_of(written)) is not None:
        pytest.fail(f"{error.render()}\n\nwhat it says to write:\n\n{again.render()}")


def test_connectors_with_a_common_password_are_named() -> None:
    error = error_of("CREATE TABLE x (a INT) WITH ('connector' = 'postgres-cdd', 'password' = 'postgres')")
    assert error is not None
    assert error.hint == 'did you mean "postgres-cdc"?'
    assert "'connector' = 'postgres-cdd'" in error.render()


def test_hints_without_an_example_become_fewer() -> None:
    said = [error.hint for refused, _ in EXAMPLES if (error := error_of(refused)) is not None and error.hint]
    without = sorted({words for words, pattern in walked() if not any(pattern.fullmatch(hint) for hint in said)})
    assert len(without) == WITHOUT_EXAMPLE, "\n".join(without)


def walked() -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield each text of the code that says what to write, as it stands, and a pattern of what is shown."""
    root = Path(sqlstream.__file__).parent
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            tree = ast.parse(path.read_text())
            docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
            for node in ast.walk(tree):
                words, pattern = _text(node)
                if (
                    id(node) not in inside | docstrings
                    and re.search(r"(^|: |\. )Write [^.]*\w", words)
                    and "\n" not in words
                ):
                    yield words, re.compile(pattern, re.DOTALL)


def _text(node: ast.AST) -> tuple[str, str]:
    """Return the text of a literal, with `{}` for what an f-string takes, and the pattern of it; empty for other nodes."""
    match node:
        case ast.Constant(value=str(words)):
            return words, re.escape(words)
        case ast.JoinedStr(values=parts):
            texts = [_text(part) for part in parts]
            return "".join(t[0] or "{}" for t in texts), "".join(t[1] or ".*" for t in texts)
    return "", ""
