"""How nodes say what they are made of, in the plan's text and in EXPLAIN."""

from __future__ import annotations

from collections.abc import Iterable

from sqlstream.catalog import Column
from sqlstream.duck.sql import unquoted
from sqlstream.logical.plan.expressions import AggregateItem, Expression, Item
from sqlstream.units import Duration, duration

AT_WINDOW_END = "when the watermark passes the window's end"
ON_CHANGE = "updated by later rows"
IN_WINDOWS_OF_INPUT = "in the windows of its input"
ONCE_IN_ORDER = "each row once, when the watermark passes it"


def quoted_name(name: str) -> str:
    """Return the name of an operator, as it follows what kind of operator it is."""
    return f' "{name}"' if name else ""


def in_table(late_rows: str | None) -> str:
    """Return where late rows are kept, as it follows what an operator does."""
    return f" late rows in {late_rows}" if late_rows else ""


def sql_list(expressions: Iterable[Expression]) -> str:
    """Return expressions as SQL."""
    return ", ".join(e.sql for e in expressions)


def plain_list(expressions: Iterable[Expression]) -> str:
    """Return expressions as SQL with no more quotes than a reader needs."""
    return ", ".join(unquoted(e.sql) for e in expressions)


def sql_items(items: Iterable[Item]) -> str:
    """Return columns that are computed, as SQL."""
    return ", ".join(f"{i.expression.sql} AS {i.name}" for i in items)


def plain_item(item: Item) -> str:
    """Return a column that is computed, without what it is computed from where that is its own name."""
    return item.name if item.expression.column == item.name else f"{unquoted(item.expression.sql)} AS {item.name}"


def plain_call(call: AggregateItem) -> str:
    """Return a call with its name, if that says more."""
    text = unquoted(call.sql)
    return text if text == call.name else f"{text} AS {call.name}"


def typed_columns(columns: Iterable[Column]) -> str:
    """Return columns with their types."""
    return ", ".join(f"{c.name} {c.type}" for c in columns)


def shifted(column: str, by: Duration) -> str:
    """Return a time that is so much later than a column, or earlier."""
    return f"{column} {'-' if by < 0 else '+'} {duration(Duration(abs(by)))}" if by else column
