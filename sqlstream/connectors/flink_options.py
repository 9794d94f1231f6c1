"""Options of Flink's tables that have no effect here: sqlstream always works as they ask, or does not need them.

Such an option is accepted with a notice. A value that would change the rows is an error, and so is an option that is not listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sqlstream.catalog import Table
from sqlstream.errors import BindError, StatementWarning, UnsupportedError

_FORMAT_OPTIONS = ("format", "value.format", "key.format")
_KAFKA = ("kafka", "upsert-kafka")
_CHANGES = ("postgres-cdc", "mysql-cdc")
_SEARCH = ("elasticsearch",)
_DATABASES = ("postgresql", "mysql", "sqlite", "duckdb")


@dataclass(frozen=True, slots=True)
class FlinkOption:
    """An option of Flink's tables, and why nothing has to be done for it: `why` is the end of the notice's sentence.

    - `name` may end with `*`, which stands for any text.
    - `values` are the accepted values, in lower case; empty: all. For any other value, `instead` is the hint of the error.
    - `connectors` are the connectors that have the option in Flink, "" for tables without one; empty: all.
    - `means` translates the option: it maps a value ("" for any) to (our option, its value; None: the same value).
    """

    name: str
    why: str
    values: tuple[str, ...] = ()
    instead: str = "Leave it out."
    connectors: tuple[str, ...] = ()
    means: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)

    def covers(self, name: str) -> bool:
        """Whether this is the option of a name."""
        return name.startswith(self.name[:-1]) if self.name.endswith("*") else name == self.name


_OWN_FORMAT = "a table without a connector is kept in the warehouse's own format"
OPTIONS: tuple[FlinkOption, ...] = (
    FlinkOption("scan.parallelism", "as many tasks read a table as have work: parallelism.default bounds them"),
    FlinkOption("sink.parallelism", "as many tasks write a table as compute its rows: parallelism.default bounds them"),
    FlinkOption("sink.buffer-flush.*", "the rows of a batch are written together, when it is committed"),
    FlinkOption("sink.rolling-policy.*", "each batch has files of its own, which are visible when it is committed"),
    FlinkOption("standard-error", "rows are shown where the session shows them", connectors=("print",)),
    FlinkOption(
        "sink.semantic",
        "is the former name of sink.delivery-guarantee, and taken for that",
        connectors=("kafka",),
        means={"": ("sink.delivery-guarantee", None)},
    ),
    FlinkOption("properties.zookeeper.connect", "clients of Kafka ask brokers only", connectors=_KAFKA),
    FlinkOption(
        "decoding.plugin.name",
        "changes are decoded by pgoutput, which is part of PostgreSQL, and are the same",
        connectors=("postgres-cdc",),
    ),
    FlinkOption(
        "scan.incremental.*",
        "all rows are copied in one transaction, whose place in the log is known",
        connectors=_CHANGES,
    ),
    FlinkOption("chunk-key.even-distribution.*", "rows are not copied in chunks", connectors=_CHANGES),
    FlinkOption("chunk-meta.group.size", "rows are not copied in chunks", connectors=_CHANGES),
    FlinkOption("scan.snapshot.fetch.size", "the rows of the snapshot come as a stream", connectors=_CHANGES),
    FlinkOption("connect.timeout", "a server has ten seconds to answer", connectors=_CHANGES),
    FlinkOption("connection.pool.size", "a table has one connection", connectors=_CHANGES),
    FlinkOption(
        "heartbeat.interval", "the place in the log moves on without changes of the table, too", connectors=_CHANGES
    ),
    FlinkOption(
        "scan.newly-added-table.enabled",
        "a table is one table",
        values=("false",),
        instead="Declare each table.",
        connectors=_CHANGES,
    ),
    FlinkOption("driver", "the database is reached without a driver in Java", connectors=_DATABASES),
    FlinkOption("connection.max-retry-timeout", "a server has ten seconds to answer", connectors=_DATABASES),
    FlinkOption(
        "scan.fetch-size", "rows are looked up by the keys of a batch, or copied by one query", connectors=_DATABASES
    ),
    FlinkOption(
        "scan.auto-commit", "rows are looked up by the keys of a batch, or copied by one query", connectors=_DATABASES
    ),
    FlinkOption(
        "scan.partition.*", "rows are looked up by the keys of a batch, or copied by one query", connectors=_DATABASES
    ),
    FlinkOption(
        "sink.bulk-flush.*", "the documents of a batch are written together, before it is committed", connectors=_SEARCH
    ),
    FlinkOption("sink.flush-on-checkpoint", "a batch is committed when its documents are written", connectors=_SEARCH),
    FlinkOption(
        "sink.delivery-guarantee",
        "a document that is written again takes its own place",
        values=("at-least-once", "none"),
        connectors=_SEARCH,
    ),
    FlinkOption(
        "failure-handler",
        "a request that no node takes is sent again, and a document that is refused ends the job",
        values=("fail", "retry-rejected"),
        instead="Filter the rows that the index does not take: no row is left out silently.",
        connectors=_SEARCH,
    ),
    FlinkOption("connection.max-retry-timeout", "sink.max-retries says how often it is tried", connectors=_SEARCH),
    FlinkOption("connection.request-timeout", "a node has a minute to answer", connectors=_SEARCH),
    FlinkOption("connection.timeout", "a node has a minute to answer", connectors=_SEARCH),
    FlinkOption("socket.timeout", "a node has a minute to answer", connectors=_SEARCH),
    FlinkOption("cache-enabled", "a catalog is asked once in a process", connectors=("iceberg",)),
    FlinkOption("clients", "connections to a catalog are the library's", connectors=("iceberg",)),
    FlinkOption("property-version", "there is one version of these options", connectors=("iceberg",)),
    FlinkOption("io-impl", "the address of a file says where it is", connectors=("iceberg",)),
    FlinkOption("hive-conf-dir", "the option uri says where the catalog is", connectors=("iceberg",)),
    FlinkOption("hadoop-conf-dir", "options with s3. and the like say how files are reached", connectors=("iceberg",)),
    FlinkOption(
        "write.upsert.enabled",
        "a row replaces the one that has its PRIMARY KEY, if the table has one",
        values=("true",),
        instead="Leave out PRIMARY KEY for a table whose rows are added.",
        connectors=("iceberg",),
    ),
    FlinkOption(
        "updateCheckIntervalMillis", "source.monitor-interval says how often a table is read", connectors=("delta",)
    ),
    FlinkOption("json.map-null-key.mode", "a MAP has no key that is NULL"),
    FlinkOption("json.map-null-key.literal", "a MAP has no key that is NULL"),
    FlinkOption("json.encode.decimal-as-plain-number", "a DECIMAL is the same number in either spelling"),
    FlinkOption("debezium-json.map-null-key.mode", "a MAP has no key that is NULL"),
    FlinkOption("debezium-json.map-null-key.literal", "a MAP has no key that is NULL"),
    FlinkOption("debezium-json.encode.decimal-as-plain-number", "a DECIMAL is the same number in either spelling"),
    FlinkOption(
        "csv.allow-comments",
        "no line is a comment",
        values=("false",),
        instead="Leave comments out with csv.ignore-parse-errors, or read lines with format raw, and filter them.",
    ),
    FlinkOption(
        "csv.disable-quote-character",
        "is taken for an empty csv.quote-character if it is true",
        values=("false",),
        means={"true": ("csv.quote-character", "")},
    ),
    FlinkOption("value.format", _OWN_FORMAT, connectors=("",)),
    FlinkOption("key.format", _OWN_FORMAT, connectors=("",)),
)


def accepted(table: Table, own: Iterable[str]) -> tuple[Table, tuple[StatementWarning, ...]]:
    """Return a table without the listed options, some of them translated into ours, and a notice for each.

    `own` are the names of the options of the connector and its formats; they are kept, even if they are listed here. Raises
    BindError if the table has an option and also the one that it is translated into, and UnsupportedError for a value that would
    change the rows.
    """
    names = {*own}
    listed = {name: option for name in table.options if name not in names and (option := _option(name, table))}
    if not listed:
        return table, ()
    options = {name: value for name, value in table.options.items() if name not in listed}
    option_spans = dict(table.option_spans)
    for name, option in listed.items():
        value = table.options[name]
        means = option.means.get("", option.means.get(value.lower()))
        if means is not None:
            other, fixed = means
            other = name.removesuffix(option.name) + other
            if other in options:
                message = f'table "{table.name}" has both "{name}" and "{other}"'
                raise BindError(message, table.option_span(name), hint="Leave out one of them.")
            options[other] = value if fixed is None else fixed
            if name in option_spans:
                option_spans[other] = option_spans[name]
        elif option.values and value.lower() not in option.values:
            message = f'table "{table.name}": option "{name}" with the value "{value}"'
            raise UnsupportedError(message, table.option_span(name, value=True), hint=option.instead)
    notices = (
        StatementWarning(f'option "{name}" {_effect(option, table.options[name])}', table.option_span(name))
        for name, option in listed.items()
    )
    return replace(table, options=options, option_spans=option_spans), tuple(notices)


def _effect(option: FlinkOption, value: str) -> str:
    is_taken = "" in option.means or value.lower() in option.means
    return option.why if is_taken else f"has no effect: {option.why}"


def _option(name: str, table: Table) -> FlinkOption | None:
    """Return the listed option of a name, None if there is none for the table's connector and formats.

    The options of a format are found with the prefix `key.` or `value.`, too.
    """
    bare = name
    for part in ("value.", "key."):
        form = table.options.get(f"{part}format", "").lower()
        if form and name.startswith(f"{part}{form}."):
            bare = name.removeprefix(part)
    form = bare.partition(".")[0]
    forms = {table.options.get(option, "").lower() for option in _FORMAT_OPTIONS}
    for option in OPTIONS:
        own = table.connector or ""
        if not option.covers(bare) or (option.connectors and own not in option.connectors):
            continue
        if option.name.startswith(("json.", "debezium-json.", "csv.")) and form not in forms:
            continue
        return option
    return None


def reference() -> Iterator[str]:
    """Yield the lines of the manual's table of these options, as Markdown."""
    yield from ("| option | values | connectors | |", "|---|---|---|---|")
    for option in OPTIONS:
        values = ", ".join(f"`{value}`" for value in (*option.values, *filter(None, option.means))) or "any"
        connectors = ", ".join(f"`{name}`" if name else "warehouse table" for name in option.connectors) or "any"
        yield f"| `{option.name}` | {values} | {connectors} | {option.why} |"
