"""Phrases that nodes share, in the plan's text and in EXPLAIN."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlstream.catalog import Column
from sqlstream.duck.sql import unquoted
from sqlstream.logical.plan.expressions import AggregateItem, Expression, Item, declared
from sqlstream.units import Duration, duration

AT_WINDOW_END = "when the watermark passes the window's end"
ON_CHANGE = "updated by later rows"
IN_WINDOWS_OF_INPUT = "in the windows of its input"
ONCE_IN_ORDER = "each row once, when the watermark passes it"


def quoted_name(name: str) -> str:
    """Return the name of an operator in quotes, with a space before it; empty without a name."""
    return f' "{name}"' if name else ""


def in_table(late_rows: str | None) -> str:
    """Return the phrase " late rows in <table>"; empty without a table."""
    return f" late rows in {late_rows}" if late_rows else ""


def sql_list(expressions: Iterable[Expression]) -> str:
    """Return the SQL of expressions, separated by commas."""
    return ", ".join(e.sql for e in expressions)


def plain_list(expressions: Iterable[Expression]) -> str:
    """Return the SQL of expressions, separated by commas, without needless quotes."""
    return ", ".join(unquoted(e.sql) for e in expressions)


def sql_items(items: Iterable[Item]) -> str:
    """Return items as `expression AS name`, separated by commas."""
    return ", ".join(f"{i.expression.sql} AS {i.name}" for i in items)


def plain_item(item: Item) -> str:
    """Return an item as `expression AS name`, or its name alone if the expression is the column of that name."""
    return item.name if item.expression.column == item.name else f"{unquoted(item.expression.sql)} AS {item.name}"


def plain_call(call: AggregateItem) -> str:
    """Return a call as `call AS name`, or the call alone if the name is its own text; without the order of arrival."""
    text = unquoted(replace(call, order_by=declared(call.order_by)).sql)
    return text if text == call.name else f"{text} AS {call.name}"


def typed_columns(columns: Iterable[Column]) -> str:
    """Return columns with their types, separated by commas."""
    return ", ".join(f"{c.name} {c.type}" for c in columns)


def shifted(column: str, by: Duration) -> str:
    """Return the text of a time column plus a duration, which may be negative."""
    return f"{column} {'-' if by < 0 else '+'} {duration(Duration(abs(by)))}" if by else column
