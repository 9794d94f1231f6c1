"""Creation of an Iceberg table from a declaration, and checks of an existing one against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.connectors.iceberg.catalogs import CatalogTable, errors, pyiceberg
from sqlstream.connectors.lakes.columns import Lakehouse, check_partitions, created
from sqlstream.errors import UsageError

ICEBERG = Lakehouse(
    "Iceberg",
    {
        "TINYINT": "INTEGER",
        "SMALLINT": "INTEGER",
        "UTINYINT": "INTEGER",
        "USMALLINT": "INTEGER",
        "UINTEGER": "BIGINT",
        "UBIGINT": "DECIMAL(20,0)",
        "HUGEINT": "DECIMAL(38,0)",
        "UHUGEINT": "DECIMAL(38,0)",
        "UUID": "VARCHAR",
        "JSON": "VARCHAR",
    },
    ("TIME WITH TIME ZONE", "INTERVAL", "BIT"),
)


def arrow_schema(iceberg: Any) -> pa.Schema:
    """Return the columns of an Iceberg table as an Arrow schema."""
    return iceberg.schema().as_arrow()


def partitions_of(iceberg: Any) -> list[str]:
    """Return the source columns of a table's partition fields, whatever their transforms are."""
    schema = iceberg.schema()
    return [str(schema.find_column_name(field.source_id)) for field in iceberg.spec().fields]


def create(located: CatalogTable, properties: Mapping[str, str]) -> None:
    """Create an empty Iceberg table with the declared columns, and its namespace; an existing table stays as it is.

    Raises UnsupportedError for a type that Iceberg cannot store, JobError if the library fails.
    """
    table, library = located.table, pyiceberg(located.table)
    catalog, schema = located.load_catalog(), created(table, ICEBERG)
    with errors(table, "creating"):
        namespace = located.name.rpartition(".")[0]
        if namespace:
            catalog.create_namespace_if_not_exists(namespace)
        try:
            transaction = catalog.create_table_transaction(located.name, schema, properties=dict(properties))
            with transaction, transaction.update_spec() as spec:
                for column in table.partitioned_by:
                    spec.add_identity(column)
        except library.exceptions.TableAlreadyExistsError:
            pass


def check(iceberg: Any, table: Table) -> None:
    """Raise UsageError if a job cannot write an Iceberg table: for its partitions, format version, or required columns."""
    transforms = [str(field.transform) for field in iceberg.spec().fields]
    if any(transform != "identity" for transform in transforms):
        partitions = ", ".join(transforms)
        message = f'table "{table.name}": the Iceberg table is partitioned by {partitions}, which no job can write'
        raise UsageError(
            message, table.span, hint="Only tables that are partitioned by columns as they are can be written."
        )
    check_partitions(table, partitions_of(iceberg), ICEBERG)
    if iceberg.metadata.format_version < 2:
        message = f'table "{table.name}": the Iceberg table has format version 1, which is too old'
        raise UsageError(message, table.span, hint="Upgrade it to version 2.")
    required = [field.name for field in iceberg.schema().fields if field.required]
    if required and not table.primary_key:
        message = f'table "{table.name}": column "{required[0]}" of the Iceberg table is required, and jobs write optional ones'
        hint = "Files that DuckDB writes have optional columns only, which Iceberg refuses: make it optional."
        raise UsageError(message, table.span, hint=hint)
