"""The shapes of statements: what each word of the text becomes."""

from typing import TypeVar

import pytest
from sqlglot import exp

from sqlstream.errors import SourceText
from sqlstream.sql.statements import (
    CreateFunction,
    CreateTable,
    CreateView,
    Drop,
    DropFunction,
    Insert,
    Select,
    SetOption,
    parse_expression,
    parse_script,
    to_duckdb,
)
from tests.kinds import of_type

T = TypeVar("T")


def parse(kind: type[T], text: str) -> T:
    [statement] = parse_script(SourceText("test.sql", text))
    return of_type(kind, statement)


def test_create_table_keeps_every_part() -> None:
    table = parse(
        CreateTable,
        """
        CREATE TABLE IF NOT EXISTS bid (
          auction BIGINT NOT NULL COMMENT 'the auction',
          `two words` STRING NULL,
          ts TIMESTAMP(3),
          price AS amount * 2 COMMENT 'computed',
          WATERMARK FOR ts AS ts - INTERVAL '4' SECOND,
          CONSTRAINT pk PRIMARY KEY (auction, ts) NOT ENFORCED
        ) COMMENT 'bids' WITH ('connector' = 'filesystem', 'path' = 'it''s here')
    """,
    )
    assert (table.name.text, table.if_not_exists, table.temporary) == ("bid", True, False)
    assert [(c.name.text, c.type, c.not_null, c.comment) for c in table.columns] == [
        ("auction", "BIGINT", True, "the auction"),
        ("two words", "VARCHAR", False, None),
        ("ts", "TIMESTAMP", False, None),
        ("price", None, False, "computed"),
    ]
    assert table.columns[3].expression
    assert table.watermark
    assert to_duckdb(table.columns[3].expression) == "amount * 2"
    assert table.watermark.column.text == "ts"
    assert to_duckdb(table.watermark.expression) == "ts - INTERVAL '4' SECOND"
    assert [name.text for name in table.primary_key] == ["auction", "ts"]
    assert {k: v.value for k, v in table.options.items()} == {"connector": "filesystem", "path": "it's here"}


@pytest.mark.parametrize(
    "constraint", ["PRIMARY KEY", "PRIMARY KEY NOT ENFORCED", "CONSTRAINT pk PRIMARY KEY NOT ENFORCED"]
)
def test_primary_key_as_column_constraint(constraint: str) -> None:
    table = parse(CreateTable, f"CREATE TEMP TABLE t (a INT {constraint} NOT NULL COMMENT 'key', b INT)")
    assert [name.text for name in table.primary_key] == ["a"]
    assert table.columns[0].not_null
    assert table.temporary
    assert table.options == {}


