"""What is read and written again means the same to DuckDB: the same rows, of the same types."""

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from sqlglot import exp

from sqlstream.errors import SourceText
from sqlstream.sql.nodes import Select
from sqlstream.sql.statements import parse_expression, parse_script, to_duckdb
from tests.kinds import of_type

QUERIES = [line.rstrip(";") for line in (Path(__file__).parent / "duckdb_queries.sql").read_text().splitlines()[1:]]


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def result(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[list[str], list[str]]:
    relation = connection.sql(query)
    return sorted(map(repr, relation.fetchall())), [str(t) for t in relation.types]


def written_again(query: str) -> str:
    [statement] = parse_script(SourceText("q", query))
    return to_duckdb(of_type(Select, statement).query)


@pytest.mark.parametrize("line", range(len(QUERIES)))
def test_a_query_keeps_its_meaning(connection: duckdb.DuckDBPyConnection, line: int) -> None:
    query = QUERIES[line]
    assert result(connection, written_again(query)) == result(connection, query)


# Flink's spelling, and what it means in DuckDB's.
FLINK = [
    ("CAST('1' AS STRING)", "'1'::VARCHAR"),
    ("CAST(ROW(1, 'a') AS ROW<a INT, `b c` STRING>)", """{'a': 1, 'b c': 'a'}::STRUCT(a INTEGER, "b c" VARCHAR)"""),
    ("CAST([1] AS ARRAY<BIGINT NOT NULL>)", "[1]::BIGINT[]"),
    ("CAST(MAP['a', 1, 'b', 2] AS MAP<STRING, BIGINT>)", "MAP {'a': 1, 'b': 2}::MAP(VARCHAR, BIGINT)"),
    ("ARRAY[1, 2][1]", "1"),
    ("CAST(x'00ff' AS BYTES)", "x'00ff'"),
    ("CAST('2024-01-01' AS TIMESTAMP(3))", "TIMESTAMP '2024-01-01'"),
    ("CAST('2024-01-01' AS TIMESTAMP_LTZ(3))", "TIMESTAMPTZ '2024-01-01'"),
    ("TIMESTAMP(3) '2024-01-01'", "TIMESTAMP '2024-01-01'"),
    ("TIMESTAMP_LTZ '2024-01-01'", "TIMESTAMPTZ '2024-01-01'"),
    ("TIMESTAMP WITH LOCAL TIME ZONE '2024-01-01'", "TIMESTAMPTZ '2024-01-01'"),
    ("TIMESTAMP '2024-01-01' + INTERVAL '10' MINUTES", "TIMESTAMP '2024-01-01 00:10:00'"),
    (r"U&'caf\00e9 \+01F600 \\'", "'café 😀 \\'"),
    ("list_transform([1, 2], x -> x + 1)", "[2, 3]"),
    ("list_reduce([1, 2], (a, b) -> a + b)", "3"),
    ("list_filter([{'a': 1}], s -> s.a > 0)", "[{'a': 1}]"),
    ("`a b` || `c`", "'xy'"),
    ("EXTRACT(YEAR FROM DATE '2024-01-01')", "2024::BIGINT"),
]


@pytest.mark.parametrize(("flink", "in_duckdb"), FLINK)
def test_flink_spelling(connection: duckdb.DuckDBPyConnection, flink: str, in_duckdb: str) -> None:
    columns = """FROM (SELECT 'x' AS "a b", 'y' AS c)"""
    written = to_duckdb(parse_expression(SourceText("e", flink)))
    assert result(connection, f"SELECT {written} {columns}") == result(connection, f"SELECT {in_duckdb}")
    assert written_again(f"SELECT {flink} AS e {columns}".replace('"', "`")).startswith(f"SELECT {written} AS e")


def test_every_function_keeps_its_name(connection: duckdb.DuckDBPyConnection) -> None:
    rows = connection.sql(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type <> 'table'"
    ).fetchall()
    names = [name for (name,) in rows if re.fullmatch(r"[a-z_]\w*", name)]
    assert len(names) > 500
    calls = [f"{name}(a, b)" for name in names if name not in SPECIAL]
    statements = parse_script(SourceText("q", ";".join(f"SELECT {call}" for call in calls)))
    queries = [of_type(Select, statement).query for statement in statements]
    assert [to_duckdb(query).lower() for query in queries] == [f"select {call}".lower() for call in calls]
    assert all(isinstance(query.expressions[0], exp.Anonymous) for query in queries)


# Functions with words between their arguments, or with the name of a reserved word.
SPECIAL = {"trim", "position", "substring", "overlay", "show"}


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("f(a, 1)", "f [Column, Literal]"),
        ("count(*)", "count [Star]"),
        ("sum(DISTINCT a)", "sum [Distinct]"),
        ("string_agg(a, ',' ORDER BY b)", "string_agg [Column, Order]"),
        ("string_agg(DISTINCT a, ',' ORDER BY b)", "string_agg [Order]"),
        ("j -> 'a'", "JSONExtract"),
        ("upper(j -> 'a')", "upper [JSONExtract]"),
        ("list_filter(l, x -> x > a)", "list_filter [Column, Lambda]"),
        ("f(a => 1)", "f [Kwarg]"),
        ("substring(a FROM 1 FOR 2)", "substring [Column, Literal, Literal]"),
        ("position(a IN b)", "strpos [Column, Column]"),
        ("trim(LEADING 'x' FROM a)", "ltrim [Column, Literal]"),
        ("now()", "now []"),
        ("CURRENT_TIMESTAMP", "CurrentTimestamp"),
        ("sum(a) FILTER (WHERE b)", "Filter"),
        ("percentile_cont(0.5) WITHIN GROUP (ORDER BY a)", "WithinGroup"),
        ("sum(a) OVER (ORDER BY b)", "Window"),
    ],
)
def test_shapes_of_calls(text: str, shape: str) -> None:
    node = parse_expression(SourceText("e", text))
    if isinstance(node, exp.Anonymous):
        assert f"{node.name} [{', '.join(type(a).__name__ for a in node.expressions)}]" == shape
    else:
        assert type(node).__name__ == shape
        assert isinstance(node.this, exp.Anonymous | exp.Column | None)


def test_only_needed_quotes_are_written() -> None:
    assert written_again('SELECT a, `b c`, "D", `end` FROM t AS `x y`') == 'SELECT a, "b c", "D", "end" FROM t AS "x y"'
