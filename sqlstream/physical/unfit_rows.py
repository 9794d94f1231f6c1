"""The SQL that finds malformed rows of a scan: rows in which a query reads a text as a number, and it is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlstream.duck.internal_columns import ROW
from sqlstream.duck.sql import Items, Select, quote_name, union_all
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.month_windows import MonthWindows
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.relational import Expand, Filter, Lateral, Projection, Union
from sqlstream.logical.plan.tables import ResultSink, Scan
from sqlstream.logical.plan.windows import RegularWindows
from sqlstream.physical.lateral import with_made_rows
from sqlstream.physical.windows import in_windows


def unfit_rows(sinks: Sequence[ResultSink], of: Scan) -> tuple[Select, ...]:
    """Return SELECTs of the column ROW of such rows, over an `_input` that has the columns of the scan, and ROW.

    There are none for filters above an operator, whose rows are not those of a table.
    """
    filters = (node for sink in sinks for node in walk(sink) if isinstance(node, Filter))
    return tuple(dict.fromkeys(select for node in filters for select in _unfit(node, of)))


def _unfit(node: Filter, of: Scan) -> Iterator[Select]:
    if node.unfit is None or node.reads_watermark:
        return
    rows = _path(node.input, of)
    if rows is not None:
        yield Select(f"SELECT {ROW.name} FROM ({rows}) WHERE {node.unfit.sql}")


def _path(node: Node, of: Scan) -> Select | None:
    """Return the rows of a node, each with the number of the row of the scan that it was made of; None above an operator."""
    match node:
        case Scan():
            return Select("SELECT * FROM _input") if node.is_same(of) else None
        case Filter() if (rows := _path(node.input, of)) is not None:
            return Select(f"SELECT * FROM ({rows}) WHERE {node.predicate.sql}")
        case Projection() if (rows := _path(node.input, of)) is not None:
            items = Items(", ".join(f"{i.expression.sql} AS {quote_name(i.name)}" for i in node.items))
            return Select(f"SELECT {items}, {ROW.name} FROM ({rows})")
        case RegularWindows() | MonthWindows() if (rows := _path(node.input, of)) is not None:
            return in_windows(node, rows)
        case Expand() if (rows := _path(node.input, of)) is not None:
            numbers = ", ".join(map(str, node.numbers))
            return Select(f"SELECT *, unnest([{numbers}]) AS {quote_name(node.column)} FROM ({rows})")
        case Union():
            parts = [part for child in node.inputs if (part := _renamed(child, node, of)) is not None]
            return union_all(parts) if parts else None
        case Lateral() if (rows := _path(node.input, of)) is not None:
            return with_made_rows(node, rows)
        case _:
            return None


def _renamed(child: Node, union: Union, of: Scan) -> Select | None:
    """Return the rows of an input of a union under the names of the union."""
    rows = _path(child, of)
    if rows is None:
        return None
    pairs = zip(child.schema, union.schema, strict=True)
    items = ", ".join(f"{quote_name(own.name)} AS {quote_name(field.name)}" for own, field in pairs)
    return Select(f"SELECT {items}, {ROW.name} FROM ({rows})")
