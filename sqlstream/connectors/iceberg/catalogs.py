"""Iceberg tables by their names in catalogs, whose options are passed to the library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.connectors.confined_files import leads_outside
from sqlstream.connectors.lakes.libraries import library
from sqlstream.connectors.uris import is_remote, local_path
from sqlstream.errors import DataError, JobError, UsageError
from sqlstream.secrets import harmless

# The options with this prefix go to the library, for the catalog.
CATALOG = "catalog."
_SQLITE = "sqlite:///"


def pyiceberg(table: Table) -> Any:
    """Return the module `pyiceberg`. Raises UsageError if it is not installed."""
    return library("iceberg", table)


@contextmanager
def errors(table: Table, doing: str) -> Iterator[None]:
    """Turn errors of the library and of catalogs into JobError; `doing` is what failed, such as "reading".

    The library fails with OverflowError for a date or time outside of Python's years 1 to 9999: that is a DataError.
    """
    try:
        yield
    except (JobError, UsageError):
        raise
    except OverflowError as error:
        message = f'table "{table.name}": Iceberg table "{table.options["table"]}" cannot have a date or time of a row'
        raise DataError(message, detail="The library of Iceberg has the years 1 to 9999.") from harmless(error)
    # Errors of the library and of the databases behind catalogs have no common class.
    except (Exception, pa.ArrowException) as error:
        message = f'table "{table.name}": {doing} Iceberg table "{table.options["table"]}" failed'
        raise JobError(message, detail=f"{type(error).__name__}: {error}".strip()) from harmless(error)


@dataclass(frozen=True)
class CatalogTable:
    """An Iceberg table by its name in a catalog, with the library's options for that (`properties`)."""

    table: Table
    catalog: str
    properties: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, table: Table, project: str) -> CatalogTable:
        """Return the table that a declaration names; local paths of the catalog are relative to the project.

        Raises DataError if the table's files must lie in some folders: its metadata may name files anywhere.
        """
        if table.within:
            raise leads_outside(table, table.options["table"])
        properties = {k.removeprefix(CATALOG): v for k, v in table.options.items() if k.startswith(CATALOG)}
        uri, warehouse = properties.get("uri", ""), properties.get("warehouse", "")
        if uri.startswith(_SQLITE):
            properties["uri"] = _SQLITE + local_path(uri.removeprefix(_SQLITE), project)
        if warehouse and not is_remote(warehouse) and properties.get("type") == "sql":
            properties["warehouse"] = "file://" + local_path(warehouse, project)
        return cls(table, table.options.get("catalog", "default"), properties)

    @property
    def name(self) -> str:
        """The table's name in the catalog, with its namespace."""
        return self.table.options["table"]

    def load_catalog(self) -> Any:
        """Return the catalog, cached in this process with its connections. Raises JobError if it cannot be opened."""
        pyiceberg(self.table)
        with errors(self.table, "opening the catalog of"):
            return _catalog(self.catalog, tuple(sorted(self.properties.items())))

    def exists(self) -> bool:
        """Whether the catalog has the table. Raises JobError if the catalog fails."""
        with errors(self.table, "opening"):
            return bool(self.load_catalog().table_exists(self.name))

    def open(self) -> Any:
        """Return the library's table at its newest metadata. Raises UsageError if there is none, JobError if loading fails."""
        library = pyiceberg(self.table)
        try:
            with errors(self.table, "opening"):
                return self.load_catalog().load_table(self.name)
        except JobError as error:
            if isinstance(error.__cause__, library.exceptions.NoSuchTableError):
                message = f'table "{self.table.name}": there is no Iceberg table "{self.name}" in the catalog'
                hint = "Set 'sink.create-table' = 'true' to let the job that writes it create it."
                raise UsageError(message, self.table.span, hint=hint) from error
            raise


@lru_cache(maxsize=16)
def _catalog(name: str, properties: tuple[tuple[str, str], ...]) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog(name, **dict(properties))


def local_folder(iceberg: Any) -> str | None:
    """Return the folder of a table's data files on this machine, None if they are remote."""
    location = str(iceberg.location())
    if is_remote(location) and not location.startswith("file://"):
        return None
    return f"{location.removeprefix('file://')}/data"
