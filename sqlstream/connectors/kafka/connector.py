"""The `kafka` connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.changelogs import validate as validate_changes
from sqlstream.connectors.formats.malformed import format_of
from sqlstream.connectors.formats.registry import FORMATS
from sqlstream.connectors.interface import Connector, Reach, TableSink
from sqlstream.connectors.kafka import keys, options
from sqlstream.connectors.kafka.client import PREFIX, SERVERS, check_settings, client_library
from sqlstream.connectors.kafka.sink import TopicSink, TopicUpsertSink
from sqlstream.connectors.kafka.sink_options import SINK_OPTIONS, UPSERT_SINK_OPTIONS
from sqlstream.connectors.kafka.source import METADATA, WRITABLE, Messages, UpsertMessages
from sqlstream.connectors.kafka.tasks import TopicTasks
from sqlstream.connectors.options import TEXT, TableOption, check_required
from sqlstream.errors import BindError


class KafkaConnector(Connector):
    """Topics of Kafka."""

    name = "kafka"
    summary = "topics of Kafka"
    reach = Reach.ELSEWHERE
    options = (*options.SOURCE_OPTIONS, *keys.OPTIONS, *SINK_OPTIONS)
    formats = keys.VALUE_FORMATS
    of_values = True
    changelogs = True
    metadata: ClassVar[Mapping[str, str]] = METADATA
    source_type = Messages
    sink_type = TopicSink

    def sink(self, table: Table) -> TableSink:
        """Return a sink that tasks write, if the table's options allow that, otherwise one that the driver writes."""
        return TopicTasks(table) if TopicTasks.is_for(table) else TopicSink(table)

    def own_options(self, table: Table) -> Sequence[TableOption]:
        properties = [TableOption(name, TEXT, "") for name in table.options if name.startswith(PREFIX)]
        return [*properties, *keys.format_options(table)]

    def validate(self, table: Table) -> None:
        options.validate(table)
        described = keys.plain(table)
        keys.validate(described)
        if described.has_changes:
            validate_changes(described)

    def columns(self, table: Table, project: str) -> Sequence[Column] | None:
        """Return the columns of the schema that the table's format names; None for a format without schemas."""
        described = keys.plain(table)
        form = FORMATS.get(format_of(described))
        if form is None or form.columns is None:
            return None
        check_required(described, form.options)
        return form.columns(described)

    def prepare(self, table: Table) -> Table:
        """Return the table with plain names of its format's options, see `keys.plain`.

        Raises UsageError without confluent-kafka, and BindError for settings that librdkafka refuses.
        """
        client_library(table)
        check_settings(table)
        return replace(keys.plain(table), writes_metadata=WRITABLE)

    def identifying_options(self, table: Table, left_out: Mapping[str, str]) -> Mapping[str, str]:
        # Connection settings and the start position do not identify the input: they may change once a job has read something.
        return {k: v for k, v in left_out.items() if not k.startswith((PREFIX, f"{options.STARTUP}."))}


class UpsertKafkaConnector(Connector):
    """Topics in which a message replaces the one with the same key."""

    name = keys.UPSERT_KAFKA
    summary = "topics of Kafka with the last row of each key"
    reach = Reach.ELSEWHERE
    options = (
        options.TOPIC,
        SERVERS,
        replace(keys.KEY_FORMAT, required=True, example="json"),
        replace(keys.VALUE_FORMAT, type=options.one_of(*keys.KEY_FORMATS)),
        *(o for o in keys.OPTIONS if o not in (keys.KEY_FORMAT, keys.KEY_FIELDS, keys.VALUE_FORMAT)),
        *options.BOUNDED_OPTIONS,
        *options.READING_OPTIONS,
        *UPSERT_SINK_OPTIONS,
    )
    formats = keys.KEY_FORMATS
    of_values = True
    metadata: ClassVar[Mapping[str, str]] = METADATA
    source_type = UpsertMessages
    sink_type = TopicUpsertSink

    def own_options(self, table: Table) -> Sequence[TableOption]:
        properties = [TableOption(name, TEXT, "") for name in table.options if name.startswith(PREFIX)]
        return [*properties, *keys.format_options(table)]

    def validate(self, table: Table) -> None:
        described = keys.plain(table)
        if not table.primary_key:
            hint = "Declare it, as PRIMARY KEY (id) NOT ENFORCED: its columns are the key of a message."
            raise BindError(f'table "{table.name}" needs a PRIMARY KEY', table.span, hint=hint)
        options.validate(table)
        keys.validate(described)

    def prepare(self, table: Table) -> Table:
        """Return the table as `KafkaConnector.prepare` does, marked as a table of changes."""
        client_library(table)
        check_settings(table)
        return replace(keys.plain(table), changing=True, writes_metadata=WRITABLE)

    def identifying_options(self, table: Table, left_out: Mapping[str, str]) -> Mapping[str, str]:
        return {k: v for k, v in left_out.items() if not k.startswith(PREFIX)}
