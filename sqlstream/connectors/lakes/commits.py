"""Batches as commits of a lakehouse table: each commit stores the job's name and the number of the batch.

The libraries do not refuse a batch that the table has already. So a job reads its last batch from the table before it writes. It
skips a batch that an earlier process wrote into the table, if that process died before the job itself committed the batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from sqlstream.catalog import Table
from sqlstream.connectors.interface import SinkContext
from sqlstream.errors import JobError, UsageError

# How often a batch is tried, each time after a conflict with another writer, before the job fails.
ATTEMPTS = 20


class LakeCommits(ABC):
    """Commits the batches of one job to a lakehouse table. `name` identifies the job in the table (`SinkContext.identity`)."""

    lakehouse: ClassVar[str]

    def __init__(self, table: Table, context: SinkContext):
        self.table, self.name = table, context.identity()
        self._committed = context.committed
        self._written = -1

    @property
    def tag(self) -> str:
        """The part of the job's name that its file names contain: eight hexadecimal digits."""
        return self.name.rpartition("-")[2]

    @abstractmethod
    def open(self) -> Any:
        """Return the library's table in its newest version. Raises UsageError if there is none, JobError if opening fails."""

    @abstractmethod
    def last(self, opened: Any) -> int:
        """Return the number of the job's last batch in an opened table, -1 before the first."""

    @abstractmethod
    def attempt(self, opened: Any, batch: int, write: Callable[[Any, Any], None]) -> bool:
        """Try once to commit a batch to an opened table: prepare a commit, and call `write` to fill it.

        `write` takes what `LakeCommitter.add` takes as `opened` and `properties`. Returns False if another writer's commit came
        first. Raises JobError if the commit fails for another reason.
        """

    def recover(self) -> int:
        """Return the number of the job's last batch in the table, -1 before the first.

        Raises UsageError if the table is more than one batch ahead of the job.
        """
        last = self.last(self.open())
        if last > self._committed + 1:
            message = (
                f'table "{self.table.name}": the {self.lakehouse} table has batches of this job up to {last},'
                f" but the job goes on behind batch {self._committed}"
            )
            hint = (
                "Its warehouse is older than the table, or a copy of it writes the table, too. "
                "Take the job's later rows out of the table, and start the job with --fresh."
            )
            raise UsageError(message, self.table.span, hint=hint)
        return last

    def commit(self, batch: int, write: Callable[[Any, Any], None]) -> bool:
        """Commit a batch by calling `write`, again after conflicts; return False if the table has the batch already.

        Raises JobError after ATTEMPTS conflicts, or if another process has written the batch meanwhile.
        """
        for _ in range(ATTEMPTS):
            opened = self.open()
            if self._has(opened, batch):
                return False
            if self.attempt(opened, batch, write):
                self._written = batch
                return True
        message = (
            f'table "{self.table.name}": other writers were faster {ATTEMPTS} times; batch {batch} was not written'
        )
        raise JobError(message, hint="Start the job again; let other writers commit less often.")

    def wrote(self, batch: int) -> bool:
        """Whether `batch` is the last batch that this object has committed."""
        return batch == self._written

    def _has(self, opened: Any, batch: int) -> bool:
        last = self.last(opened)
        if last < batch or batch in (self._written, self._committed + 1):
            return last >= batch
        message = f'table "{self.table.name}": another process has written batch {last} of this job'
        hint = (
            f"Does a copy of the job's warehouse write the same {self.lakehouse} table? Start one of them with --fresh."
        )
        raise JobError(message, hint=hint)
