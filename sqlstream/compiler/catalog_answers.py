"""The answers of SHOW and DESCRIBE, as tables of texts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar, assert_never

from sqlstream.catalog import Catalog, Column, Table, View
from sqlstream.compiler.databases import Databases
from sqlstream.compiler.function_answers import described_function, function_rows
from sqlstream.compiler.listings import JOBS, SAVEPOINTS
from sqlstream.duck.sql import quote_name, quote_text
from sqlstream.errors import BindError
from sqlstream.logical.bind.queries import Binder
from sqlstream.options import Options
from sqlstream.secrets import shown
from sqlstream.sql.nodes import CATALOG, Describe, Name, Show, ShowKind

R = TypeVar("R", Table, View)

CHECKS = (
    "SELECT job, name, operator, condition, every, action, status, version, rows, detail"
    " FROM sqlstream.checks ORDER BY job, name, operator"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: names of columns, and rows of texts; None is NULL."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]


@dataclass(frozen=True, slots=True)
class WarehouseQuery:
    """A state query that answers a statement; it runs when the statements before it have run."""

    sql: str


def answer(
    statement: Show | Describe, binder: Binder, options: Options, databases: Databases
) -> Answer | WarehouseQuery:
    """Return the answer of SHOW or DESCRIBE from the catalog and the options; a state query if only the warehouse knows it.

    Raises BindError for a relation or a function that does not exist.
    """
    catalog = binder.catalog
    if isinstance(statement, Describe):
        if statement.function:
            return Answer(("part", "name", "type", "null", "default"), described_function(statement.name, catalog))
        return described(_relation(statement.name, catalog), binder)
    like = _pattern(statement.like)
    match statement.kind:
        case "JOBS":
            return WarehouseQuery(JOBS)
        case "SAVEPOINTS":
            return WarehouseQuery(f"{SAVEPOINTS} ORDER BY taken_at, savepoint")
        case "STATE CHECKS":
            return WarehouseQuery(CHECKS)
        case "OPTIONS":
            listed = ((name, shown(name, value), default) for name, value, default in options.listed())
            return Answer(("option", "value", "default"), tuple(listed))
        case "CATALOGS":
            return Answer(("catalog",), ((CATALOG,),))
        case "CURRENT CATALOG":
            return Answer(("current catalog",), ((CATALOG,),))
        case "DATABASES":
            return Answer(("database",), tuple((name,) for name in databases.names))
        case "CURRENT DATABASE":
            return Answer(("current database",), ((databases.current,),))
        case "MODULES":
            return Answer(("module",), (("core",),))
        case "JARS":
            return Answer(("jar",), ())
        case "TABLES":
            tables = [t for t in _in_order(catalog.tables.values()) if like(t.name)]
            return Answer(("table", "connector"), tuple((t.name, t.connector or "warehouse") for t in tables))
        case "VIEWS":
            return Answer(("view",), tuple((v.name,) for v in _in_order(catalog.views.values()) if like(v.name)))
        case "FUNCTIONS":
            return Answer(("function", "takes", "returns", "kind", "declared at"), function_rows(catalog, like))
        case "COLUMNS" | "CREATE TABLE" | "CREATE VIEW" as kind:
            assert statement.name is not None
            return _about(kind, statement.name, binder, like)
        case kind:
            assert_never(kind)


def _about(kind: ShowKind, name: Name, binder: Binder, like: _LikePattern) -> Answer:
    relation = _relation(name, binder.catalog)
    if kind == "COLUMNS":
        table = described(relation, binder)
        return Answer(table.columns, tuple(row for row in table.rows if like(row[0] or "")))
    relation_type = Table if kind == "CREATE TABLE" else View
    if not isinstance(relation, relation_type):
        is_a = "table" if isinstance(relation, Table) else "view"
        raise BindError(f'"{relation.name}" is a {is_a}', name.span, hint=f"Write SHOW CREATE {is_a.upper()}.")
    text = create_table(relation) if isinstance(relation, Table) else _create_view(relation)
    return Answer((kind.lower(),), ((text,),))


def described(relation: Table | View, binder: Binder) -> Answer:
    """Return a row for each column of a table or a view: name, type, "true" if it may be NULL, key, expression, watermark."""
    columns = ("name", "type", "null", "key", "computed as", "watermark")
    if isinstance(relation, View):
        node = binder.view(relation)
        time = node.time_attribute
        fields = [
            (f.name, f.type, "true", None, None, "from its input" if f.name == time else None) for f in node.schema
        ]
        return Answer(columns, tuple(fields))
    return Answer(columns, tuple(_described_column(c, relation) for c in relation.columns))


def _described_column(column: Column, table: Table) -> tuple[str | None, ...]:
    watermark = table.watermark
    return (
        column.name,
        column.type,
        "false" if column.not_null or column.name in table.primary_key else "true",
        f"PRIMARY KEY ({', '.join(table.primary_key)})" if column.name in table.primary_key else None,
        column.expression,
        watermark.expression if watermark and watermark.column == column.name else None,
    )


def create_table(table: Table) -> str:
    """Return the CREATE TABLE statement of a table; secrets in its options are hidden."""
    parts = []
    for column in table.columns:
        if column.expression is not None:
            parts.append(f"{quote_name(column.name)} AS {column.expression}")
        else:
            # A column that its connector cannot write is VIRTUAL, even if the declaration does not say so.
            virtual = "" if column in table.writable else " VIRTUAL"
            metadata = f" METADATA FROM {quote_text(column.metadata)}{virtual}" if column.metadata else ""
            parts.append(f"{quote_name(column.name)} {column.type}{' NOT NULL' if column.not_null else ''}{metadata}")
    if table.watermark is not None:
        parts.append(f"WATERMARK FOR {quote_name(table.watermark.column)} AS {table.watermark.expression}")
    if table.primary_key:
        parts.append(f"PRIMARY KEY ({', '.join(map(quote_name, table.primary_key))}) NOT ENFORCED")
    options = ",\n    ".join(f"{quote_text(k)} = {quote_text(shown(k, v))}" for k, v in table.options.items())
    body = ",\n    ".join(parts)
    temporary = "TEMPORARY " if table.temporary else ""
    partitions = f" PARTITIONED BY ({', '.join(map(quote_name, table.partitioned_by))})" if table.partitioned_by else ""
    clauses = partitions + (f" WITH (\n    {options}\n)" if options else "")
    return f"CREATE {temporary}TABLE {quote_name(table.name)} (\n    {body}\n){clauses}"


def _create_view(view: View) -> str:
    return view.span.written if view.span else ""


def _relation(name: Name, catalog: Catalog) -> Table | View:
    relation = catalog.relation(name.text)
    if relation is None:
        raise BindError(f'table "{name.text}" does not exist', name.span, hint=catalog.relation_hint(name.text))
    return relation


def _in_order(relations: Iterable[R]) -> list[R]:
    return sorted(relations, key=lambda r: r.name.lower())


class _LikePattern:
    """A pattern of LIKE: `%` stands for any text, `_` for one character; case does not matter."""

    def __init__(self, pattern: str):
        parts = (".*" if c == "%" else "." if c == "_" else re.escape(c) for c in pattern)
        self._pattern = re.compile("".join(parts), re.IGNORECASE | re.DOTALL)

    def __call__(self, name: str) -> bool:
        return self._pattern.fullmatch(name) is not None


def _pattern(like: str | None) -> _LikePattern:
    return _LikePattern("%" if like is None else like)
