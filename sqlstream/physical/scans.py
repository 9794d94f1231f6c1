"""The SQL of scans: columns, changes and positions of rows in files, and the tables for malformed rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlstream.catalog import DEBEZIUM, Column, Table
from sqlstream.connectors.formats.changelogs import changes_of, weight
from sqlstream.connectors.formats.malformed import COLUMNS as MALFORMED
from sqlstream.connectors.formats.malformed import errors_to, no_value, skips
from sqlstream.duck.internal_columns import ADDS, CHANGE, FILE_ORDER, ROW
from sqlstream.duck.sql import Relation, Select, quote_name, quote_text
from sqlstream.errors import BindError
from sqlstream.physical.plan import ScanStage, SinkPlan
from sqlstream.storage.zsets import WEIGHT


def scanned(table: Table) -> Select:
    """Return a table's visible columns, the computed ones too, over `_input`.

    A table of changes also has the column CHANGE, then FILE_ORDER with a PRIMARY KEY, WEIGHT without one.
    """
    columns = [
        _read(c, table) if c.expression is None else f"{c.expression} AS {quote_name(c.name)}" for c in table.visible
    ]
    if not table.has_changes:
        return Select(f"SELECT {', '.join(columns)} FROM _input")
    more = [c.name for c in (CHANGE, *FILE_ORDER)] if table.primary_key else [CHANGE.name, f"{weight()} AS {WEIGHT}"]
    return Select(f"SELECT {', '.join([*columns, *more])} FROM ({changes_of(table, Relation('_input'))})")


def _read(column: Column, table: Table) -> str:
    """Return the select item of a column that is read; NULL in a NOT NULL column is an error, unless such rows are skipped."""
    value = quote_name(column.name)
    if not column.not_null or skips(table):
        return value
    # A delete needs its key alone.
    lacks = f"{value} IS NULL AND {ADDS}" if table.has_changes else f"{value} IS NULL"
    why = no_value(column.name)
    return f"CASE WHEN {lacks} THEN error({quote_text(why[0].lower() + why[1:])}) ELSE {value} END AS {value}"


def numbered(table: Table) -> Select:
    """Return `scanned` with the column ROW, each row's number in its file."""
    if not (table.has_changes and table.primary_key):
        return scanned(replace(table, columns=(*table.columns, ROW)))
    # A row of the file, an envelope, is two changes.
    envelope = table.options.get("format", "").lower() == DEBEZIUM
    return Select(f"SELECT * REPLACE ({ROW.name} // {2 if envelope else 1} AS {ROW.name}) FROM ({scanned(table)})")


def keeping_malformed(scans: Sequence[ScanStage], sinks: dict[str, SinkPlan]) -> tuple[ScanStage, ...]:
    """Return the scans with `errors` set where a table declares `errors-to`; the sinks for malformed rows are added to `sinks`.

    `sinks` are by table name, in lower case. Of scans of a table with the same options one keeps the malformed rows. Raises
    BindError if the job also writes results into the table that `errors-to` names.
    """
    tables, stages = list[Table](), []
    for scan in scans:
        name = errors_to(scan.table)
        assert scan.node is not None
        if name is not None and scan.node.table not in tables:
            tables.append(scan.node.table)
            table = Table(name, MALFORMED)
            columns = tuple((c.name, c.type) for c in MALFORMED)
            sink = sinks.setdefault(name.lower(), SinkPlan(table, columns, malformed=True))
            if not sink.malformed:
                message = f'table "{scan.table.name}": malformed rows cannot go into "{name}", which the job writes'
                raise BindError(message, scan.table.span, hint="Give their table another name.")
            scan = replace(scan, errors=list(sinks).index(name.lower()))
        stages.append(scan)
    return tuple(stages)
