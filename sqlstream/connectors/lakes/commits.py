"""Batches in the log of a lakehouse: each is one commit, which says whose batch it is.

The libraries do not refuse a batch that is in already. So a job asks the table for its last batch before it writes one, and
leaves out the one that a process wrote that died before the job had committed it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from sqlstream.catalog import Table
from sqlstream.connectors.interface import SinkContext
from sqlstream.errors import JobError, UsageError

# Another writer may be faster so often before a batch gives up.
ATTEMPTS = 20


class LakeCommits(ABC):
    """The batches of one job in a table of a lakehouse, under the name that the job has there."""

    lakehouse: ClassVar[str]

    def __init__(self, table: Table, context: SinkContext):
        self.table, self.name = table, context.identity()
        self._committed = context.committed
        self._written = -1

    @property
    def tag(self) -> str:
        """What the names of the job's files begin with."""
        return self.name.rpartition("-")[2]

    @abstractmethod
    def open(self) -> Any:
        """Return the table as it is now."""

    @abstractmethod
    def last(self, opened: Any) -> int:
        """Return the last batch of the job that a table has, -1 before the first."""

    @abstractmethod
    def attempt(self, opened: Any, batch: int, write: Callable[[Any, Any], None]) -> bool:
        """Let `write` commit a batch; return False where another writer was faster."""

    def recover(self) -> int:
        """Return the last batch of the job. Raises UsageError when the table has batches that the job does not know."""
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
        """Let `write` commit a batch; return False where the batch is in."""
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
        """Whether this process has committed a batch, the last one of the job."""
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
