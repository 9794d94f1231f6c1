"""Raw values: each is a row of one column, see `raw_codec`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.decoded import bytes_of
from sqlstream.connectors.formats.raw_codec import NO_TEXT, RawCodec
from sqlstream.connectors.read_plan import VALUE, WRONG
from sqlstream.duck.sql import Relation, quote_name, quote_text

_numbers = itertools.count()


def raw_values(
    con: duckdb.DuckDBPyConnection,
    values: Relation,
    table: Table,
    columns: Sequence[Column],
    passthrough: Sequence[str],
) -> Relation:
    """Return the marked rows of values, each of them bytes, see `ReadValues`."""
    items, wrong = list(passthrough), "CAST(NULL AS VARCHAR)"
    for column in columns:
        codec = RawCodec.of(column.type, table.options)
        if codec.needs_python:
            return _texts(con, values, codec, column, passthrough)
        items.append(f"{codec.decoded(VALUE)} AS {quote_name(column.name)}")
        wrong = codec.fault(VALUE)
    return Relation(f"(SELECT {', '.join(items)}, {wrong} AS {WRONG} FROM {values})")


def _texts(
    con: duckdb.DuckDBPyConnection, values: Relation, codec: RawCodec, column: Column, passthrough: Sequence[str]
) -> Relation:
    """Return the marked rows of texts that Python decodes."""
    encoded, others = bytes_of(con, values, passthrough)
    texts = [None if value is None else codec.text(value) for value in encoded]
    wrong = pa.array(
        [value is not None and text is None for value, text in zip(encoded, texts, strict=True)], pa.bool_()
    )
    name = Relation(f"_raw_texts_{next(_numbers)}")
    con.register(
        name, others.append_column("_raw_text", pa.array(texts, pa.large_string())).append_column("_raw_wrong", wrong)
    )
    items = [*passthrough, f"_raw_text AS {quote_name(column.name)}"]
    why = f"CASE WHEN _raw_wrong THEN {quote_text(NO_TEXT)} END"
    return Relation(f"(SELECT {', '.join(items)}, {why} AS {WRONG} FROM {name})")
