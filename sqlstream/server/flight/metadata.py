"""Metadata for clients: catalogs, schemas, tables with their columns, keys."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from sqlstream.duck.sql import quote_name
from sqlstream.server.flight.messages import optional_text
from sqlstream.server.flight.sql_info import SQL_INFO_SCHEMA, sql_info
from sqlstream.server.listed_tables import ListedTable

# The catalog of tables without a database of their own (state has one): a query may name it.
_CATALOG = "memory"
TABLE, VIEW = "TABLE", "VIEW"


def _schema(**columns: pa.DataType) -> pa.Schema:
    """Return a schema; the suffix `_not_null` of a name marks a column without NULLs."""
    return pa.schema(
        [pa.field(n.removesuffix("_not_null"), t, not n.endswith("_not_null")) for n, t in columns.items()]
    )


_TEXT = pa.string()
_FOREIGN = _schema(
    pk_catalog_name=_TEXT,
    pk_db_schema_name=_TEXT,
    pk_table_name_not_null=_TEXT,
    pk_column_name_not_null=_TEXT,
    fk_catalog_name=_TEXT,
    fk_db_schema_name=_TEXT,
    fk_table_name_not_null=_TEXT,
    fk_column_name_not_null=_TEXT,
    key_sequence_not_null=pa.int32(),
    fk_key_name=_TEXT,
    pk_key_name=_TEXT,
    update_rule_not_null=pa.uint8(),
    delete_rule_not_null=pa.uint8(),
)
_TABLES = _schema(catalog_name=_TEXT, db_schema_name=_TEXT, table_name_not_null=_TEXT, table_type_not_null=_TEXT)
_SCHEMAS: Mapping[str, pa.Schema] = {
    "CommandGetCatalogs": _schema(catalog_name_not_null=_TEXT),
    "CommandGetDbSchemas": _schema(catalog_name=_TEXT, db_schema_name_not_null=_TEXT),
    "CommandGetTables": _TABLES,
    "CommandGetTableTypes": _schema(table_type_not_null=_TEXT),
    "CommandGetSqlInfo": SQL_INFO_SCHEMA,
    "CommandGetPrimaryKeys": _schema(
        catalog_name=_TEXT,
        db_schema_name=_TEXT,
        table_name_not_null=_TEXT,
        column_name_not_null=_TEXT,
        key_name=_TEXT,
        key_sequence_not_null=pa.int32(),
    ),
    "CommandGetExportedKeys": _FOREIGN,
    "CommandGetImportedKeys": _FOREIGN,
    "CommandGetCrossReference": _FOREIGN,
    "CommandGetXdbcTypeInfo": _schema(
        type_name_not_null=_TEXT,
        data_type_not_null=pa.int32(),
        column_size=pa.int32(),
        literal_prefix=_TEXT,
        literal_suffix=_TEXT,
        create_params=pa.list_(pa.field("item", _TEXT, False)),
        nullable_not_null=pa.int32(),
        case_sensitive_not_null=pa.bool_(),
        searchable_not_null=pa.int32(),
        unsigned_attribute=pa.bool_(),
        fixed_prec_scale_not_null=pa.bool_(),
        auto_increment=pa.bool_(),
        local_type_name=_TEXT,
        minimum_scale=pa.int32(),
        maximum_scale=pa.int32(),
        sql_data_type_not_null=pa.int32(),
        datetime_subcode=pa.int32(),
        num_prec_radix=pa.int32(),
        interval_precision=pa.int32(),
    ),
}


def schema_of(name: str, command: Any) -> pa.Schema | None:
    """Return the columns of the answer to a command; None for a command that this module does not answer."""
    if name == "CommandGetTables" and command.include_schema:
        return _TABLES.append(pa.field("table_schema", pa.binary(), False))
    return _SCHEMAS.get(name)


def catalog_and_schema(table: ListedTable) -> tuple[str, str]:
    """Return the catalog and the schema of a table.

    >>> catalog_and_schema(ListedTable("state.by.hour", "counts", ())), catalog_and_schema(ListedTable("sqlstream", "jobs", ()))
    (('state', 'by.hour'), ('memory', 'sqlstream'))
    """
    catalog, dot, schema = table.schema.partition(".")
    return (catalog, schema) if dot else (_CATALOG, catalog)


class Metadata:
    """Answers commands about tables; `tables` lists them."""

    def __init__(self, tables: Callable[[], Sequence[ListedTable]]):
        self._tables = tables
        self._types = duckdb.connect(config={"threads": 1})
        self._types.execute("SET TimeZone = 'UTC'")
        self._typing = threading.Lock()

    def answer(self, name: str, command: Any) -> pa.Table:
        """Return the answer to a command for which `schema_of` has columns, as sorted rows. Raises SqlStreamError."""
        schema = schema_of(name, command)
        assert schema is not None
        match name:
            case "CommandGetSqlInfo":
                return sql_info(set(command.info))
            case "CommandGetCatalogs":
                rows: set[tuple[Any, ...]] = {(catalog_and_schema(t)[0],) for t in self._tables()} | {(_CATALOG,)}
            case "CommandGetDbSchemas":
                rows = {(c, s) for c, s in map(catalog_and_schema, self._tables()) if _fits(command, c, s)}
            case "CommandGetTableTypes":
                rows = {(TABLE,), (VIEW,)}
            case "CommandGetTables":
                rows = {self._row(t, command.include_schema) for t in self._tables() if _is_asked_for(command, t)}
            case _:
                # There are no keys. The types are in the columns of tables.
                rows = set()
        columns = zip(*sorted(rows), strict=True) if rows else [()] * len(schema)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)

    def _row(self, table: ListedTable, with_schema: bool) -> tuple[Any, ...]:
        row = (*catalog_and_schema(table), table.name, _type(table))
        return (*row, self._columns(table).serialize().to_pybytes()) if with_schema else row

    def _columns(self, table: ListedTable) -> pa.Schema:
        items = ", ".join(f"CAST(NULL AS {kind}) AS {quote_name(name)}" for name, kind in table.columns)
        with self._typing:
            schema = self._types.sql(f"SELECT {items} LIMIT 0").to_arrow_table().schema
        catalog, db_schema = catalog_and_schema(table)
        fields = []
        for field, (_, kind) in zip(schema, table.columns, strict=True):
            properties = {
                "CATALOG_NAME": catalog,
                "DB_SCHEMA_NAME": db_schema,
                "TABLE_NAME": table.name,
                "TYPE_NAME": kind,
                "IS_AUTO_INCREMENT": "0",
                "IS_CASE_SENSITIVE": "1" if kind.startswith("VARCHAR") else "0",
                "IS_READ_ONLY": "1",
                "IS_SEARCHABLE": "1",
            }
            if number := re.match(r"DECIMAL\((\d+),\s*(\d+)\)$", kind):
                properties |= {"PRECISION": number[1], "SCALE": number[2]}
            named = {f"ARROW:FLIGHT:SQL:{name}": value for name, value in properties.items()}
            fields.append(field.with_metadata({**(field.metadata or {}), **named}))
        return pa.schema(fields)

    def close(self) -> None:
        """Close the connection that determines the Arrow types of columns."""
        self._types.close()


def _type(table: ListedTable) -> str:
    return VIEW if table.is_view else TABLE


def _is_asked_for(command: Any, table: ListedTable) -> bool:
    return (
        _fits(command, *catalog_and_schema(table))
        and _matches(optional_text(command, "table_name_filter_pattern"), table.name)
        and (not command.table_types or _type(table) in command.table_types)
    )


def _fits(command: Any, catalog: str, schema: str) -> bool:
    catalog_filter = optional_text(command, "catalog")
    return (catalog_filter is None or catalog_filter == catalog) and _matches(
        optional_text(command, "db_schema_filter_pattern"), schema
    )


def _matches(pattern: str | None, name: str) -> bool:
    r"""Return whether a name matches a pattern of LIKE; every name matches None.

    >>> _matches("a%", "abc"), _matches("a_", "abc"), _matches(r"a\_", "a_"), _matches(None, "x")
    (True, False, True, True)
    """
    if pattern is None:
        return True
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    # The texts between percent signs.
    pieces: list[list[str]] = [[]]
    for part in parts:
        if part == "%":
            pieces.append([])
        else:
            pieces[-1].append("." if part == "_" else re.escape(part[-1]))
    first, *others = map("".join, pieces)
    if not others:
        return re.fullmatch(first, name, re.DOTALL) is not None
    # Each piece matches at its first place only: backtracking could take years.
    *middle, last = others
    middle_pattern = "".join(f"(?>.*?{piece})" for piece in middle)
    return re.fullmatch(f"{first}{middle_pattern}.*{last}", name, re.DOTALL) is not None
