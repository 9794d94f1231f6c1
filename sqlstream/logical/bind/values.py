"""VALUES: literal rows in a query, as a table whose scan reads no file."""

from __future__ import annotations

import hashlib

import duckdb
from sqlglot import exp

from sqlstream.catalog import VALUES, Catalog, Column, Table
from sqlstream.errors import BindError, SourceText, Span, UnsupportedError
from sqlstream.logical.bind.expressions.expressions import ExpressionBinder
from sqlstream.logical.bind.expressions.type_checker import TypeChecker, plain
from sqlstream.logical.bind.scope import ONE_ROW, Scope
from sqlstream.logical.plan.random_values import repeatable
from sqlstream.sql.dialect import to_duckdb
from sqlstream.sql.spans import span_of


def values_table(values: exp.Values, catalog: Catalog, checker: TypeChecker, source: SourceText) -> Table:
    """Return the rows of VALUES as a table with the columns col0, col1, .., as in DuckDB.

    Raises BindError for rows of different lengths or types, UnsupportedError for a Python function that is random.
    """
    binder = ExpressionBinder(Scope("", (), source, "VALUES"), catalog, checker)
    rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in values.expressions]
    salt = hashlib.sha256(to_duckdb(values).encode()).hexdigest()[:12]
    bound = [
        [_constant(binder, node, f"{salt}/{number}/{index}") for index, node in enumerate(row)]
        for number, row in enumerate(rows)
    ]
    sql = ", ".join(f"({', '.join(map(to_duckdb, row))})" for row in bound)
    try:
        described = checker.con.execute(f"DESCRIBE SELECT * FROM (VALUES {sql})").fetchall()
        if not any(catalog.function(c.name) for row in bound for node in row for c in node.find_all(exp.Anonymous)):
            # A failing value, such as a cast of a text that is not a number, is an error now, not when the job runs.
            checker.con.execute(f"SELECT count(*) FROM (SELECT hash(COLUMNS(*)) FROM (VALUES {sql}))").fetchall()
    except duckdb.Error as e:
        for row in bound:
            checker.types((), row, source)
        raise BindError(f"the rows of VALUES do not fit: {plain(str(e))}", span_of(values, source)) from e
    columns = tuple(Column(name, type) for name, type, *_ in described)
    return Table(VALUES, columns, options={"connector": VALUES, "rows": sql})


def from_one_row(select: exp.Select, source: SourceText) -> exp.Select:
    """Return a SELECT without FROM as one over a row of VALUES. Raises BindError for a star, which has no columns there."""
    for item in select.expressions:
        if isinstance(item, exp.Star) or (item.find(exp.Column) is not None and isinstance(item.this, exp.Star)):
            raise BindError("* in a query without FROM", span_of(item, source), hint="Name a table: SELECT * FROM t.")
    row = exp.Tuple(expressions=[exp.Literal.number(0)])
    alias = exp.TableAlias(this=exp.to_identifier(ONE_ROW), columns=[exp.to_identifier("_row")])
    select = select.copy()
    select.set("from_", exp.From(this=exp.Values(expressions=[row], alias=alias)))
    return select


def _constant(binder: ExpressionBinder, node: exp.Expr, salt: str) -> exp.Expr:
    """Return a bound value; UUID() and RAND() are computed of the time of the batch and of `salt`, which no other value has."""
    bound = repeatable(binder.rewrite(node), salt, "''")
    if binder.is_volatile(bound):
        hint = "A batch that is repeated after a crash must give the same rows."
        raise UnsupportedError("VALUES cannot be random", binder.span(node), hint=hint)
    return bound


def span_of_value(query: exp.Query, index: int, source: SourceText) -> Span:
    """Return the position in the text of the first value of a column of `INSERT .. VALUES`; columns are counted from 0."""
    row = query.args["from_"].this.expressions[0]
    return span_of(row.expressions[index] if isinstance(row, exp.Tuple) else row, source)


def literal_columns(query: exp.Query) -> set[int]:
    """Return the columns of `INSERT .. VALUES`, counted from 0, that have only quoted texts and NULLs: these fit any type."""
    rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in query.args["from_"].this.expressions]
    return {
        index
        for index, column in enumerate(zip(*rows, strict=True))
        if all(isinstance(value, exp.Null) or (isinstance(value, exp.Literal) and value.is_string) for value in column)
    }
