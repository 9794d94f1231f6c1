"""Constant intervals as durations."""

from __future__ import annotations

import duckdb
from sqlglot import exp

from sqlstream.errors import BindError, SourceText
from sqlstream.logical.bind.expressions.type_checker import TypeChecker
from sqlstream.sql.dialect import to_duckdb
from sqlstream.sql.spans import span_of
from sqlstream.units import Duration


def constant_interval(checker: TypeChecker, node: exp.Expr, source: SourceText) -> Duration:
    """Return the length of a constant interval, in microseconds.

    Raises BindError for an expression that is not a constant INTERVAL, and for months or years, whose length varies.
    """
    span = span_of(node, source)
    sql = to_duckdb(node)
    if node.find(exp.Column) is not None:
        raise BindError("an interval here must be a constant", span)
    try:
        [(kind,)] = checker.con.execute(f"SELECT typeof({sql})").fetchall()
        if kind != "INTERVAL":
            raise BindError("an interval is needed here", span, hint="Write INTERVAL '10' MINUTE.")
        [(months, micros)] = checker.con.execute(
            f"SELECT date_part('year', i) * 12 + date_part('month', i), epoch_us(i) FROM (SELECT {sql} AS i)"
        ).fetchall()
    except duckdb.Error as e:
        raise checker.translate(e, node, source) from e
    if months:
        raise BindError(
            "a window of months or years has no fixed length", span, hint="Use days, such as INTERVAL '30' DAY."
        )
    return Duration(micros)
