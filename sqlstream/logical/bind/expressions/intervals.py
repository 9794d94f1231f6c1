"""Constant intervals: lengths of time, and months of the calendar."""

from __future__ import annotations

from typing import NamedTuple

import duckdb
from sqlglot import exp

from sqlstream.errors import BindError, SourceText
from sqlstream.logical.bind.expressions.type_checker import TypeChecker
from sqlstream.sql.dialect import to_duckdb
from sqlstream.sql.spans import span_of
from sqlstream.units import Duration


class CalendarInterval(NamedTuple):
    """A number of whole months, whose lengths vary, and a length in addition to them."""

    months: int
    length: Duration


def calendar_interval(checker: TypeChecker, node: exp.Expr, source: SourceText) -> CalendarInterval:
    """Return the months and the further length of a constant interval.

    Raises BindError for an expression that is not a constant INTERVAL.
    """
    span = span_of(node, source)
    sql = to_duckdb(node)
    if node.find(exp.Column) is not None:
        raise BindError("an interval here must be a constant", span)
    try:
        [(kind,)] = checker.con.execute(f"SELECT typeof({sql})").fetchall()
        if kind != "INTERVAL":
            raise BindError("an interval is needed here", span, hint="Write INTERVAL '10' MINUTE.")
        counted = f"SELECT i, date_part('year', i) * 12 + date_part('month', i) AS months FROM (SELECT {sql} AS i)"
        [(months, micros)] = checker.con.execute(
            f"SELECT months, epoch_us(i - to_months(CAST(months AS INTEGER))) FROM ({counted})"
        ).fetchall()
    except duckdb.Error as e:
        raise checker.translate(e, node, source) from e
    if months is None:
        raise BindError("an interval here must not be NULL", span, hint="Write INTERVAL '10' MINUTE.")
    return CalendarInterval(months, Duration(micros))


def constant_interval(checker: TypeChecker, node: exp.Expr, source: SourceText) -> Duration:
    """Return the length of a constant interval, in microseconds.

    Raises BindError for an expression that is not a constant INTERVAL, and for months or years, whose length varies.
    """
    interval = calendar_interval(checker, node, source)
    if interval.months:
        raise BindError(
            "an interval of months or years has no fixed length",
            span_of(node, source),
            hint="Use days, such as INTERVAL '30' DAY.",
        )
    return interval.length
