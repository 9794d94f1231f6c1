"""The SQL of LATERAL and UNNEST: each row joined with the rows that are computed from it."""

from __future__ import annotations

from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Select, quote_name
from sqlstream.logical.plan.relational import Elements, Lateral

_LIST, _ELEMENT, _NUMBER = internal("list"), internal("element"), internal("number")


def with_made_rows(node: Lateral, rows: Select) -> Select:
    """Return each row of `rows` joined with the rows that the node computes from it.

    A row for which it computes none is left out or, if the node is `outer`, stays with NULLs.
    """
    if isinstance(node.rows, Elements):
        return _with_elements(node, node.rows, rows)
    joined = f"{'LEFT' if node.outer else 'INNER'} JOIN LATERAL ({node.rows.sql}) AS _made ON TRUE"
    return Select(f"SELECT * FROM ({rows}) AS _row {joined}")


def _with_elements(node: Lateral, elements: Elements, rows: Select) -> Select:
    # In a select list UNNEST computes the list once for each row, also where it is random; a join would compute it once for
    # equal rows, and for all of them before.
    if node.outer or elements.numbered:
        values, numbers = _LIST, f"range(1, len({_LIST}) + 1)"
        if node.outer:
            values, numbers = (f"if(len({_LIST}) > 0, {sql}, [NULL])" for sql in (values, numbers))
        items = f"unnest({values}) AS {_ELEMENT}"
        items += f", unnest({numbers}) AS {_NUMBER}" if elements.numbered else ""
        select = f"SELECT * EXCLUDE ({_LIST}), {items} FROM (SELECT *, {elements.values.sql} AS {_LIST} FROM ({rows}))"
    else:
        select = f"SELECT *, unnest({elements.values.sql}) AS {_ELEMENT} FROM ({rows})"
    number = [_NUMBER] if elements.numbered else []
    parts = len(node.columns) - len(number)
    fields = [f"struct_extract_at({_ELEMENT}, {i})" for i in range(1, parts + 1)] if elements.fields else [_ELEMENT]
    named = zip([*fields, *number], node.columns, strict=True)
    columns = ", ".join(f"{sql} AS {quote_name(column.name)}" for sql, column in named)
    return Select(f"SELECT * EXCLUDE ({', '.join([_ELEMENT, *number])}), {columns} FROM ({select})")
