"""Topics as sinks: appended rows, changes in Debezium's envelope, or the last row of each key."""

from __future__ import annotations

from sqlstream.catalog import DEBEZIUM, Table
from sqlstream.connectors.guarantees import Delivery, Rollback
from sqlstream.connectors.interface import BatchWriter, DriverSink, SinkContext, TableSink
from sqlstream.connectors.kafka.messages import MessageLayout, value_format
from sqlstream.connectors.kafka.parallel import DividedWriter, PartedWriter
from sqlstream.connectors.kafka.producing import Topic
from sqlstream.connectors.kafka.progress import TopicProgress
from sqlstream.connectors.kafka.sink_options import (
    EXACTLY_ONCE,
    GUARANTEE,
    ID_PREFIX,
    NONE,
    PARALLELISM,
    one_topic,
    word_of,
    writers_of,
)
from sqlstream.connectors.kafka.writing import TopicPlainWriter, TopicTransactionWriter
from sqlstream.errors import BindError, Span


class AppendedTopic(TableSink):
    """The guarantees and checks of all sinks of topics."""

    delivery = Delivery.AT_LEAST_ONCE
    delivery_reason = "a batch is written again after a crash, unless sink.delivery-guarantee is exactly-once"
    rollback = Rollback.ROWS_STAY
    for_changes = "a table with the connector 'upsert-kafka' or the format 'debezium-json'"
    upserts = False

    def __init__(self, table: Table):
        super().__init__(table)
        self.takes_changes = self.upserts or value_format(table) == DEBEZIUM
        guarantee = word_of(table, GUARANTEE)
        if guarantee == EXACTLY_ONCE:
            self.delivery = Delivery.TRANSACTIONAL
            self.delivery_reason = "if readers read committed rows only"
            if writers_of(table) > 1:
                # The rows of a batch do not become visible together.
                self.delivery = Delivery.IDEMPOTENT
                self.delivery_reason += "; they see a batch writer by writer"
        elif guarantee == NONE:
            self.delivery = Delivery.NONE
            self.delivery_reason = "nobody waits until the brokers have the rows"

    def check(self, span: Span | None) -> None:
        one_topic(self.table)
        layout = MessageLayout(self.table, self.upserts)
        layout.check()
        if writers_of(self.table) > 1 and self.takes_changes and not layout.key:
            raise BindError(
                f'table "{self.table.name}": several writers of changes need a key, which says whose a row is',
                self.table.option_span(PARALLELISM.name, value=True),
                hint=f"Set 'key.format' and 'key.fields', or leave '{PARALLELISM.name}' out.",
            )


class TopicSink(AppendedTopic, DriverSink):
    """A topic to which the driver, or its worker processes, append rows; with the format `debezium-json` also changes."""

    def open(self, context: SinkContext) -> BatchWriter:
        """Return the writer for the table's delivery guarantee and number of writers.

        Raises UsageError for settings that librdkafka refuses.
        """
        writers = writers_of(self.table)
        if word_of(self.table, GUARANTEE) == EXACTLY_ONCE:
            if writers > 1 or DividedWriter.knows(context):
                return DividedWriter(self.table, self.upserts, context, writers)
            prefix = self.table.options.get(ID_PREFIX.name, ID_PREFIX.default)
            layout, topic = MessageLayout(self.table, self.upserts), Topic(self.table)
            progress = TopicProgress(self.table, context)
            return TopicTransactionWriter(layout, topic, f"{prefix}-{context.identity()}", progress)
        if writers > 1:
            return PartedWriter(self.table, self.upserts, context, writers)
        waits = word_of(self.table, GUARANTEE) != NONE
        return TopicPlainWriter(MessageLayout(self.table, self.upserts), Topic(self.table), waits=waits)


class TopicUpsertSink(TopicSink):
    """A topic in which a message replaces the one with the same key; a tombstone, without a value, deletes it."""

    upserts = True
    replaces = True
    delivery = Delivery.IDEMPOTENT
    delivery_reason = "a message takes the place of the one that has its key"
