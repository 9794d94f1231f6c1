"""Values of binary formats that were decoded into Arrow, as a relation of a table's columns."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.parquet_types import conversion, may_not_fit, unfit
from sqlstream.connectors.read_plan import VALUE, WRONG
from sqlstream.duck.sql import Relation, Select, quote_name, quote_text, subquery, union_all
from sqlstream.errors import DataError

if TYPE_CHECKING:
    import duckdb

_FIELD, _REASON = "_field_", "_reason"
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class DecodedValues:
    """The decoded values of one schema.

    `rows` has a column per field and a row per value; `numbers` are the values' indexes among all values, from 0. `faults` maps
    the index of a value that could not be decoded to the reason. `schema` names the schema in messages. `names` maps columns to
    fields with another name, both in lower case. `untyped` maps fields that cannot be columns to their types.
    """

    schema: str
    rows: pa.Table
    numbers: Sequence[int]
    faults: Mapping[int, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    untyped: Mapping[str, str] = field(default_factory=dict)


def bytes_of(
    con: duckdb.DuckDBPyConnection, values: Relation, passthrough: Sequence[str]
) -> tuple[list[bytes], pa.Table]:
    """Return the column VALUE of `values` as a list of bytes, and its columns `passthrough`."""
    rows = con.sql(f"SELECT {', '.join([VALUE, *passthrough])} FROM {values}").to_arrow_table()
    return rows.column(0).to_pylist(), rows.remove_column(0)


def relation(
    con: duckdb.DuckDBPyConnection,
    table: Table,
    columns: Sequence[Column],
    passthrough: pa.Table,
    decoded: Sequence[DecodedValues],
    defaults: Mapping[str, str],
) -> Relation:
    """Return marked rows: the columns of `passthrough`, the table's `columns`, and WRONG.

    `passthrough` has a row per value, and `decoded` the values by their schemas. If a schema lacks the field of a column, the
    column has the SQL in `defaults`, by its name in lower case, or NULL. Raises DataError for a field whose type does not fit its
    column, or that has no type in SQL.
    """
    selects = [_rows(con, table, columns, passthrough, group, defaults) for group in decoded if len(group.numbers)]
    faults = {number: why for group in decoded for number, why in group.faults.items()}
    if faults or not selects:
        reasons = pa.array(list(faults.values()), pa.string())
        name = _register(
            con, passthrough.take(list(faults)).append_column(_REASON, reasons) if faults else _none(passthrough)
        )
        nulls = [f"CAST(NULL AS {c.type}) AS {quote_name(c.name)}" for c in columns]
        items = ", ".join([*passthrough.column_names, *nulls, f"{_REASON} AS {WRONG}"])
        selects.append(Select(f"SELECT {items} FROM {name}"))
    return subquery(union_all(selects))


def _none(passthrough: pa.Table) -> pa.Table:
    return passthrough.slice(0, 0).append_column(_REASON, pa.array([], pa.string()))


def _rows(
    con: duckdb.DuckDBPyConnection,
    table: Table,
    columns: Sequence[Column],
    passthrough: pa.Table,
    group: DecodedValues,
    defaults: Mapping[str, str],
) -> Select:
    fields = {name.lower(): number for number, name in enumerate(group.rows.column_names)}
    renamed = group.rows.rename_columns([f"{_FIELD}{number}" for number in range(group.rows.num_columns)])
    whole = (
        passthrough
        if len(group.numbers) == passthrough.num_rows
        else passthrough.take(pa.array(group.numbers, pa.int64()))
    )
    for number, name in enumerate(renamed.column_names):
        whole = whole.append_column(name, renamed.column(number))
    registered = _register(con, whole)
    types = dict(zip(whole.column_names, con.sql(f"FROM {registered}").types, strict=True))
    items, cases = list(passthrough.column_names), list[str]()
    for column in columns:
        name = column.name.lower()
        field_name = group.names.get(name, name)
        index = fields.get(field_name)
        if field_name in group.untyped:
            message = f'column "{column.name}" of table "{table.name}": its field in {group.schema} has no type in SQL'
            raise DataError(message, detail=f"It is: {group.untyped[field_name]}.", hint="Leave the column out.")
        if index is None:
            item: str | None = f"CAST({defaults.get(name, 'NULL')} AS {column.type})"
        else:
            field_type = types[f"{_FIELD}{index}"]
            item = conversion(f"{_FIELD}{index}", field_type, con.sqltype(column.type))
            if item is None:
                message = f'column "{column.name}" of table "{table.name}" is {column.type}'
                hint = f"Declare it as {field_type}, and convert it in the query."
                raise DataError(f"{message}, and {field_type} in {group.schema}", hint=hint)
            if may_not_fit(field_type, con.sqltype(column.type)):
                cases.append(unfit(f"{_FIELD}{index}", item, column))
                item = f"TRY({item})"
        items.append(f"{item} AS {quote_name(column.name)}")
    why = f"CASE {' '.join(cases)} END" if cases else "CAST(NULL AS VARCHAR)"
    return Select(f"SELECT {', '.join(items)}, {why} AS {WRONG} FROM {registered}")


def _register(con: duckdb.DuckDBPyConnection, rows: pa.Table) -> Relation:
    name = Relation(f"_decoded_{next(_numbers)}")
    con.register(name, rows)
    return name


def literal(value: object) -> str:
    """Return a value of JSON as an SQL literal."""
    match value:
        case None:
            return "NULL"
        case bool() | int() | float():
            return str(value).lower()
        case list():
            return f"[{', '.join(map(literal, value))}]"
        case dict():
            return f"{{{', '.join(f'{quote_text(str(k))}: {literal(v)}' for k, v in value.items())}}}"
    return quote_text(str(value))
