"""Changes as people read them: +I a row is inserted, -D it is deleted, -U and +U a row before and after an update."""

from __future__ import annotations

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Select, names, quote_name, quote_text, typed
from sqlstream.physical.plan import SinkPlan
from sqlstream.storage.zsets import WEIGHT

OPERATION = internal("printed_op")


def changelog(sink: SinkPlan, file: str) -> Select:
    """Return the changes in a Parquet file of a batch: OPERATION (`+I`, ..), then the columns of the sink.

    A row appears as often as its weight says. Updates are recognized by the sink's keys; without keys all are -D and +I.
    """
    columns = [Column(name, type) for name, type in sink.columns]
    items = typed(columns)
    rows = f"read_parquet({quote_text(file)})"
    if not sink.changing:
        return Select(f"SELECT '+I' AS {OPERATION}, {items} FROM {rows}")
    if sink.keys:
        group = f"PARTITION BY {names(Column(k, '') for k in sink.keys)}"
        updated = f"min({WEIGHT}) OVER ({group}) < 0 AND max({WEIGHT}) OVER ({group}) > 0"
    else:
        updated = "false"
    copies = f"SELECT {items}, {WEIGHT}, unnest(range(abs({WEIGHT}))) FROM {rows}"
    operation = f"CASE WHEN {WEIGHT} < 0 THEN if({updated}, '-U', '-D') ELSE if({updated}, '+U', '+I') END"
    order = ", ".join([*map(quote_name, sink.keys), WEIGHT, names(columns)])
    return Select(f"SELECT {operation} AS {OPERATION}, {names(columns)} FROM ({copies}) ORDER BY {order}")
