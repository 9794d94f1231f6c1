"""What source and sink share: the client library, a client's settings from a table's options, and texts of errors.

Options `properties.*` are settings of librdkafka. Settings of Kafka's Java clients, as users copy them from Flink, are
translated, or refused with a hint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlstream.catalog import Table
from sqlstream.connectors.kafka import encryption
from sqlstream.connectors.options import TEXT, TableOption
from sqlstream.distribution import install_command
from sqlstream.errors import BindError, UsageError
from sqlstream.secrets import masked, remember

PREFIX = encryption.PREFIX
GROUP = f"{PREFIX}group.id"
SERVERS = TableOption(
    f"{PREFIX}bootstrap.servers",
    TEXT,
    "addresses of brokers, separated by commas",
    required=True,
    example="localhost:9092",
    mutable=True,
)
# Settings that have another name in Java clients.
_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms": "socket.connection.setup.timeout.ms",
}
# Settings that are ignored, as sqlstream sets them itself; Flink overrides most of them, too.
_DECIDED = frozenset(
    {
        *("enable.auto.commit", "auto.commit.interval.ms", "auto.offset.reset", "enable.auto.offset.store"),
        *("enable.partition.eof", "key.deserializer", "value.deserializer", "key.serializer", "value.serializer"),
        *("partition.discovery.interval.ms", "max.poll.records", "default.api.timeout.ms", "log_level"),
    }
)
# Settings that only Java clients have, with the hint.
_REFUSED = {
    "partition.assignment.strategy": "Partitions are spread over tasks by sqlstream: leave it out.",
    "interceptor.classes": "Java classes cannot run here: leave it out.",
    "metric.reporters": "Java classes cannot run here: leave it out.",
    "partitioner.class": "Java classes cannot run here; librdkafka has 'properties.partitioner'.",
    "sasl.login.callback.handler.class": "Java classes cannot run here; librdkafka has 'properties.sasl.oauthbearer.method'.",
    "sasl.client.callback.handler.class": "Java classes cannot run here; librdkafka has 'properties.sasl.oauthbearer.method'.",
}
_JAAS = re.compile(r"(\w+)\s*=\s*(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s;]+)")
_REJECTED = re.compile(r'property:? "(?P<name>[^"]+)"|property (?P<bare>[\w.]+)|(?P<encryption>\bssl(\.\w+)+)')


def client_library(table: Table) -> Any:
    """Return the module confluent_kafka. Raises UsageError if it cannot be imported."""
    try:
        import confluent_kafka
    except ImportError as error:
        message = (
            f'table "{table.name}": the connector "kafka" needs confluent-kafka, which cannot be imported: {error}'
        )
        raise UsageError(message, table.span, hint=f"Install it: {install_command('kafka')}.") from error
    return confluent_kafka


def settings(table: Table) -> dict[str, str]:
    """Return the settings of librdkafka for a table's `properties.*`. Raises BindError for one that only Java clients have."""
    properties = {k.removeprefix(PREFIX): v for k, v in table.options.items() if k.startswith(PREFIX)}
    client_settings: dict[str, str] = {}
    for name, value in properties.items():
        if name not in _DECIDED:
            client_settings |= _translated(table, name, value, properties)
    return client_settings


def _translated(table: Table, name: str, value: str, properties: Mapping[str, str]) -> Mapping[str, str]:
    if name == "sasl.jaas.config":
        return _login(table, value)
    try:
        if (translation := encryption.translated(name, value, properties)) is not None:
            return translation
    except encryption.JavaOnly as error:
        raise _refused(table, name, str(error), value=error.by_value) from None
    if name in _REFUSED:
        raise _refused(table, name, _REFUSED[name])
    return {_RENAMED.get(name, name): value}


def _login(table: Table, text: str) -> Mapping[str, str]:
    """Return the settings for the user and the password in a `sasl.jaas.config` of a Java client."""
    entries = {name: value.strip("\"'") for name, value in _JAAS.findall(text)}
    if re.search(r"\b(Plain|Scram)LoginModule\b", text) and {"username", "password"} <= entries.keys():
        # Errors may name it without the rest of the text.
        login = {"sasl.username": entries["username"], "sasl.password": entries["password"]}
        remember(login)
        return login
    hint = "Set 'properties.sasl.username' and 'properties.sasl.password', or librdkafka's properties of the mechanism."
    raise _refused(table, "sasl.jaas.config", hint)


def _refused(table: Table, name: str, hint: str, *, value: bool = False) -> BindError:
    message = f'table "{table.name}": option "{PREFIX}{name}" is one of Java clients, which librdkafka does not have'
    return BindError(message, table.option_span(f"{PREFIX}{name}", value=value), hint=hint)


def check_settings(table: Table) -> None:
    """Raise BindError unless librdkafka accepts a table's settings. It opens a client, as only librdkafka knows them all.

    Files of certificates need not be there yet: see `check_files`.
    """
    client_settings = {k: v for k, v in settings(table).items() if k != "bootstrap.servers"}
    options = _options(table)
    encryption.check(table, client_settings, options)
    for name in list(encryption.missing_files(client_settings)):
        del client_settings[name]
    kafka = client_library(table)
    try:
        _rejected(tuple(sorted(client_settings.items())))
    except kafka.KafkaException as error:
        text = masked(error.args[0].str())
        named = _REJECTED.search(text)
        name = (named["name"] or named["bare"] or named["encryption"]) if named else ""
        # If the setting was translated, the option has another name.
        at = table.option_span(options.get(name, ""))
        message = f'table "{table.name}": librdkafka refuses the properties'
        hint = "Its properties: https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md"
        raise BindError(message, at, detail=text, hint=hint) from None


def check_files(table: Table) -> None:
    """Raise UsageError for a file of a table's settings that does not exist on this machine."""
    encryption.check_files(table, settings(table), _options(table))


def _options(table: Table) -> Mapping[str, str]:
    """Map each setting of librdkafka to the table's option that it comes from."""
    properties = {k.removeprefix(PREFIX): v for k, v in table.options.items() if k.startswith(PREFIX)}
    return {
        own: f"{PREFIX}{name}"
        for name, value in properties.items()
        if name not in _DECIDED
        for own in _translated(table, name, value, properties)
    }


@cache
def _rejected(client_settings: tuple[tuple[str, str], ...]) -> None:
    """Check settings by opening and closing a client, without addresses, so that it does not connect. Raises KafkaException."""
    import confluent_kafka

    quiet = {"log_level": 0, "group.id": "sqlstream"}
    confluent_kafka.Consumer({**quiet, **dict(client_settings)}).close()


def reason(error: Any) -> str:
    """Return the text of a KafkaError, or of a KafkaException, without the name of librdkafka's thread and without secrets."""
    cause = error.args[0] if isinstance(error, Exception) and error.args else error
    text = cause.str() if hasattr(cause, "str") else str(cause)
    return masked(re.sub(r"^(?:\[thrd:[^\]]*\]: )?", "", text)).strip()
