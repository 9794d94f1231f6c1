"""Creation of a Delta table from a declaration, and checks of an existing one against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.connectors.delta.location import Location, errors
from sqlstream.connectors.lakes.columns import Lakehouse, check_partitions, columns_of, created
from sqlstream.errors import UsageError

DELTA = Lakehouse(
    "Delta",
    {
        "UTINYINT": "SMALLINT",
        "USMALLINT": "INTEGER",
        "UINTEGER": "BIGINT",
        "UBIGINT": "DECIMAL(20,0)",
        "HUGEINT": "DECIMAL(38,0)",
        "UHUGEINT": "DECIMAL(38,0)",
        "UUID": "VARCHAR",
        "JSON": "VARCHAR",
    },
    ("TIME", "TIME WITH TIME ZONE", "INTERVAL", "BIT"),
)
_PARTITIONS = ("VARCHAR", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DECIMAL", "BOOLEAN", "DATE")
# Properties of a table, and of a column, with rules that every writer must follow, and this one does not implement.
_RULES = ("delta.constraints.", "delta.columnMapping.mode", "delta.enableRowTracking", "delta.enableIcebergCompat")
_COLUMN_RULES = ("delta.generationExpression", "delta.identity", "delta.invariants")


def arrow_schema(delta: Any) -> pa.Schema:
    """Return the columns of a Delta table as an Arrow schema."""
    return pa.schema(delta.schema())


def create(location: Location, table: Table, properties: Mapping[str, str]) -> None:
    """Create an empty Delta table with the declared columns; a table that exists already stays as it is.

    Raises UnsupportedError for a type that Delta cannot store, JobError if the library fails, and as `Location.check_log` does.
    """
    location.check_log()
    from deltalake import DeltaTable

    schema = created(table, DELTA)
    required = {c.name for c in table.writable if c.not_null}
    schema = pa.schema([field.with_nullable(field.name not in required) for field in schema])
    with errors(table, "creating"):
        DeltaTable.create(
            location.uri,
            schema,
            mode="ignore",
            partition_by=list(table.partitioned_by),
            configuration=dict(properties),
            storage_options=dict(location.storage),
        )


def check(delta: Any, table: Table) -> None:
    """Raise UsageError if a job cannot write a Delta table: for its properties, or its partition columns."""
    named = f'table "{table.name}"'
    for key, value in delta.metadata().configuration.items():
        if key.startswith(_RULES) and str(value).lower() not in ("none", "false"):
            message = f'{named}: the Delta table has the property "{key}", which sqlstream cannot keep to'
            raise UsageError(message, table.span, hint="Write into a table without it.")
    for field in delta.schema().fields:
        rule = next((key for key in field.metadata if key.startswith(_COLUMN_RULES)), None)
        if rule is not None:
            message = f'{named}: column "{field.name}" of the Delta table has "{rule}", which sqlstream cannot keep to'
            raise UsageError(message, table.span, hint="Write into a table without it.")
    partitions = tuple(delta.metadata().partition_columns)
    check_partitions(table, partitions, DELTA)
    for column in columns_of(arrow_schema(delta)):
        if column.name in partitions and not column.type.startswith(_PARTITIONS):
            message = (
                f'{named}: the Delta table is partitioned by "{column.name}", a {column.type}, which no job can write'
            )
            hint = "Tables can be partitioned by texts, whole numbers, decimals, booleans and dates."
            raise UsageError(message, table.span, hint=hint)
