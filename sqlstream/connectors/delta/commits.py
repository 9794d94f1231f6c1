"""Batches as versions of a Delta table: each version has a `txn` action with the number of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlstream.connectors.delta.location import Location, errors
from sqlstream.connectors.interface import SinkContext
from sqlstream.connectors.lakes.commits import LakeCommits
from sqlstream.errors import JobError


class Transactions(LakeCommits):
    """Commits batches to a Delta table: a `txn` action in the version has the job's name and the batch's number."""

    lakehouse = "Delta"

    def __init__(self, location: Location, context: SinkContext):
        super().__init__(location.table, context)
        self._location = location

    def open(self) -> Any:
        return self._location.open()

    def last(self, opened: Any) -> int:
        with errors(self.table, "reading"):
            version = opened.transaction_version(self.name)
        return -1 if version is None else int(version)

    def attempt(self, opened: Any, batch: int, write: Callable[[Any, Any], None]) -> bool:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        properties = CommitProperties(
            custom_metadata={"sqlstream.batch": f"{self.name}/{batch}"},
            app_transactions=[Transaction(self.name, batch)],
        )
        try:
            with errors(self.table, "writing"):
                write(opened, properties)
        except JobError as error:
            if isinstance(error.__cause__, CommitFailedError):
                return False
            raise
        return True
