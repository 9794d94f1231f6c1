"""Binding of CREATE TABLE, CREATE VIEW, INSERT INTO and bare SELECT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import duckdb
from sqlglot import exp

from sqlstream.catalog import OP_COLUMN, Catalog, Column, Table, View, Watermark
from sqlstream.errors import BindError, Span, UnsupportedError, missing
from sqlstream.logical.bind.assignment import assignable
from sqlstream.logical.bind.expressions.expressions import ExpressionBinder
from sqlstream.logical.bind.expressions.flink_values import cut
from sqlstream.logical.bind.expressions.type_checker import TypeChecker, no_type, plain
from sqlstream.logical.bind.partitions import PartitionConstant, constants_of
from sqlstream.logical.bind.queries import Binder
from sqlstream.logical.bind.scope import Scope
from sqlstream.logical.bind.set_operations import span_of_column
from sqlstream.logical.bind.table_like import inherited, source_table
from sqlstream.logical.bind.values import literal_columns, span_of_value
from sqlstream.logical.plan.expressions import TIMES, Expression, Field, Item
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.random_values import with_random_columns, without_random
from sqlstream.logical.plan.relational import Projection
from sqlstream.logical.plan.tables import ResultSink
from sqlstream.logical.plan.time_domains import with_processing_time, with_times
from sqlstream.sql.nodes import ColumnDef, CreateTable, CreateView, Insert, Name, Select
from sqlstream.sql.spans import span_of


def bind_table(statement: CreateTable, catalog: Catalog, checker: TypeChecker) -> Table:
    """Bind CREATE TABLE: check types, bind computed columns to the physical columns, and the watermark to all columns.

    Raises BindError for a column, type or expression that is wrong, UnsupportedError for a Python function that is random.
    """
    described = f'table "{statement.name.text}"'
    base = inherited(statement, source_table(statement.like, catalog)) if statement.like else None
    types = {c.name.text: _type(c, checker) for c in statement.columns if c.type is not None}
    options = {**(base.options if base else {}), **{k: v.value for k, v in statement.options.items()}}
    # The column that holds the kind of change cannot be named in expressions.
    operation = options.get(OP_COLUMN, "").lower()
    physical = tuple(Field(name, type) for name, type in types.items() if name.lower() != operation)
    columns: list[Column] = []
    if base is not None:
        columns += base.columns
        inherits = (Field(c.name, c.type) for c in base.physical if c.name.lower() != operation)
        physical = (*inherits, *physical)
    for column in statement.columns:
        if column.expression is None:
            metadata = column.metadata.text if column.metadata else None
            name, never_null = column.name.text, column.not_null
            columns.append(Column(name, types[name], None, never_null, metadata=metadata, virtual=column.virtual))
        else:
            # ALTER TABLE may be elsewhere than CREATE TABLE.
            scope = Scope(statement.name.text, physical, column.span.source, described)
            bound = _computed(ExpressionBinder(scope, catalog, checker), column.expression)
            by_clock = isinstance(column.expression, exp.Anonymous) and column.expression.name.lower() == "proctime"
            columns.append(
                Column(
                    column.name.text,
                    bound.type,
                    bound.sql,
                    processing_time=by_clock,
                    reads_clock=bound.reads.clock,
                    reads_watermark=bound.reads.watermark,
                    random=bound.volatile,
                )
            )
    shown = tuple(c for c in columns if c.name.lower() != operation)
    names = [c.name for c in shown]
    key = tuple(_existing(k, names, described) for k in statement.primary_key)
    physical_names = [c.name for c in shown if c.expression is None]
    partitions = tuple(_existing(k, physical_names, described) for k in statement.partitioned_by)
    watermark = _watermark(statement, shown, catalog, checker)
    return Table(
        name=statement.name.text,
        columns=tuple(columns),
        watermark=watermark or (base.watermark if base else None),
        primary_key=key or (base.primary_key if base else ()),
        options=options,
        temporary=statement.temporary,
        span=statement.name.span,
        partitioned_by=partitions or (base.partitioned_by if base else ()),
        option_spans={k: (v.key_span or v.span, v.span) for k, v in statement.options.items()},
    )


def _type(column: ColumnDef, checker: TypeChecker) -> str:
    try:
        return checker.canonical(column.type or "")
    except duckdb.Error as e:
        at = column.type_span or column.span
        if error := no_type(str(e), at):
            raise error from e
        raise BindError(f'type of column "{column.name.text}": {plain(str(e))}', at) from e


def _computed(binder: ExpressionBinder, node: exp.Expr) -> Expression:
    """Return the expression of a computed column, which may call UUID() and RAND(), but no Python function that is random."""
    binder.refuse_aggregates(node, "in a computed column")
    bound = binder.rewrite(node)
    return (
        _stable(binder, node, "a computed column")
        if binder.is_volatile(without_random(bound))
        else binder.typed(bound, node)
    )


def _stable(binder: ExpressionBinder, node: exp.Expr, what: str) -> Expression:
    binder.refuse_aggregates(node, f"in {what}")
    bound = binder.bind(node)
    if bound.volatile:
        hint = "A batch that is repeated after a crash must give the same rows."
        raise UnsupportedError(f"{what} cannot be random", bound.span, hint=hint)
    return bound


def _existing(name: Name, names: list[str], described: str) -> str:
    existing = next((n for n in names if n.lower() == name.text.lower()), None)
    if existing is None:
        raise BindError(
            f'column "{name.text}" does not exist in {described}', name.span, hint=missing("column", name.text, names)
        )
    return existing


def _watermark(
    statement: CreateTable, columns: tuple[Column, ...], catalog: Catalog, checker: TypeChecker
) -> Watermark | None:
    watermark = statement.watermark
    if watermark is None:
        return None
    described = f'table "{statement.name.text}"'
    name = _existing(watermark.column, [c.name for c in columns], described)
    kind = next(c.type for c in columns if c.name == name)
    if any(c.name == name and c.processing_time for c in columns):
        hint = f"Leave the watermark out: windows can be made over {name} as it is. For a time of arrival write NOW()."
        raise BindError(
            f'column "{name}" is a processing time, which needs no watermark', watermark.column.span, hint=hint
        )
    hint = "A time attribute is a TIMESTAMP or a TIMESTAMP_LTZ column; compute one: ts AS to_timestamp(seconds)."
    if kind not in TIMES:
        raise BindError(f'column "{name}" of type {kind} cannot be a time attribute', watermark.column.span, hint=hint)
    fields = tuple(Field(c.name, c.type) for c in columns)
    scope = Scope(statement.name.text, fields, watermark.span.source, described)
    bound = _stable(ExpressionBinder(scope, catalog, checker), watermark.expression, "a watermark")
    if bound.type not in TIMES:
        raise BindError(f"a watermark must be a TIMESTAMP, not {bound.type}", bound.span)
    return Watermark(name, bound.sql if bound.type == kind else f"CAST({bound.sql} AS {kind})")


def bind_view(statement: CreateView, binder: Binder) -> View:
    """Return the view. Its query is bound once, so that its errors are raised where it is declared."""
    view = declared_view(statement)
    binder.view(view)
    return view


def declared_view(statement: CreateView) -> View:
    """Return the view without binding its query."""
    return View(
        name=statement.name.text,
        columns=tuple(c.text for c in statement.columns),
        query=statement.query,
        temporary=statement.temporary,
        span=statement.span,
    )


def in_one_job(sinks: Sequence[ResultSink]) -> tuple[ResultSink, ...]:
    """Return the plans of one job's queries with what they decide together: random columns, times, and the clock."""
    return tuple(with_processing_time(with_times(with_random_columns(sinks))))


