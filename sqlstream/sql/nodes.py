"""Statements, as read: names and options as text, queries and expressions as sqlglot trees, all with their place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sqlglot import exp

from sqlstream.errors import Span


@dataclass(frozen=True, slots=True)
class Name:
    """A name without its quotes."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class OptionValue:
    """The value of an option, without its quotes; `key_span` is the place of its key."""

    value: str
    span: Span
    key_span: Span | None = None


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """A column of CREATE TABLE: with a type (DuckDB's text), or computed by an expression.

    `metadata` is the key of a METADATA column.
    """

    name: Name
    type: str | None
    expression: exp.Expression | None
    not_null: bool
    comment: str | None
    span: Span
    type_span: Span | None = None
    metadata: Name | None = None


@dataclass(frozen=True, slots=True)
class WatermarkDef:
    """`WATERMARK FOR column AS expression`."""

    column: Name
    expression: exp.Expression
    span: Span


@dataclass(frozen=True, slots=True)
class CreateTable:
    """`CREATE TABLE name (..) [PARTITIONED BY (..)] WITH (..)`; without columns they are those of the source."""

    span: Span
    name: Name
    columns: tuple[ColumnDef, ...]
    watermark: WatermarkDef | None
    primary_key: tuple[Name, ...]
    options: dict[str, OptionValue]
    if_not_exists: bool
    temporary: bool
    partitioned_by: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateView:
    span: Span
    name: Name
    columns: tuple[Name, ...]
    query: exp.Query
    if_not_exists: bool
    temporary: bool


@dataclass(frozen=True, slots=True)
class Drop:
    span: Span
    kind: Literal["TABLE", "VIEW"]
    name: Name
    if_exists: bool
    temporary: bool


@dataclass(frozen=True, slots=True)
class SetOption:
    """`SET 'key' = 'value'`."""

    span: Span
    key: Name
    value: OptionValue


@dataclass(frozen=True, slots=True)
class Insert:
    """`INSERT INTO target [(columns)] query`."""

    span: Span
    target: Name
    columns: tuple[Name, ...] | None
    query: exp.Query


@dataclass(frozen=True, slots=True)
class Select:
    """A query on its own."""

    span: Span
    query: exp.Query


Statement: TypeAlias = CreateTable | CreateView | Drop | SetOption | Insert | Select
