"""Parsed statements: names and options as text, queries and expressions as sqlglot trees, all with their positions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sqlglot import exp

from sqlstream.errors import Span
from sqlstream.sql.hints import OptionsHint
from sqlstream.units import Duration

# The aggregates that take IGNORE NULLS and RESPECT NULLS without OVER.
NULL_TREATING = frozenset({"first", "first_value", "last", "last_value", "list", "array_agg", "collect_list"})

# The names of the one catalog and of its first database, as in Flink.
CATALOG, DATABASE = "default_catalog", "default_database"


@dataclass(frozen=True, slots=True)
class Name:
    """A name without its quotes; `database` is the database before the name of a table, None without one."""

    text: str
    span: Span
    database: str | None = None


@dataclass(frozen=True, slots=True)
class OptionValue:
    """The value of an option, without its quotes; `key_span` is the position of its key."""

    value: str
    span: Span
    key_span: Span | None = None


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """A column of CREATE TABLE: with a type (DuckDB's text), or computed by an expression.

    `metadata` is the key of a METADATA column; a `virtual` one cannot be written.
    """

    name: Name
    type: str | None
    expression: exp.Expression | None
    not_null: bool
    comment: str | None
    span: Span
    type_span: Span | None = None
    metadata: Name | None = None
    virtual: bool = False


@dataclass(frozen=True, slots=True)
class WatermarkDef:
    """`WATERMARK FOR column AS expression`."""

    column: Name
    expression: exp.Expression
    span: Span


Feature: TypeAlias = Literal["GENERATED", "OPTIONS", "WATERMARKS", "CONSTRAINTS"]
Merge: TypeAlias = Literal["INCLUDING", "EXCLUDING", "OVERWRITING"]


@dataclass(frozen=True, slots=True)
class TableLike:
    """`LIKE table (..)`: how each feature of that table is merged; its physical columns are always included."""

    table: Name
    merges: Mapping[Feature, Merge]
    span: Span


@dataclass(frozen=True, slots=True)
class CreateTable:
    """`CREATE TABLE name (..) [PARTITIONED BY (..)] WITH (..)`; without `columns` the source has them."""

    span: Span
    name: Name
    columns: tuple[ColumnDef, ...]
    watermark: WatermarkDef | None
    primary_key: tuple[Name, ...]
    options: dict[str, OptionValue]
    if_not_exists: bool
    temporary: bool
    or_replace: bool = False
    like: TableLike | None = None
    partitioned_by: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True)
class Freshness:
    """`FRESHNESS = INTERVAL ..`: how old the rows of a materialized table may be."""

    duration: Duration
    span: Span


@dataclass(frozen=True, slots=True)
class CreateTableAs:
    """`CREATE [MATERIALIZED] TABLE name [(..)] [WITH (..)] [FRESHNESS = ..] AS query`.

    `table` has the columns in the parentheses, `query_span` is the query.
    """

    span: Span
    table: CreateTable
    query: exp.Query
    query_span: Span
    freshness: Freshness | None = None


@dataclass(frozen=True, slots=True)
class TableParts:
    """Parts of a table that ALTER TABLE adds or modifies.

    `positions` says where columns are to stand, by their names: behind another column, or in front of all for None.
    """

    columns: tuple[ColumnDef, ...]
    watermark: WatermarkDef | None
    primary_key: tuple[Name, ...]
    positions: Mapping[str, Name | None]


@dataclass(frozen=True, slots=True)
class AddParts:
    """`ADD part`, or `ADD (part, ..)`."""

    parts: TableParts


@dataclass(frozen=True, slots=True)
class ModifyParts:
    """`MODIFY part`, or `MODIFY (part, ..)`: each replaces the one that the table has."""

    parts: TableParts


@dataclass(frozen=True, slots=True)
class DropColumns:
    """`DROP column`, or `DROP (column, ..)`."""

    columns: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class DropPart:
    """`DROP PRIMARY KEY`, `DROP CONSTRAINT name`, or `DROP WATERMARK`; `span` is the position of these words."""

    kind: Literal["PRIMARY KEY", "WATERMARK"]
    span: Span


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """`RENAME column TO name`."""

    column: Name
    name: Name


@dataclass(frozen=True, slots=True)
class RenameTable:
    """`RENAME TO name`."""

    name: Name


@dataclass(frozen=True, slots=True)
class SetTableOptions:
    """`SET ('key' = 'value', ..)`."""

    options: Mapping[str, OptionValue]


@dataclass(frozen=True, slots=True)
class ResetTableOptions:
    """`RESET ('key', ..)`."""

    keys: tuple[Name, ...]


TableChange: TypeAlias = (
    AddParts | ModifyParts | DropColumns | DropPart | RenameColumn | RenameTable | SetTableOptions | ResetTableOptions
)


@dataclass(frozen=True, slots=True)
class AlterTable:
    """`ALTER TABLE [IF EXISTS] name change`."""

    span: Span
    name: Name
    change: TableChange
    if_exists: bool


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """`CREATE DATABASE name`."""

    span: Span
    name: Name
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropDatabase:
    """`DROP DATABASE name`."""

    span: Span
    name: Name
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Use:
    """`USE database`, or `USE CATALOG catalog` without a database."""

    span: Span
    database: Name | None


@dataclass(frozen=True, slots=True)
class CreateView:
    """`CREATE VIEW name [(columns)] AS query`."""

    span: Span
    name: Name
    columns: tuple[Name, ...]
    query: exp.Query
    if_not_exists: bool
    temporary: bool
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """`DROP TABLE name`, or `DROP VIEW name`."""

    span: Span
    kind: Literal["TABLE", "VIEW"]
    name: Name
    if_exists: bool
    temporary: bool


@dataclass(frozen=True, slots=True)
class CreateFunction:
    """`CREATE FUNCTION name AS 'module.attribute' LANGUAGE PYTHON`."""

    span: Span
    name: Name
    reference: str
    reference_span: Span
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropFunction:
    """`DROP FUNCTION name`."""

    span: Span
    name: Name
    if_exists: bool


@dataclass(frozen=True, slots=True)
class CreateSavepoint:
    """`CREATE SAVEPOINT name FOR JOB job`."""

    span: Span
    name: Name
    job: Name


@dataclass(frozen=True, slots=True)
class DropSavepoint:
    """`DROP SAVEPOINT name`."""

    span: Span
    name: Name
    if_exists: bool


@dataclass(frozen=True, slots=True)
class CreateStateCheck:
    """`CREATE STATE CHECK name ON job[.operator] [WITH (..)] AS (query)`; `query` is where the query stands."""

    span: Span
    name: Name
    job: Name
    operator: Name | None
    query: Span
    options: dict[str, OptionValue]
    if_not_exists: bool = False
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class DropStateCheck:
    """`DROP STATE CHECK name`."""

    span: Span
    name: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class MigrateState:
    """`MIGRATE STATE job.operator[.table] AS query`; `query` is the position of the query."""

    span: Span
    job: Name
    operator: Name
    table: Name | None
    query: Span


@dataclass(frozen=True, slots=True)
class DescribeState:
    """`DESCRIBE STATE job[.operator]`."""

    span: Span
    job: Name
    operator: Name | None


@dataclass(frozen=True, slots=True)
class SetOption:
    """`SET 'key' = 'value'`."""

    span: Span
    key: Name
    value: OptionValue


@dataclass(frozen=True, slots=True)
class Reset:
    """`RESET 'key'`, or `RESET` of all options if `key` is None."""

    span: Span
    key: Name | None


@dataclass(frozen=True, slots=True)
class PartitionValue:
    """`column = value` in PARTITION of INSERT."""

    column: Name
    value: exp.Expression


@dataclass(frozen=True, slots=True)
class Insert:
    """`INSERT INTO target [/*+ OPTIONS(..) */] [PARTITION (..)] [(columns)] query`; it `appends` if the query is just VALUES.

    INSERT OVERWRITE `overwrites`, and never appends.
    """

    span: Span
    target: Name
    columns: tuple[Name, ...] | None
    query: exp.Query
    appends: bool = False
    options: OptionsHint | None = None
    partition: tuple[PartitionValue, ...] = ()
    overwrites: bool = False


@dataclass(frozen=True, slots=True)
class Select:
    """A query as a statement, not in an INSERT: a bare SELECT."""

    span: Span
    query: exp.Query


ShowKind: TypeAlias = Literal[
    "TABLES",
    "VIEWS",
    "FUNCTIONS",
    "JOBS",
    "SAVEPOINTS",
    "STATE CHECKS",
    "COLUMNS",
    "CREATE TABLE",
    "CREATE VIEW",
    "OPTIONS",
    "CATALOGS",
    "DATABASES",
    "MODULES",
    "JARS",
    "CURRENT CATALOG",
    "CURRENT DATABASE",
]


@dataclass(frozen=True, slots=True)
class Show:
    """`SHOW ..`; also `SET` without an option, which lists the options.

    `name` is the table or view of COLUMNS or CREATE, `like` a pattern for the listed names.
    """

    span: Span
    kind: ShowKind
    name: Name | None = None
    like: str | None = None


@dataclass(frozen=True, slots=True)
class Describe:
    """`DESCRIBE name` of a table or view, or `DESCRIBE FUNCTION name`."""

    span: Span
    name: Name
    function: bool = False


@dataclass(frozen=True, slots=True)
class Explain:
    """`EXPLAIN [stage] statement`."""

    span: Span
    stage: str
    statement: Insert | StatementSet | Select | CreateTableAs


@dataclass(frozen=True, slots=True)
class StatementSet:
    """`EXECUTE STATEMENT SET BEGIN insert; insert; END`: several INSERTs that run as one job."""

    span: Span
    inserts: tuple[Insert, ...]


Definition: TypeAlias = CreateTable | CreateTableAs | AlterTable | CreateView | CreateFunction | Drop | DropFunction
DatabaseStatement: TypeAlias = CreateDatabase | DropDatabase | Use
SavepointStatement: TypeAlias = CreateSavepoint | DropSavepoint
StateCheckChange: TypeAlias = CreateStateCheck | DropStateCheck
Statement: TypeAlias = (
    Definition
    | DatabaseStatement
    | SavepointStatement
    | StateCheckChange
    | MigrateState
    | DescribeState
    | SetOption
    | Reset
    | Insert
    | StatementSet
    | Select
    | Show
    | Describe
    | Explain
)


def head(statement: Statement) -> Span:
    """Return the position of a statement's first words, for messages about all of it."""
    span = statement.span
    if isinstance(statement, Insert):
        return Span(span.source, span.start, statement.target.span.end)
    word = re.match(r"\w+", span.text)
    return Span(span.source, span.start, span.start + (word.end() if word else 1))