def bind_insert(statement: Insert, binder: Binder) -> ResultSink:
    """Return the plan of INSERT INTO: columns match by position, and convert as in an assignment.

    Raises BindError for a target that does not exist, and for columns that do not fit; UnsupportedError as Binder does.
    """
    table = _target(statement, binder.catalog)
    constants = constants_of(statement, table, binder)
    if statement.overwrites:
        table = replace(table, overwrites=tuple((name, constant.text) for name, constant in constants.items()))
    node, _ = binder.bind(statement.query, statement.span.source)
    writable = list(table.writable)
    targets = _targets(statement, table, writable, constants)
    columns = node.schema
    if len(columns) != len(targets):
        counted = f"{len(columns)} column{'s' if len(columns) > 1 else ''}"
        raise BindError(
            f'the query gives {counted}, but {len(targets)} of table "{table.name}" are to be written',
            _span_of_columns(statement),
            hint=f"columns to be written: {', '.join(t.name for t in targets)}",
        )
    texts = literal_columns(statement.query) if statement.appends else ()
    for index, (own, target) in enumerate(zip(columns, targets, strict=True)):
        if index not in texts and not assignable(own.type, target.type):
            span = span_of_column(node, index)
            written = span.text if span and not span.text.endswith("*") else own.name
            if statement.appends:
                span, written = span_of_value(statement.query, index, statement.span.source), ".."
            raise BindError(
                f'column "{own.name}" is {own.type}, but column "{target.name}" of table "{table.name}" is {target.type}',
                span or statement.target.span,
                hint=f"Convert it in the query: CAST({written} AS {target.type}).",
            )
    node = _without_fractions(node, targets, statement, binder.checker)
    return ResultSink(
        _in_order(node, targets, writable, constants), table, tuple(Field(c.name, c.type) for c in writable)
    )


