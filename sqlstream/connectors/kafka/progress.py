"""Which batches of a job are in a topic: what the cluster says, and what the job has written down itself.

The cluster's word counts. The number of a batch is the offset of a consumer group that is the job's own, committed in the
transaction of the batch's rows. The job writes down which batch it is about to commit, and which is in. So it finds out when a
cluster has lost a batch, and does without the cluster's word, which is forgotten after `offsets.retention.minutes`, as long as
no batch is in doubt.
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
# No cluster forgets the offsets of a group so soon.
_RETAINED_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """The last batch that the job was about to commit, the last one of which it knows that it is in, and since when.

    As long as none is in, `at` is when the job was about to commit one.
    """

    intended: int = -1
    written: int = -1
    at: float = 0.0


class TopicProgress:
    """How far a job is in a topic; `last` is the last batch that is in."""

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
            # It is not durable: a power cut may have taken it.
            return ProgressRecord()

    def _write(self, record: ProgressRecord) -> None:
        self._record = record
        write_sealed(self._context.fs, self._path, json.dumps(asdict(record)))

    def intend(self, batch: int) -> None:
        """Write down that a batch is about to be committed."""
        at = self._record.at if self._record.written >= 0 else time.time()
        self._write(replace(self._record, intended=batch, at=at))

    def done(self, batch: int) -> None:
        """Write down that a batch is in."""
        self.last = batch
        self._write(ProgressRecord(batch, batch, time.time()))

    def resume(self, marker: int | None) -> None:
        """Find out what is in, by what the cluster says at the start. Raises JobError where it has lost a batch."""
        known, committed = self._record, self._context.committed
        if marker is None:
            self._without_marker()
        elif marker < known.written:
            self._lost(marker)
        else:
            self.last = marker
            if marker > committed + 1:
                self.notices.append(
                    f'table "{self._table.name}": topic "{self._topic}" has batches up to {marker} of this job, whose '
                    f"warehouse went back to batch {committed}; they are left out when they are repeated"
                )

    def confirm(self, marker: int | None) -> None:
        """Note what the cluster says in the middle of a run. Raises JobError where it has lost a batch."""
        if (marker if marker is not None else -1) < self.last:
            self._lost(marker)
        self.last = max(self.last, marker if marker is not None else -1)

    def settle(self) -> None:
        """Write down what the cluster has, at the start."""
        if self.last > self._record.written:
            self.done(self.last)

    @property
    def is_foreign(self) -> bool:
        """Whether the cluster has a batch that this job has never begun."""
        return self.last > max(self._record.intended, self._record.written)

    def _without_marker(self) -> None:
        known = self._record
        if known.intended > known.written:
            if known.written < 0 and time.time() - known.at < _RETAINED_SECONDS:
                # The first batch that has rows is not in: the cluster would not have forgotten it so soon.
                return
            if word_of(self._table, ON_LOSS) != CONTINUE and self._context.committed >= 0:
                raise JobError(
                    f'table "{self._table.name}": whether batch {known.intended} is in topic "{self._topic}" is not known',
                    self._table.span,
                    detail="The job ended while it committed the batch, and the cluster has forgotten how far the job was: "
                    "the consumer group with its progress is gone.",
                    hint=f"Set '{ON_LOSS.name}' = '{CONTINUE}' to write the batch, maybe a second time.",
                )
        elif known.written >= 0 and time.time() - known.at < _RETAINED_SECONDS:
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
