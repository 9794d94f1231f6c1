"""Which batches of a job a topic has: from the cluster, and from the job's own record.

The cluster decides. A batch's number is committed as the offset of a consumer group of the job's own, in the transaction of the
batch's rows. The job also records which batch it is about to commit, and which it has committed. So it notices if the cluster has
lost a batch. The cluster drops the group's offset after `offsets.retention.minutes`. Then the record is enough, unless it leaves
open whether a batch was committed.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace

from sqlstream.catalog import Table
from sqlstream.connectors.interface import SinkContext
from sqlstream.connectors.kafka.sink_options import CONTINUE, ON_LOSS, word_of
from sqlstream.errors import DamageError, JobError
from sqlstream.warehouse.records import read_sealed, write_sealed

_RECORD = "kafka.json"
# The time for which every cluster retains the offsets of a group.
_RETAINED_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """The job's record: `intended` is the last batch that it was about to commit, `written` the last one that it has committed.

    Both are -1 for none. `at` is when `written` was committed, or when the first batch was intended, in seconds since 1970.
    """

    intended: int = -1
    written: int = -1
    at: float = 0.0


class TopicProgress:
    """The progress of a job in a topic, from the cluster and from the job's own record.

    `last` is the last committed batch, -1 if there is none. `notices` are messages for users.
    """

    def __init__(self, table: Table, context: SinkContext):
        self._table, self._context = table, context
        self._path = f"{context.records}/{_RECORD}"
        self._record = self._read()
        self.last = self._record.written
        self.notices: list[str] = []

    def _read(self) -> ProgressRecord:
        try:
            return ProgressRecord(**json.loads(read_sealed(self._context.fs, self._path)))
        except (FileNotFoundError, DamageError):
            # The record is not written durably: a power cut may have deleted it.
            return ProgressRecord()

    def _write(self, record: ProgressRecord) -> None:
        self._record = record
        write_sealed(self._context.fs, self._path, json.dumps(asdict(record)))

    def intend(self, batch: int) -> None:
        """Record that a batch is about to be committed."""
        at = self._record.at if self._record.written >= 0 else time.time()
        self._write(replace(self._record, intended=batch, at=at))

    def done(self, batch: int) -> None:
        """Record that a batch is committed."""
        self.last = batch
        self._write(ProgressRecord(batch, batch, time.time()))

    def resume(self, marker: int | None) -> None:
        """Set `last` at the start of a run.

        `marker` is the offset of the job's consumer group, that is the cluster's last batch; None if the group has no offset.
        Raises JobError if the cluster has lost a batch, or if it cannot be decided whether the cluster has the last one, unless
        the table's `sink.on-data-loss` is `continue`.
        """
        record, committed = self._record, self._context.committed
        if marker is None:
            self._without_marker()
        elif marker < record.written:
            self._lost(marker)
        else:
            self.last = marker
            if marker > committed + 1:
                self.notices.append(
                    f'table "{self._table.name}": topic "{self._topic}" has batches up to {marker} of this job, whose '
                    f"warehouse went back to batch {committed}; they are left out when they are repeated"
                )

    def confirm(self, marker: int | None) -> None:
        """Update `last` during a run, after a reconnect; `marker` as in `resume`. Raises JobError if the cluster lost a batch."""
        if (marker if marker is not None else -1) < self.last:
            self._lost(marker)
        self.last = max(self.last, marker if marker is not None else -1)

    def settle(self) -> None:
        """Record `last` after `resume`, if the cluster has more batches than the record."""
        if self.last > self._record.written:
            self.done(self.last)

    @property
    def is_foreign(self) -> bool:
        """Whether the cluster has a batch that this job has never begun, so that another process has written it."""
        return self.last > max(self._record.intended, self._record.written)

    def _without_marker(self) -> None:
        record = self._record
        if record.intended > record.written:
            if record.written < 0 and time.time() - record.at < _RETAINED_SECONDS:
                # The first batch with rows is not committed: the cluster would still have the offset.
                return
            if word_of(self._table, ON_LOSS) != CONTINUE and self._context.committed >= 0:
                raise JobError(
                    f'table "{self._table.name}": whether batch {record.intended} is in topic "{self._topic}" is not known',
                    self._table.span,
                    detail="The job ended while it committed the batch, and the cluster has forgotten how far the job was: "
                    "the consumer group with its progress is gone.",
                    hint=f"Set '{ON_LOSS.name}' = '{CONTINUE}' to write the batch, maybe a second time.",
                )
        elif record.written >= 0 and time.time() - record.at < _RETAINED_SECONDS:
            self._lost(None)

    def _lost(self, marker: int | None) -> None:
        first = "a batch" if marker is None else f"a batch after {marker}" if marker >= 0 else "the first batch"
        what = f"it has no progress of the job, which wrote batch {self._record.written} last"
        if marker is not None:
            what = f"its progress of the job is batch {marker}, and the job has committed batch {self._record.written}"
        if word_of(self._table, ON_LOSS) != CONTINUE:
            raise JobError(
                f'table "{self._table.name}": the cluster has lost {first} that the job wrote into topic "{self._topic}"',
                self._table.span,
                detail=f"{what[:1].upper()}{what[1:]}. A broker lost data, the topic was made anew, or it is another cluster.",
                hint=f"Start the job afresh to write all rows again, or set '{ON_LOSS.name}' = '{CONTINUE}' to go on without.",
            )
        self.notices.append(f'table "{self._table.name}": rows of {first} are missing in topic "{self._topic}": {what}')
        self._record = replace(self._record, at=0.0)

    @property
    def _topic(self) -> str:
        return self._table.options["topic"]
