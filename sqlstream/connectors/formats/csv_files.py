"""CSV files and values: columns by position, or by the names in the header of a file."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.csv_records import field_names, marked_fields, row_of
from sqlstream.connectors.formats.csv_rows import csv_layout, csv_syntax
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.formats.malformed import does_not_hold, skips
from sqlstream.connectors.formats.whole_numbers import as_text, fraction, whole
from sqlstream.connectors.read_plan import VALUE, WRONG, ReadPlan
from sqlstream.duck.sql import Items, Relation, Select, quote_name, quote_text, subquery, union_all
from sqlstream.duck.text_files import duckdb_paths

_rejects = itertools.count()


def read_csv(
    con: duckdb.DuckDBPyConnection,
    splits: Sequence[FileSplit],
    table: Table,
    columns: Sequence[Column],
    copies: Mapping[str, str],
) -> ReadPlan:
    """Return the plan that reads CSV files with DuckDB's reader, see `ReadFiles`. `copies` is ignored."""
    options = [*csv_syntax(table.options), "hive_partitioning = false"]
    rejects = list[tuple[str, str]]()
    if skips(table):
        number = next(_rejects)
        rejects = [(f"_rejects_{number}", f"_reject_scans_{number}")]
        [(rows, scans)] = rejects
        options.append(f"store_rejects = true, rejects_table = '{rows}', rejects_scan = '{scans}'")
    layouts: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for split in splits:
        layouts.setdefault(csv_layout(split, table), []).append(split.path)
    typed = [(c, con.sqltype(c.type)) for c in columns]
    texts = {c.name: text for c, type_ in typed if (text := as_text(type_))}
    items, where = whole(typed)
    if rejects:
        items, where = _marked(typed), ""
    selects = []
    for layout, paths in layouts.items():
        types = ", ".join(f"{quote_text(name)}: {quote_text(texts.get(name, type_))}" for name, type_ in layout)
        arguments = ", ".join([duckdb_paths(paths), f"columns = {{{types}}}", *options])
        selects.append(Select(f"SELECT {items} FROM read_csv({arguments}){where}"))
    sql = union_all(selects)
    return ReadPlan.of_marked(sql, rejects, keep=True) if rejects else ReadPlan(sql, keep=True)


def csv_values(
    con: duckdb.DuckDBPyConnection,
    values: Relation,
    table: Table,
    columns: Sequence[Column],
    passthrough: Sequence[str],
) -> Relation:
    """Return the marked rows of values, each of them a CSV record, see `ReadValues`."""
    value_rows = con.sql(f"SELECT {', '.join([*passthrough, VALUE])} FROM {values}").to_arrow_table()
    declared = table.stored
    names = field_names(len(declared))
    records = [row_of(text or "", table.options, len(declared)) for text in value_rows.column(VALUE).to_pylist()]
    record_rows = value_rows.drop_columns([VALUE]).append_column(
        "_fault", pa.array([fault for _, fault in records], pa.string())
    )
    for n, name in enumerate(names):
        record_rows = record_rows.append_column(name, pa.array([fields[n] for fields, _ in records], pa.string()))
    relation = Relation(f"_records_{next(_rejects)}")
    con.register(relation, record_rows)
    field_columns = [(name, column) for name, column in zip(names, declared, strict=True) if column in columns]
    return subquery(marked_fields(con, relation, field_columns, passthrough, "_fault"))


def _marked(columns: Sequence[tuple[Column, Any]]) -> Items:
    """Return columns that were read as `as_text` says, and WRONG."""
    items, cases = [], []
    for column, type_ in columns:
        name = quote_name(column.name)
        if as_text(type_) is None:
            items.append(name)
            continue
        value = f"TRY_CAST({name} AS {column.type})"
        items.append(f"{value} AS {name}")
        wrong = [f"{name} IS NOT NULL AND {value} IS NULL", *filter(None, [fraction(name, type_)])]
        cases.append(f"WHEN {' OR '.join(wrong)} THEN {quote_text(does_not_hold(column))}")
    reason = f"CASE {' '.join(cases)} END" if cases else "CAST(NULL AS VARCHAR)"
    return Items(", ".join([*(items or ["1"]), f"{reason} AS {WRONG}"]))
