"""Batches as commits of an Iceberg table: each commit sets a property of the table to the number of the batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from sqlstream.connectors.iceberg.catalogs import CatalogTable, errors, pyiceberg
from sqlstream.connectors.interface import SinkContext
from sqlstream.connectors.lakes.commits import LakeCommits
from sqlstream.errors import JobError


class BatchProperty(LakeCommits):
    """The batches of one job in an Iceberg table. A property outlives the snapshots, which expire."""

    lakehouse = "Iceberg"

    def __init__(self, located: CatalogTable, context: SinkContext):
        super().__init__(located.table, context)
        self._located = located
        # The table at the metadata on which the current commit builds: reads during the commit use it, too.
        self.opened: Any = None

    @property
    def key(self) -> str:
        """The table property with the number of the job's last batch."""
        return f"sqlstream.{self.name}.batch"

    def open(self) -> Any:
        """Return the library's table at its newest metadata, which `opened` has from then on."""
        self.opened = self._located.open()
        return self.opened

    def last(self, opened: Any) -> int:
        return int(opened.properties.get(self.key, -1))

    def attempt(self, opened: Any, batch: int, write: Callable[[Any, Any], None]) -> bool:
        failed = pyiceberg(self.table).exceptions
        try:
            with errors(self.table, "writing"), warnings.catch_warnings(), opened.transaction() as transaction:
                # A new key has no row to delete, which is no fault.
                warnings.filterwarnings("ignore", "Delete operation did not match any records")
                write(transaction, {"sqlstream.batch": f"{self.name}/{batch}"})
                transaction.set_properties({self.key: str(batch)})
        except JobError as error:
            if isinstance(error.__cause__, (failed.CommitFailedException, failed.ValidationException)):
                return False
            raise
        return True
