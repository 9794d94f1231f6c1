"""Every connector by its name: the built-in connectors, each in its folder, and connectors of other packages.

Another package adds a connector by an entry point of the group `sqlstream.connectors`:

    [project.entry-points."sqlstream.connectors"]
    jsonl-tail = "sqlstream_jsonl_tail:JsonlTail"

A connector is imported when a table names it, not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from sqlstream.catalog import VALUES, Table
from sqlstream.connectors.interface import Connector, TableLookup, TableSink, TableSource
from sqlstream.errors import BindError, SqlStreamError, UnsupportedError, UsageError, missing

GROUP = "sqlstream.connectors"
# The internal name of the connector of tables that name none. The option `connector` cannot have this value.
WAREHOUSE = "warehouse table"
# The connector that shows the rows of a bare SELECT.
PRINT = "print"
_BUILT_IN = {
    "filesystem": "filesystem.connector:FilesystemConnector",
    "datagen": "datagen.connector:DatagenConnector",
    "faker": "faker.connector:FakerConnector",
    "nexmark": "nexmark.connector:NexmarkConnector",
    "socket": "socket.connector:SocketConnector",
    "python": "python.connector:PythonConnector",
    "duckdb": "duckdb.connector:DuckDBConnector",
    "sqlite": "sqlite.connector:SQLiteConnector",
    "kafka": "kafka.connector:KafkaConnector",
    "upsert-kafka": "kafka.connector:UpsertKafkaConnector",
    "postgresql": "postgresql.connector:PostgreSQLConnector",
    "mysql": "mysql.connector:MySQLConnector",
    "delta": "delta.connector:DeltaConnector",
    "iceberg": "iceberg.connector:IcebergConnector",
    "postgres-cdc": "postgres_cdc.connector:PostgresCdcConnector",
    "mysql-cdc": "mysql_cdc.connector:MySQLCdcConnector",
    "elasticsearch": "elasticsearch.connector:ElasticsearchConnector",
    PRINT: "print.connector:PrintConnector",
    "blackhole": "blackhole.connector:BlackholeConnector",
}
_INTERNAL = {
    WAREHOUSE: "warehouse.connector:WarehouseConnector",
    VALUES: "values.connector:ValuesConnector",
}
_DEBEZIUM = (
    "Let Debezium write its changes into Kafka, and read the topic: 'connector' = 'kafka', 'format' = 'debezium-json'."
)
_BY_KAFKA = (
    "Let Kafka Connect carry its rows, and name the topic: 'connector' = 'kafka'; or write a class for 'python'."
)
# Connectors of Flink that do not exist here, each with what to write instead.
_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("mongodb-cdc", "oracle-cdc", "sqlserver-cdc", "db2-cdc"), _DEBEZIUM),
    "elasticsearch-6": "Write into a server of version 7 or newer, whose documents have no types: 'connector' = 'elasticsearch'.",
    **dict.fromkeys(("mongodb", "redis"), _BY_KAFKA),
    **dict.fromkeys(("kinesis", "firehose", "dynamodb", "pulsar", "hbase", "hbase-1.4", "hbase-2.2"), _BY_KAFKA),
    "savepoint": "State is read with sqlstream query: SELECT * FROM state.job.operator.",
}


class UnavailableConnector(UsageError):
    """The entry point of a connector's package cannot be imported, or is no Connector class."""


@cache
def installed() -> dict[str, EntryPoint]:
    """Return the connectors of other packages by name. The first call reads a metadata file of each installed package."""
    return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in _BUILT_IN}


def built_in() -> tuple[str, ...]:
    """Return the names of the built-in connectors."""
    return tuple(_BUILT_IN)


def names() -> tuple[str, ...]:
    """Return all values that a table's option `connector` can have."""
    return (*_BUILT_IN, *sorted(installed()))


def connectors_elsewhere() -> Mapping[str, str]:
    """Return the connectors of Flink that do not exist here, each with what to write instead."""
    return _ELSEWHERE


