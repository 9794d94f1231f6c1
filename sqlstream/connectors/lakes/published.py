"""Publication of a warehouse table in a lakehouse, for other engines: the interface of each kind of lakehouse."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import pyarrow as pa

from sqlstream.connectors.batch import Batch
from sqlstream.connectors.lakes.columns import StoredColumn
from sqlstream.connectors.lakes.commits import LakeCommits
from sqlstream.connectors.lakes.files import WrittenFile


class PublishedTable(ABC):
    """The lakehouse table in which a warehouse table is published; the constructor creates it if it does not exist.

    Data files are in `folder`. `schema` has the columns of the lakehouse table, `columns` the SQL that computes them.
    """

    folder: str
    schema: pa.Schema
    columns: Sequence[StoredColumn]
    commits: LakeCommits

    def last(self) -> int:
        """Return the number of the last published batch, -1 before the first."""
        return self.commits.last(self.commits.open())

    @abstractmethod
    def add(self, batch: int, files: Sequence[WrittenFile], *, whole: bool) -> None:
        """Publish a batch in one commit: add its files, or with `whole` replace all rows by them. Skip a published batch."""

    @abstractmethod
    def merge(self, batch: Batch) -> None:
        """Publish a batch in one commit: upsert its rows by key, and delete the rows whose keys are gone."""
