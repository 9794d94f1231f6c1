"""Results with a key in an Iceberg table: the driver replaces the rows of a batch's keys in one commit.

The library deletes the rows that match a filter. For a single key column the filter is exact. For several key columns it also
matches rows with other keys, which the same commit writes again. For a batch of many keys, a filter of all values would be slow,
because the library makes several Python objects of each. So if the table is not much larger than the batch, the filter has only
the bounds of the keys, and the other rows within the bounds are written again, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from importlib import import_module
from typing import Any

import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.connectors.batch import Batch
from sqlstream.connectors.iceberg.catalogs import CatalogTable, errors
from sqlstream.connectors.iceberg.commits import BatchProperty
from sqlstream.connectors.iceberg.schema import ICEBERG, arrow_schema
from sqlstream.connectors.interface import BatchWriter, SinkContext
from sqlstream.connectors.lakes.columns import items, stored
from sqlstream.duck import databases
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Select, quote_name

_FOUND, _KEYS = internal("found"), internal("keys")
# The length of the longest list of values by which the library skips files.
_LISTED = 200
# From _MANY keys on the filter consists of bounds, in a table of at most _ROWS_PER_KEY rows for each key: all rows between the
# bounds are in memory then.
_MANY, _ROWS_PER_KEY = 10_000, 20


class UpsertWriter(BatchWriter):
    """Writes batches into an Iceberg table: replaces rows by key, and deletes the rows whose keys are gone."""

    def __init__(self, table: Table, context: SinkContext):
        self._table, self._located = table, CatalogTable.of(table, context.project)
        self._commits = BatchProperty(self._located, context)
        iceberg = self._located.open()
        self._schema = arrow_schema(iceberg)
        self._columns = stored(self._schema, table, ICEBERG)
        keys = {name.lower() for name in table.primary_key}
        self._keys = [c for c in self._columns if c.name.lower() in keys]

    def recover(self) -> None:
        self._commits.recover()

    def write(self, batch: Batch) -> None:
        """Write the net changes of a batch in one commit. Do nothing if the table already has the batch, or nothing changed."""
        rows = batch.table(Select(f"SELECT {items(self._columns)} FROM ({batch.upserts()})"))
        gone = batch.table(Select(f"SELECT {items(self._keys)} FROM ({batch.deletes()})"))
        names = [c.name for c in self._keys]
        keys = pa.concat_tables([rows.select(names), gone])
        if not keys.num_rows:
            return

        def replace(transaction: Any, summary: Any) -> None:
            new = self._complete(rows)
            if (there := self._commits.opened.current_snapshot()) is None:
                transaction.append(new, snapshot_properties=summary)
                return
            total = there.summary.get("total-records") if there.summary is not None else None
            many = keys.num_rows >= _MANY and total is not None and int(total) <= _ROWS_PER_KEY * keys.num_rows
            row_filter = matching(keys, by_bounds=many)
            if len(names) > 1 or many:
                new = pa.concat_tables([new, self._others(row_filter, keys)])
            transaction.overwrite(new, overwrite_filter=row_filter, snapshot_properties=summary)

        self._commits.commit(batch.number, replace)

    def _others(self, row_filter: Any, keys: pa.Table) -> pa.Table:
        """Return the rows of the table that match a filter and have none of the keys."""
        with errors(self._table, "reading"):
            rows = self._commits.opened.scan(row_filter=row_filter).to_arrow()
        same = " AND ".join(
            f"f.{quote_name(name)} IS NOT DISTINCT FROM k.{quote_name(name)}" for name in keys.column_names
        )
        with databases.passing() as con:
            con.register(_FOUND, rows)
            con.register(_KEYS, keys)
            others = con.sql(f"SELECT * FROM {_FOUND} AS f ANTI JOIN {_KEYS} AS k ON {same}").to_arrow_table()
            con.unregister(_FOUND)
            con.unregister(_KEYS)
        return others.cast(self._schema)

    def _complete(self, rows: pa.Table) -> pa.Table:
        """Return rows with all columns of the Iceberg table, in its order; columns that they lack are NULL."""
        missing = [field for field in self._schema if field.name not in rows.column_names]
        for field in missing:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        return rows.select(self._schema.names).cast(self._schema)


def matching(keys: pa.Table, *, by_bounds: bool = False) -> Any:
    """Return the library's filter for the rows of keys, a table with the key columns.

    It is exact for one column; for several, or with `by_bounds`, it may match more rows.
    """
    filters: Any = import_module("pyiceberg.expressions")
    values = {name: keys[name].to_pylist() for name in keys.column_names}
    return reduce(filters.And, [_condition(filters, name, of, by_bounds) for name, of in values.items()])


def _condition(filters: Any, name: str, values: Sequence[Any], by_bounds: bool) -> Any:
    distinct = {value for value in values if value is not None}
    if not distinct:
        return filters.IsNull(name)
    if len(distinct) <= _LISTED:
        condition = filters.In(name, distinct)
    else:
        condition = filters.And(
            filters.GreaterThanOrEqual(name, min(distinct)), filters.LessThanOrEqual(name, max(distinct))
        )
        if not by_bounds:
            condition = filters.And(condition, filters.In(name, distinct))
    return filters.Or(condition, filters.IsNull(name)) if None in values else condition