@pytest.mark.parametrize(
    ("written", "duckdb"),
    [
        ("STRING", "VARCHAR"),
        ("VARCHAR(20)", "VARCHAR"),
        ("CHAR(3)", "VARCHAR"),
        ("CHARACTER VARYING(3)", "VARCHAR"),
        ("BYTES", "BLOB"),
        ("VARBINARY(10)", "BLOB"),
        ("BINARY", "BLOB"),
        ("INT", "INTEGER"),
        ("FLOAT", "FLOAT"),
        ("DOUBLE PRECISION", "DOUBLE"),
        ("DECIMAL(10, 2)", "DECIMAL(10, 2)"),
        ("DEC(5)", "DECIMAL(5)"),
        ("NUMERIC", "DECIMAL"),
        ("BOOL", "BOOLEAN"),
        ("TIME(3)", "TIME"),
        ("TIME WITHOUT TIME ZONE", "TIME"),
        ("TIMESTAMP", "TIMESTAMP"),
        ("TIMESTAMP(6)", "TIMESTAMP"),
        ("TIMESTAMP(3) WITHOUT TIME ZONE", "TIMESTAMP"),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP WITH TIME ZONE"),
        ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITH TIME ZONE"),
        ("TIMESTAMP_LTZ(3)", "TIMESTAMP WITH TIME ZONE"),
        ("TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE"),
        ("ROW<a INT, b STRING>", "STRUCT(a INTEGER, b VARCHAR)"),
        ("ROW(a INT, b STRING)", "STRUCT(a INTEGER, b VARCHAR)"),
        ("ROW<`a b` INT NOT NULL 'comment', date DATE, time TIME>", 'STRUCT("a b" INTEGER, date DATE, time TIME)'),
        ("STRUCT(a INT, s STRUCT(b TEXT)[])", "STRUCT(a INTEGER, s STRUCT(b VARCHAR)[])"),
        ("ARRAY<ROW<list ARRAY<INT>>>", "STRUCT(list INTEGER[])[]"),
        ("INT ARRAY", "INTEGER[]"),
        ("INT[3][]", "INTEGER[3][]"),
        ("MAP<STRING NOT NULL, ARRAY<BIGINT>>", "MAP(VARCHAR, BIGINT[])"),
        ("MAP(STRING, BIGINT)", "MAP(VARCHAR, BIGINT)"),
        ("UNION(a INT, b TEXT)", "UNION(a INTEGER, b VARCHAR)"),
        ("ENUM('a', 'it''s')", "ENUM('a', 'it''s')"),
        ("HUGEINT", "HUGEINT"),
        ("UBIGINT", "UBIGINT"),
        ("UUID", "UUID"),
        ("JSON", "JSON"),
        ("TIMESTAMP_NS", "TIMESTAMP_NS"),
        ("INTERVAL", "INTERVAL"),
        ('"INTEGER"', '"INTEGER"'),
    ],
)
def test_types_in_both_spellings(written: str, duckdb: str) -> None:
    table = parse(CreateTable, f"CREATE TABLE t (c {written} NOT NULL, d INT)")
    column = table.columns[0]
    assert column.type_span
    assert (column.type, column.not_null, column.type_span.text) == (duckdb, True, written)
    assert to_duckdb(parse_expression(SourceText("e", f"CAST(x AS {written})"))) == f"CAST(x AS {duckdb})"
    assert to_duckdb(parse_expression(SourceText("e", f"x::{written} + 1"))) == f"CAST(x AS {duckdb}) + 1"


def test_views() -> None:
    view = parse(
        CreateView,
        "CREATE TEMPORARY VIEW IF NOT EXISTS v (a, `b c`) COMMENT 'x' AS WITH q AS (SELECT 1, 2) SELECT * FROM q",
    )
    assert (view.name.text, view.temporary, view.if_not_exists) == ("v", True, True)
    assert view.columns
    assert [name.text for name in view.columns] == ["a", "b c"]
    assert to_duckdb(view.query) == "WITH q AS (SELECT 1, 2) SELECT * FROM q"


def test_drop() -> None:
    drop = parse(Drop, "DROP TEMPORARY VIEW IF EXISTS `my view`")
    assert (drop.kind, drop.name.text, drop.if_exists, drop.temporary) == ("VIEW", "my view", True, True)
    assert parse(Drop, "drop table t").kind == "TABLE"


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("SET 'a.b' = 'c d'", "a.b", "c d"),
        ("SET a.b-c = 2", "a.b-c", "2"),
        ("set execution.checkpointing.interval = 10 s", "execution.checkpointing.interval", "10 s"),
        ("SET parallelism.default=4", "parallelism.default", "4"),
        ("SET 'x' = ''", "x", ""),
        ("SET spark.master = local[2,4]", "spark.master", "local[2,4]"),
    ],
)
def test_set(text: str, key: str, value: str) -> None:
    option = parse(SetOption, text)
    assert option.value
    assert (option.key.text, option.value.value) == (key, value)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("INSERT INTO t SELECT 1", None),
        ("INSERT INTO t (a, `b c`) SELECT 1, 2", ["a", "b c"]),
        ("INSERT INTO t (SELECT 1)", None),
        ("INSERT INTO t (a) (SELECT 1)", ["a"]),
        ("INSERT INTO t WITH q AS (SELECT 1) SELECT * FROM q", None),
        ("INSERT INTO t FROM s", None),
        ("INSERT INTO t SELECT 1 UNION ALL SELECT 2", None),
    ],
)
def test_insert(text: str, columns: list[str] | None) -> None:
    insert = parse(Insert, text)
    assert insert.target.text == "t"
    assert (insert.columns and [name.text for name in insert.columns]) == columns
    assert isinstance(insert.query, exp.Query)


