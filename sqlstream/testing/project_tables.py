"""Tables of a project in a test: without their connectors, so that the test feeds and queries them."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from sqlstream.catalog import OP_COLUMN, Table
from sqlstream.connectors.options import SCAN_OPTIONS
from sqlstream.connectors.registry import connector_of
from sqlstream.errors import SqlStreamError, UsageError

_OPTIONS = {OP_COLUMN, *(option.name for option in SCAN_OPTIONS)}


def without_connector(table: Table, keep: Container[str] = ()) -> Table:
    """Return a table without its connector, unless `keep` has its name, in lower case, or it is only for lookups.

    A table of changes needs a column with the kind of change. If only its connector tells the kinds apart, the table gets a
    `problem`: reading it is an error.
    """
    if table.connector is None or table.name.lower() in keep or _is_lookup(table):
        return table
    problem = None
    if table.has_changes and table.operation is None:
        hint = f"Declare it in the test, with a column for '{OP_COLUMN}'; or keep it: Stream.project(.., keep=[..])."
        message = f'table "{table.name}" has changes, which "{table.connector}" tells apart: rows cannot be fed'
        problem = UsageError(message, table.span, hint=hint)
    return replace(
        table,
        columns=tuple(replace(c, metadata=None, virtual=False) for c in table.columns),
        options={name: value for name, value in table.options.items() if name in _OPTIONS},
        partitioned_by=(),
        implementation=None,
        problem=problem,
        changing=False,
        writes_metadata=frozenset(),
        option_spans={},
    )


def _is_lookup(table: Table) -> bool:
    try:
        connector = connector_of(table)
        return connector.lookup(table) is not None and connector.source(table) is None and connector.sink(table) is None
    except SqlStreamError:
        return False