def is_built_in(name: str | None) -> bool:
    """Whether a connector is part of sqlstream; so is None, the connector of tables that name none."""
    return name is None or name in _BUILT_IN or name in _INTERNAL


def exists(name: str | None) -> bool:
    """Whether a table's option `connector` can have this value."""
    return name in _BUILT_IN or name in installed()


@cache
def named(name: str) -> Connector:
    """Return a connector by its name.

    Raises KeyError if there is none of this name, UnavailableConnector if its package cannot be imported, and the SqlStreamError
    that such a package raises.
    """
    if (own := _BUILT_IN.get(name) or _INTERNAL.get(name)) is not None:
        module, _, kind = own.partition(":")
        connector: Connector = getattr(import_module(f"sqlstream.connectors.{module}"), kind)()
        return connector
    return _loaded(installed()[name])


def _loaded(entry: EntryPoint) -> Connector:
    package = entry.dist.name if entry.dist is not None else entry.module
    label = f'connector "{entry.name}" of package "{package}"'
    try:
        kind = entry.load()
    except SqlStreamError:
        raise
    except Exception as error:
        reason = f"{type(error).__qualname__}: {error}"
        hint = f"Repair or update the package: pip install --upgrade {package}."
        if isinstance(error, ModuleNotFoundError) and error.name and error.name != entry.module:
            hint = f"Install it: pip install {error.name.partition('.')[0]} (its package may have another name)."
        raise UnavailableConnector(f"{label} cannot be imported", detail=reason, hint=hint) from error
    if not (isinstance(kind, type) and issubclass(kind, Connector)):
        hint = f"Its entry point names {entry.value}: that must be a class derived from sqlstream.connectors.interface.Connector."
        raise UnavailableConnector(f"{label} is none", hint=hint)
    return kind()


def find(name: str) -> Connector | None:
    """Return a connector by its name; None if it does not exist, or if its package cannot be imported."""
    try:
        return named(name)
    except (KeyError, SqlStreamError):
        return None


def connector_of(table: Table) -> Connector:
    """Return the connector of a table.

    Raises BindError for an unknown name, UnsupportedError for a connector that only Flink has, and UnavailableConnector if the
    connector's package cannot be imported.
    """
    name = table.connector
    if name is None:
        return named(WAREHOUSE)
    if name == VALUES and table.span is None:
        return named(VALUES)
    if exists(name):
        try:
            return named(name)
        except UnavailableConnector as error:
            at = table.option_span("connector", value=True)
            message = f'table "{table.name}": {error.message}'
            raise UnavailableConnector(message, at, detail=error.detail, hint=error.hint) from error
    at = table.option_span("connector", value=True)
    if name in _ELSEWHERE:
        raise UnsupportedError(f'connector "{name}"', at, hint=_ELSEWHERE[name])
    message = f'table "{table.name}": connector "{name}" does not exist'
    raise BindError(message, at, hint=missing("connector", name, names()))


def options_instead(name: str, table: str) -> dict[str, str]:
    """Return options for a table whose connector only Flink has; without options it is a table of the warehouse.

    A table of a CDC connector becomes one of Debezium's changes, in a Kafka topic with the table's name.
    """
    if not name.endswith("-cdc"):
        return {}
    topic = {"topic": table, "properties.bootstrap.servers": "localhost:9092"}
    return {"connector": "kafka", **topic, "format": "debezium-json"}


def source_of(table: Table) -> TableSource:
    """Return a table as a source. `check_source` must have accepted it."""
    source = connector_of(table).source(table)
    assert source is not None, table.connector
    return source


def sink_of(table: Table) -> TableSink:
    """Return a table as a sink. `check_sink` must have accepted it."""
    sink = connector_of(table).sink(table)
    assert sink is not None, table.connector
    return sink


def lookup_of(table: Table) -> TableLookup:
    """Return a table as a lookup table. `check_lookup` must have accepted it."""
    lookup = connector_of(table).lookup(table)
    assert lookup is not None, table.connector
    return lookup