def test_script_of_many_statements() -> None:
    script = """-- first; not the end
        ;; SELECT ';' /* ; /* nested ; */ */ AS a ;
        WITH x AS (SELECT 1) SELECT * FROM x;
        FROM t; FROM t SELECT a; (SELECT 1); TABLE t; SELECT 1 -- no last semicolon"""
    statements = parse_script(SourceText("s", script))
    assert [to_duckdb(of_type(Select, s).query) for s in statements] == [
        "SELECT ';' AS a",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "SELECT * FROM t",
        "SELECT a FROM t",
        "(SELECT 1)",
        "SELECT * FROM t",
        "SELECT 1",
    ]


def test_byte_order_mark_and_line_ends() -> None:
    source = SourceText("s", "\ufeffSELECT 1;\r\nSELECT a\r\nFROM t")
    assert [s.span.text for s in parse_script(source)] == ["SELECT 1", "SELECT a\r\nFROM t"]
    assert parse_script(SourceText("s", " -- nothing\n;")) == []


def test_joins_of_a_query_that_begins_with_from() -> None:
    union = parse(Select, "FROM a JOIN b ON a.x = b.x SELECT 1 UNION ALL SELECT 2").query
    assert to_duckdb(union.this) == "SELECT 1 FROM a JOIN b ON a.x = b.x"
    assert len(union.this.args["joins"]) == 1


def test_functions() -> None:
    assert parse(CreateFunction, "CREATE TEMPORARY SYSTEM FUNCTION f AS 'm.f' LANGUAGE PYTHON").name.text == "f"
    assert parse(DropFunction, "DROP TEMPORARY SYSTEM FUNCTION IF EXISTS f").name.text == "f"
    made = parse(CreateFunction, "CREATE TEMPORARY FUNCTION IF NOT EXISTS f AS 'geo.distance' LANGUAGE PYTHON")
    assert (made.name.text, made.reference, made.reference_span.text) == ("f", "geo.distance", "'geo.distance'")
    assert made.if_not_exists
    dropped = parse(DropFunction, "DROP FUNCTION IF EXISTS f")
    assert (dropped.name.text, dropped.if_exists, dropped.span.text) == ("f", True, "DROP FUNCTION IF EXISTS f")


def test_create_table_with_metadata_and_partitions() -> None:
    table = parse(
        CreateTable,
        "CREATE TABLE t (a INT, p STRING METADATA FROM 'file.path' VIRTUAL, n INT METADATA) PARTITIONED BY (a, p)",
    )
    assert [(c.name.text, c.metadata and c.metadata.text) for c in table.columns] == [
        ("a", None),
        ("p", "file.path"),
        ("n", "n"),
    ]
    assert [k.text for k in table.partitioned_by] == ["a", "p"]


def test_create_table_without_columns() -> None:
    table = parse(CreateTable, "CREATE TABLE t COMMENT 'x' WITH ('connector' = 'nexmark')")
    assert (table.columns, table.watermark, list(table.options)) == ((), None, ["connector"])
    table = parse(CreateTable, "CREATE TABLE t (WATERMARK FOR ts AS ts) WITH ('connector' = 'nexmark')")
    assert table.columns == ()
    assert table.watermark is not None
