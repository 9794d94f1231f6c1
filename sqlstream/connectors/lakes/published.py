"""A warehouse table in a lakehouse, for other engines: what each kind of lakehouse does for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import pyarrow as pa

from sqlstream.connectors.batch import Batch
from sqlstream.connectors.lakes.columns import StoredColumn
from sqlstream.connectors.lakes.commits import LakeCommits
from sqlstream.connectors.lakes.files import WrittenFile


class PublishedTable(ABC):
    """The table of a lakehouse in which a warehouse table is published; it is made where there is none.

    Data files are in `folder`. `schema` has the columns as the lakehouse has them, `columns` say how they are made of the
    declared ones.
    """

    folder: str
    schema: pa.Schema
    columns: Sequence[StoredColumn]
    commits: LakeCommits

    def last(self) -> int:
        """Return the last batch that is published, -1 before the first."""
        return self.commits.last(self.commits.open())

    @abstractmethod
    def add(self, batch: int, files: Sequence[WrittenFile], *, whole: bool) -> None:
        """Publish a batch: rows of files are added, or with `whole` are all that there are."""

    @abstractmethod
    def merge(self, batch: Batch) -> None:
        """Publish a batch: its rows take the place of those that have their keys."""
