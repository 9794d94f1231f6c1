"""The writers of a topic: each writes the batches of a job, or its part of them, with one client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sqlstream.connectors.batch import Batch
from sqlstream.connectors.interface import BatchWriter
from sqlstream.connectors.kafka.messages import MessageEncoders, MessageLayout
from sqlstream.connectors.kafka.producing import BrokenClient, BulkSender, Sender, Topic
from sqlstream.connectors.kafka.progress import TopicProgress
from sqlstream.connectors.kafka.sink_options import DEFAULT, FIXED, PARTITIONER, word_of
from sqlstream.connectors.kafka.transactions import TopicTransactions

if TYPE_CHECKING:
    import pyarrow as pa


class _TopicWriter(BatchWriter):
    def __init__(self, layout: MessageLayout, topic: Topic):
        self._layout, self._topic = layout, topic
        self._encoders = MessageEncoders(layout.parts)
        self._partitions = 1

    def _look(self) -> None:
        asking = Sender(self._topic, {})
        try:
            self._partitions = self._topic.partitions(asking.producer)
        finally:
            asking.close()

    @property
    def _chosen(self) -> str:
        """The SQL of a row's partition, -1 to let the client choose."""
        partitioner = DEFAULT if self._layout.upserts else word_of(self._layout.table, PARTITIONER)
        chosen = {DEFAULT: "-1", FIXED: "0"}.get(partitioner, f"(row_number() OVER () - 1) % {self._partitions}")
        return f"CAST({chosen} AS INTEGER)"

    def _messages(self, batch: Batch) -> pa.Table:
        return self._encoders.encode(batch.table(self._layout.messages(batch, self._chosen)))


class TopicPlainWriter(_TopicWriter):
    """Writes batches without transactions: a repeated batch is written again. It `waits` until the brokers have the rows."""

    def __init__(self, layout: MessageLayout, topic: Topic, *, waits: bool):
        super().__init__(layout, topic)
        self._waits = waits
        self._sender = self._new_sender()

    def _new_sender(self) -> Sender:
        seconds = max(self._topic.deadline().remaining, 1.0)
        more = {"message.timeout.ms": int(seconds * 1000)}
        kind = BulkSender if BulkSender.is_for(self._topic.table) and not self._layout.has_metadata else Sender
        return kind(self._topic, {**more, "enable.idempotence": True} if self._waits else more)

    def recover(self) -> None:
        self._look()

    def write(self, batch: Batch) -> None:
        self.write_all([self._messages(batch)])

    def write_all(self, parts: Iterable[pa.Table]) -> int:
        """Send messages as they are yielded, and return their number. If the client breaks, a new one sends all of them again.

        Raises OutageError if brokers do not answer for `sink.retry-timeout`.
        """
        coming = iter(parts)
        sent: list[pa.Table] = []
        again: Sequence[pa.Table] = ()
        deadline = self._topic.deadline()
        while True:
            try:
                for part in again:
                    self._sender.send(part, deadline)
                again = ()
                for part in coming:
                    sent.append(part)
                    deadline = self._topic.deadline()
                    self._sender.send(part, deadline)
                if self._waits:
                    self._sender.flush(deadline)
                return sum(part.num_rows for part in sent)
            except BrokenClient as error:
                if deadline.is_over:
                    raise self._topic.unanswered(str(error)) from None
                self._sender.close()
                self._sender = self._new_sender()
                again = sent.copy()

    def push(self) -> None:
        """Flush the client if `write` does not wait for the brokers, as the process may end before the next batch."""
        if not self._waits:
            self._sender.producer.flush(self._topic.deadline().step())

    def close(self) -> None:
        self.push()
        self._sender.close()


class TopicTransactionWriter(_TopicWriter):
    """Writes each batch in a transaction with the job's progress, exactly once; `transactional_id` is the transactional id."""

    def __init__(self, layout: MessageLayout, topic: Topic, transactional_id: str, progress: TopicProgress):
        super().__init__(layout, topic)
        self._progress = progress
        self._transactions = TopicTransactions(topic, transactional_id, progress)

    def recover(self) -> None:
        self._look()
        self._transactions.open()

    def write(self, batch: Batch) -> None:
        self._transactions.write(batch.number, lambda: self._messages(batch))

    @property
    def lasts(self) -> Sequence[int]:
        """The last committed batch of each writer, see `PartedWriter.lasts`; here of the only one. -1 if it has none."""
        return [self._progress.last]

    def check_own(self) -> None:
        """Raise JobError if another process has written a batch that this job has never begun."""
        if self._progress.is_foreign:
            raise self._transactions.taken_over()

    def settle(self) -> None:
        """Record the last committed batch, after `recover`."""
        self._progress.settle()

    def notices(self) -> Sequence[str]:
        return self._progress.notices

    def close(self) -> None:
        self._transactions.close()