def _without_fractions(node: Node, targets: Sequence[Column], statement: Insert, checker: TypeChecker) -> Node:
    """Return the query with fractions cut off, as CAST does, where numbers go into integer columns; warn about each column."""
    meaning, items = checker.meaning, []
    for index, (own, target) in enumerate(zip(node.schema, targets, strict=True)):
        value = Expression.of_column(own.name, own.type)
        sql = cut(value.sql, own.type, target.type) if meaning.is_flinks else None
        if sql is not None:
            span = span_of_column(node, index) or statement.target.span
            meaning.notice_cut(own.name, own.type, target.type, span)
            value = Expression.over((value,), sql, target.type)
        items.append(Item(own.name, value))
    if all(item.expression.column is not None for item in items):
        return node
    meaning.differs = True
    return Projection(node, tuple(items))


def _span_of_columns(statement: Insert) -> Span:
    """Return the position in the text of a query's select list, or of the first row of VALUES."""
    first = statement.query.find(exp.Values if statement.appends else exp.Select)
    columns = first.expressions[:1] if statement.appends and first else first.expressions if first else []
    option_spans = [span_of(column, statement.span.source, statement.target.span) for column in columns]
    return option_spans[0].to(option_spans[-1]) if option_spans else statement.target.span


def bind_select(statement: Select, binder: Binder, name: str, connector: str) -> ResultSink:
    """Bind a bare SELECT. Its sink is a table `name` of a connector, and its job ends after LIMIT rows."""
    node, limit = binder.bind(statement.query, statement.span.source, limit=True)
    columns = node.schema
    table = Table(name, tuple(Column(f.name, f.type) for f in columns), options={"connector": connector})
    return ResultSink(node, table, columns, limit)


def _target(statement: Insert, catalog: Catalog) -> Table:
    name = statement.target
    match catalog.relation(name.text):
        case None:
            hint = catalog.relation_hint(name.text)
            raise BindError(f'table "{name.text}" does not exist', name.span, hint=hint)
        case View():
            raise BindError(f'"{name.text}" is a view', name.span, hint="Insert into a table.")
        case Table() as table if statement.options is None:
            return table
        case Table() as table:
            return catalog.with_options(table, dict(statement.options.options), statement.options.span)


def _targets(
    statement: Insert, table: Table, writable: list[Column], constants: Mapping[str, PartitionConstant]
) -> list[Column]:
    """Return the columns that the query writes: the named ones, else all but the `constants` of PARTITION."""
    if statement.columns is None:
        return [column for column in writable if column.name not in constants]
    targets: list[Column] = []
    for name in statement.columns:
        column_name = _existing(name, [c.name for c in table.columns], f'table "{table.name}"')
        target = next((c for c in writable if c.name == column_name), None)
        if target is None:
            computed = any(c.name == column_name and c.expression for c in table.columns)
            what = "computed" if computed else "read from the source, and not written"
            raise BindError(f'column "{column_name}" of table "{table.name}" is {what}', name.span)
        if target in targets or target.name in constants:
            raise BindError(f'column "{column_name}" is named twice', name.span)
        targets.append(target)
    for column in writable:
        if column.not_null and column not in targets and column.name not in constants:
            raise BindError(
                f'column "{column.name}" of table "{table.name}" is NOT NULL and not written',
                statement.columns[0].span.to(statement.columns[-1].span),
            )
    return targets


def _in_order(
    node: Node, targets: list[Column], writable: list[Column], constants: Mapping[str, PartitionConstant]
) -> Node:
    """Return the query with its columns and the constants in the table's order; other columns are NULL."""
    if targets == writable:
        return node
    by_name = {target.name: own for target, own in zip(targets, node.schema, strict=True)}
    items = []
    for column in writable:
        own = by_name.get(column.name)
        if own is not None:
            value = Expression.of_column(own.name, own.type)
        elif column.name in constants:
            value = constants[column.name].value
        else:
            value = Expression.over((), f"CAST(NULL AS {column.type})", column.type)
        items.append(Item(column.name, value))
    return Projection(node, tuple(items))
