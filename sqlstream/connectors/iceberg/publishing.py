"""Publication of a warehouse table as an Iceberg table, in a catalog that is a SQLite file beside the published tables."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlstream.catalog import Table
from sqlstream.connectors.batch import Batch
from sqlstream.connectors.iceberg.catalogs import CATALOG, CatalogTable, errors, pyiceberg
from sqlstream.connectors.iceberg.commits import BatchProperty
from sqlstream.connectors.iceberg.schema import ICEBERG, arrow_schema
from sqlstream.connectors.iceberg.upserts import UpsertWriter
from sqlstream.connectors.interface import SinkContext
from sqlstream.connectors.lakes.columns import created, stored
from sqlstream.connectors.lakes.files import WrittenFile
from sqlstream.connectors.lakes.published import PublishedTable
from sqlstream.errors import JobError

# The name of the catalog, and the only namespace in it.
NAME = "sqlstream"
CATALOG_FILE = "iceberg.db"


class PublishedIceberg(PublishedTable):
    """An Iceberg table in the folder of a published table, with one commit per batch.

    A table whose metadata are outside of the folder is created anew: the warehouse was moved or copied.
    """

    def __init__(self, table: Table, folder: str, context: SinkContext):
        # The folder is the warehouse's own, wherever files of the job's tables may be.
        self._table, self._context = replace(table, options=_options(folder), within=()), context
        self._located = CatalogTable.of(self._table, context.project)
        self.folder = f"{folder}/data"
        os.makedirs(self.folder, exist_ok=True)
        if not self._is_here(folder):
            forget(folder)
            self._create(folder)
        self.schema = arrow_schema(self._located.open())
        self.columns = stored(self.schema, self._table, ICEBERG)
        self.commits = BatchProperty(self._located, context)

    def _is_here(self, folder: str) -> bool:
        """Whether the catalog has the table, with metadata in the folder. Paths are absolute, and a warehouse may be moved."""
        try:
            if not self._located.exists():
                return False
            return str(self._located.open().metadata_location).startswith(f"file://{folder}/")
        except JobError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return False
            raise

    def _create(self, folder: str) -> None:
        catalog, schema = self._located.load_catalog(), created(self._table, ICEBERG)
        with errors(self._table, "creating"):
            catalog.create_namespace_if_not_exists(NAME)
            catalog.create_table(self._located.name, schema, location=f"file://{folder}")

    def add(self, batch: int, files: Sequence[WrittenFile], *, whole: bool) -> None:
        from pyiceberg.expressions import AlwaysTrue

        paths = [f"file://{self.folder}/{file.path}" for file in files]

        def write(transaction: Any, summary: Any) -> None:
            if whole:
                transaction.delete(AlwaysTrue(), snapshot_properties=summary)
            if paths:
                transaction.add_files(paths, snapshot_properties=summary, check_duplicate_files=False)

        with _without_warnings():
            self.commits.commit(batch, write)

    def merge(self, batch: Batch) -> None:
        UpsertWriter(self._table, self._context).write(batch)


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppress the library's warning that a file has no statistics, which it logs for each column."""
    logger = logging.getLogger("pyiceberg.io.pyarrow")

    def other(record: logging.LogRecord) -> bool:
        return "statistics missing" not in record.getMessage()

    logger.addFilter(other)
    try:
        yield
    finally:
        logger.removeFilter(other)


def forget(folder: str) -> None:
    """Remove the published table of a folder from the catalog beside it, if that lists it; the files stay."""
    located = CatalogTable.of(Table("", (), options=_options(folder)), "")
    library = pyiceberg(located.table)
    with contextlib.suppress(library.exceptions.NoSuchTableError):
        located.load_catalog().drop_table(located.name)


def _options(folder: str) -> dict[str, str]:
    published, _, name = folder.rpartition("/")
    catalog = {"type": "sql", "uri": f"sqlite:///{published}/{CATALOG_FILE}", "warehouse": published}
    # A dot would be the end of a namespace.
    table = f"{NAME}.{name.replace('.', '%2E')}"
    return {
        "connector": "iceberg",
        "table": table,
        "catalog": NAME,
        **{f"{CATALOG}{key}": value for key, value in catalog.items()},
    }
