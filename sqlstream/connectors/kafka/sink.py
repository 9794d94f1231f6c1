"""Topics that jobs write: rows appended, changes in Debezium's envelope, or the last row of each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlstream.catalog import DEBEZIUM, Table
from sqlstream.connectors.batch import Batch
from sqlstream.connectors.guarantees import Delivery
from sqlstream.connectors.interface import BatchWriter, DriverSink, SinkContext
from sqlstream.connectors.kafka.messages import MessageEncoders, MessageLayout, value_format
from sqlstream.connectors.kafka.producing import Broken, Deadline, Sender, Topic
from sqlstream.connectors.kafka.progress import TopicProgress
from sqlstream.connectors.kafka.sink_options import (
    DEFAULT,
    EXACTLY_ONCE,
    FIXED,
    GUARANTEE,
    ID_PREFIX,
    NONE,
    PARTITIONER,
    one_topic,
    word_of,
)
from sqlstream.connectors.kafka.transactions import TopicTransactions
from sqlstream.errors import Span

if TYPE_CHECKING:
    import pyarrow as pa


class TopicSink(DriverSink):
    """A topic to which rows are appended; with the format `debezium-json` changes, too."""

    delivery = Delivery.AT_LEAST_ONCE
    delivery_reason = "a batch is written again after a crash, unless sink.delivery-guarantee is exactly-once"
    upserts = False

    def __init__(self, table: Table):
        super().__init__(table)
        self.takes_changes = self.upserts or value_format(table) == DEBEZIUM
        guarantee = word_of(table, GUARANTEE)
        if guarantee == EXACTLY_ONCE:
            self.delivery = Delivery.TRANSACTIONAL
            self.delivery_reason = "if readers read committed rows only"
        elif guarantee == NONE:
            self.delivery = Delivery.NONE
            self.delivery_reason = "nobody waits until the brokers have the rows"

    def check(self, span: Span | None) -> None:
        one_topic(self.table)
        MessageLayout(self.table, self.upserts).check()

    def open(self, context: SinkContext) -> BatchWriter:
        layout, topic = MessageLayout(self.table, self.upserts), Topic(self.table)
        guarantee = word_of(self.table, GUARANTEE)
        if guarantee != EXACTLY_ONCE:
            return TopicPlainWriter(layout, topic, waits=guarantee != NONE)
        prefix = self.table.options.get(ID_PREFIX.name, ID_PREFIX.default)
        progress = TopicProgress(self.table, context)
        return TopicTransactionWriter(layout, topic, f"{prefix}-{context.identity()}", progress)


class TopicUpsertSink(TopicSink):
    """A topic in which a message takes the place of the one that has its key; one without a value deletes it."""

    upserts = True
    replaces = True
    delivery = Delivery.IDEMPOTENT
    delivery_reason = "a message takes the place of the one that has its key"


class _TopicWriter(BatchWriter):
    def __init__(self, layout: MessageLayout, topic: Topic):
        self._layout, self._topic = layout, topic
        self._encoders = MessageEncoders(layout.parts)
        self._partitions = 1

    def _look(self, sender: Sender) -> None:
        self._partitions = self._topic.partitions(sender.producer)

    def _messages(self, batch: Batch) -> pa.Table:
        partitioner = DEFAULT if self._layout.upserts else word_of(self._layout.table, PARTITIONER)
        chosen = {DEFAULT: "-1", FIXED: "0"}.get(partitioner, f"(row_number() OVER () - 1) % {self._partitions}")
        return self._encoders.encode(batch.table(self._layout.messages(batch, f"CAST({chosen} AS INTEGER)")))


class TopicPlainWriter(_TopicWriter):
    """Writes batches without transactions: one that is repeated is written again."""

    def __init__(self, layout: MessageLayout, topic: Topic, *, waits: bool):
        super().__init__(layout, topic)
        self._waits = waits
        self._sender = self._new_sender()

    def _new_sender(self) -> Sender:
        seconds = max(self._topic.deadline().left, 1.0)
        more = {"message.timeout.ms": int(seconds * 1000)}
        return Sender(self._topic, {**more, "enable.idempotence": True} if self._waits else more)

    def recover(self) -> None:
        self._look(self._sender)

    def write(self, batch: Batch) -> None:
        deadline, messages = self._topic.deadline(), self._messages(batch)
        while True:
            try:
                self._send(messages, deadline)
                return
            except Broken as error:
                if deadline.is_over:
                    raise self._topic.unanswered(str(error)) from None
                self._sender.close()
                self._sender = self._new_sender()

    def _send(self, messages: pa.Table, deadline: Deadline) -> None:
        self._sender.send(messages, deadline)
        if self._waits:
            self._sender.flush(deadline)

    def close(self) -> None:
        if not self._waits:
            self._sender.producer.flush(self._topic.deadline().step())
        self._sender.close()


class TopicTransactionWriter(_TopicWriter):
    """Writes each batch in a transaction, together with the job's progress."""

    def __init__(self, layout: MessageLayout, topic: Topic, identity: str, progress: TopicProgress):
        super().__init__(layout, topic)
        self._progress = progress
        self._transactions = TopicTransactions(topic, identity, progress)

    def recover(self) -> None:
        with_topic = Sender(self._topic, {})
        self._look(with_topic)
        with_topic.close()
        self._transactions.open()

    def write(self, batch: Batch) -> None:
        self._transactions.write(batch.number, lambda: self._messages(batch))

    def notices(self) -> Sequence[str]:
        return self._progress.notices

    def close(self) -> None:
        self._transactions.close()
