"""What source and sink share: the package, the settings of a client as a table gives them, and errors as people see them.

Options `properties.*` go to librdkafka. Names that only Kafka's Java clients have, which people copy from Flink, are translated,
or refused with what to write instead.
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
# What Java clients call differently.
_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms": "socket.connection.setup.timeout.ms",
}
# What sqlstream decides itself, whatever is asked: Flink overrides most of these, too.
_DECIDED = frozenset(
    {
        *("enable.auto.commit", "auto.commit.interval.ms", "auto.offset.reset", "enable.auto.offset.store"),
        *("enable.partition.eof", "key.deserializer", "value.deserializer", "key.serializer", "value.serializer"),
        *("partition.discovery.interval.ms", "max.poll.records", "default.api.timeout.ms", "log_level"),
    }
)
# What Java clients alone can do, with what to do instead.
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
    """Return the module confluent_kafka. Raises UsageError where it is not installed."""
    try:
        import confluent_kafka
    except ImportError as error:
        message = (
            f'table "{table.name}": the connector "kafka" needs confluent-kafka, which cannot be imported: {error}'
        )
        raise UsageError(message, table.span, hint=f"Install it: {install_command('kafka')}.") from error
    return confluent_kafka


def settings(table: Table) -> dict[str, str]:
    """Return what a table's `properties.*` are to librdkafka. Raises BindError for those that it cannot have."""
    given = {k.removeprefix(PREFIX): v for k, v in table.options.items() if k.startswith(PREFIX)}
    found: dict[str, str] = {}
    for name, value in given.items():
        if name not in _DECIDED:
            found |= _translated(table, name, value, given)
    return found


def _translated(table: Table, name: str, value: str, given: Mapping[str, str]) -> Mapping[str, str]:
    if name == "sasl.jaas.config":
        return _login(table, value)
    try:
        if (found := encryption.translated(name, value, given)) is not None:
            return found
    except encryption.JavaOnly as error:
        raise _refused(table, name, str(error), value=error.by_value) from None
    if name in _REFUSED:
        raise _refused(table, name, _REFUSED[name])
    return {_RENAMED.get(name, name): value}


def _login(table: Table, text: str) -> Mapping[str, str]:
    """Return the user and the password in the login module of a Java client."""
    given = {name: value.strip("\"'") for name, value in _JAAS.findall(text)}
    if re.search(r"\b(Plain|Scram)LoginModule\b", text) and {"username", "password"} <= given.keys():
        # Errors may name it without the rest of the text.
        login = {"sasl.username": given["username"], "sasl.password": given["password"]}
        remember(login)
        return login
    hint = "Set 'properties.sasl.username' and 'properties.sasl.password', or librdkafka's properties of the mechanism."
    raise _refused(table, "sasl.jaas.config", hint)


def _refused(table: Table, name: str, hint: str, *, value: bool = False) -> BindError:
    message = f'table "{table.name}": option "{PREFIX}{name}" is one of Java clients, which librdkafka does not have'
    return BindError(message, table.option_span(f"{PREFIX}{name}", value=value), hint=hint)


def check_settings(table: Table) -> None:
    """Raise BindError unless librdkafka takes a table's properties: it alone knows which there are."""
    found = {k: v for k, v in settings(table).items() if k != "bootstrap.servers"}
    options = _options(table)
    encryption.check(table, found, options)
    kafka = client_library(table)
    try:
        _rejected(tuple(sorted(found.items())))
    except kafka.KafkaException as error:
        text = masked(error.args[0].str())
        named = _REJECTED.search(text)
        name = (named["name"] or named["bare"] or named["encryption"]) if named else ""
        # It may have been translated: then it stands under another name.
        at = table.option_span(options.get(name, ""))
        message = f'table "{table.name}": librdkafka refuses the properties'
        hint = "Its properties: https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md"
        raise BindError(message, at, detail=text, hint=hint) from None


def _options(table: Table) -> Mapping[str, str]:
    """Return the options of a table from which librdkafka's properties come, by the names of these."""
    given = {k.removeprefix(PREFIX): v for k, v in table.options.items() if k.startswith(PREFIX)}
    return {
        own: f"{PREFIX}{name}"
        for name, value in given.items()
        if name not in _DECIDED
        for own in _translated(table, name, value, given)
    }


@cache
def _rejected(found: tuple[tuple[str, str], ...]) -> None:
    """Make a client and drop it: without an address it connects to nobody."""
    import confluent_kafka

    quiet = {"log_level": 0, "group.id": "sqlstream"}
    confluent_kafka.Consumer({**quiet, **dict(found)}).close()


def reason(error: Any) -> str:
    """Return what an error of librdkafka says, an exception's or its own, without the names of its parts."""
    found = error.args[0] if isinstance(error, Exception) and error.args else error
    text = found.str() if hasattr(found, "str") else str(found)
    return masked(re.sub(r"^(?:\[thrd:[^\]]*\]: )?", "", text)).strip()
