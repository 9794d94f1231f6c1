"""Results with a key in a Delta table: the driver merges the net changes of each batch, as one version."""

from __future__ import annotations

from typing import Any

from sqlstream.catalog import Table
from sqlstream.connectors.batch import Batch
from sqlstream.connectors.delta.commits import Transactions
from sqlstream.connectors.delta.location import Location
from sqlstream.connectors.delta.schema import DELTA, arrow_schema
from sqlstream.connectors.interface import BatchWriter, SinkContext
from sqlstream.connectors.lakes.columns import items, stored
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Select, quote_name

_GONE = internal("gone")


class MergeWriter(BatchWriter):
    """Merges batches into a Delta table: upserts rows by key, and deletes the rows whose keys are gone."""

    def __init__(self, table: Table, context: SinkContext):
        self._location = Location.of(table, context.project)
        self._transactions = Transactions(self._location, context)
        delta = self._location.open()
        self._columns = stored(arrow_schema(delta), table, DELTA)
        keys = {name.lower() for name in table.primary_key}
        self._keys = [c for c in self._columns if c.name.lower() in keys]
        required = {c.name.lower() for c in table.columns if c.not_null}
        self._predicate = " AND ".join(_same(c.name, nullable=c.name.lower() not in required) for c in self._keys)

    def recover(self) -> None:
        self._transactions.recover()

    def write(self, batch: Batch) -> None:
        """Merge the net changes of a batch as one version. Do nothing if the table already has the batch, or nothing changed."""
        rows = f"SELECT {items(self._columns)}, false AS {_GONE} FROM ({batch.upserts()})"
        gone = f"SELECT {items(self._keys)}, true AS {_GONE} FROM ({batch.deletes()})"
        changes = batch.table(Select(f"{rows} UNION ALL BY NAME {gone}"))
        if not changes.num_rows:
            return
        # A merge reads files that the log names, and writes files below the folder.
        self._location.check_folder()
        names = {quote_name(c.name): f"s.{quote_name(c.name)}" for c in self._columns}

        def merge(delta: Any, properties: Any) -> None:
            self._location.check_data(delta)
            (
                delta.merge(changes, self._predicate, source_alias="s", target_alias="t", commit_properties=properties)
                .when_matched_delete(f"s.{_GONE}")
                .when_matched_update(names)
                .when_not_matched_insert(names, predicate=f"NOT s.{_GONE}")
                .execute()
            )

        self._transactions.commit(batch.number, merge)


def _same(name: str, *, nullable: bool) -> str:
    """Return the condition that rows `t` and `s` are equal in a column.

    NULL equals NULL in a nullable column; the plain `=` of other columns lets the library skip files.
    """
    ours, theirs = f"t.{quote_name(name)}", f"s.{quote_name(name)}"
    return f"({ours} IS NOT DISTINCT FROM {theirs})" if nullable else f"{ours} = {theirs}"
