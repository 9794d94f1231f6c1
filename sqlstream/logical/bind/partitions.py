"""PARTITION of INSERT: columns of a table whose value the statement says, beside the columns of its query."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
from sqlglot import exp

from sqlstream.catalog import Table
from sqlstream.errors import BindError, UnsupportedError, missing
from sqlstream.logical.bind.expressions.expressions import ExpressionBinder
from sqlstream.logical.bind.expressions.type_checker import plain
from sqlstream.logical.bind.queries import Binder
from sqlstream.logical.bind.scope import Scope
from sqlstream.logical.plan.expressions import Expression
from sqlstream.sql.nodes import Insert, PartitionValue


@dataclass(frozen=True, slots=True)
class PartitionConstant:
    """The value of a column, and the text of it that names a folder."""

    value: Expression
    text: str


def constants_of(statement: Insert, table: Table, binder: Binder) -> dict[str, PartitionConstant]:
    """Return the values in PARTITION, by the column's name. Raises BindError for another column, or a value that does not fit."""
    constants = {}
    for partition in statement.partition:
        name = partition.column
        column = next((c for c in table.columns if c.name.lower() == name.text.lower()), None)
        if column is None or column.name not in table.partitioned_by:
            hint = missing("partition column", name.text, table.partitioned_by)
            if not table.partitioned_by:
                hint = "Leave PARTITION out, and select the value as a column."
            raise BindError(f'table "{table.name}" is not partitioned by "{name.text}"', name.span, hint=hint)
        constants[column.name] = _constant(partition, column.type, statement, binder)
    return constants


def _constant(partition: PartitionValue, type_: str, statement: Insert, binder: Binder) -> PartitionConstant:
    source, checker = statement.span.source, binder.checker
    bind = ExpressionBinder(Scope("", (), source, "PARTITION"), binder.catalog, checker)
    value = bind.bind(partition.value)
    if value.volatile:
        hint = "A batch that is repeated after a crash must give the same rows."
        raise UnsupportedError("a partition cannot be random", value.span, hint=hint)
    sql = f"CAST({value.sql} AS {type_})"
    try:
        [(text,)] = checker.con.execute(f"SELECT CAST({sql} AS VARCHAR)").fetchall()
    except duckdb.Error as e:
        raise BindError(f'the value of "{partition.column.text}": {plain(str(e))}', value.span) from e
    if text is None or isinstance(partition.value, exp.Null):
        raise BindError(f'the value of "{partition.column.text}" is NULL', value.span or partition.column.span)
    return PartitionConstant(Expression.over((), sql, type_), text)
