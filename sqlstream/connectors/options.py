"""The connectors that a table may name, and what each needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sqlstream.catalog import IDLE_TIMEOUT, MAX_AHEAD, Table
from sqlstream.connectors.datagen.source import Generator
from sqlstream.connectors.filesystem.sink import check_path
from sqlstream.connectors.formats.reading import METADATA, validate_format, validate_options
from sqlstream.connectors.interface import Sink, Source
from sqlstream.connectors.lookup import OPTIONS, without_options
from sqlstream.connectors.lookup_tables import check_driver
from sqlstream.connectors.nexmark import source as nexmark
from sqlstream.connectors.python.source import implemented, kind
from sqlstream.errors import BindError, Span, SqlStreamError, UnsupportedError, missing, nearest
from sqlstream.units import parse_bytes, parse_count, parse_duration

CONNECTORS = ("filesystem", "datagen", "nexmark", "socket", "python", "duckdb", "postgresql", "print", "blackhole")
# Those of tables that can be looked up.
OUTSIDE = (None, "filesystem", "python", "duckdb", "postgresql")
SOURCES = ("filesystem", "datagen", "nexmark", "socket", "python")
# What Flink has beside them.
_ELSEWHERE = ("kafka", "upsert-kafka", "jdbc", "kinesis", "elasticsearch", "hbase", "savepoint")

_Checks = Mapping[str, Callable[[str], object]]
_WAREHOUSE: _Checks = {"source.monitor-interval": parse_duration, "source.max-bytes-per-batch": parse_bytes}
_SOCKET: _Checks = {"connector": str, "hostname": str, "port": parse_count, "format": str}


def validate(table: Table) -> None:
    """Raise BindError or UnsupportedError unless the table's options fit its connector."""
    _validate_columns(table)
    table = _looked_up(_waited_for(table))
    match table.connector:
        case None:
            if typed := nearest("connector", list(table.options)):
                message = f'table "{table.name}": option "{typed}" does not exist'
                raise BindError(message, table.option_span(typed), hint='did you mean "connector"?')
            for name in table.options:
                if name not in _WAREHOUSE:
                    raise BindError(
                        f'table "{table.name}": option "{name}" needs a connector',
                        table.option_span(name),
                        hint=f"existing connectors: {', '.join(CONNECTORS)}; a table without one is kept in the warehouse",
                    )
            _check(table, _WAREHOUSE)
        case "filesystem":
            validate_options(table)
        case "datagen":
            Generator(table).validate()
        case "nexmark":
            nexmark.validate(table)
        case "socket":
            _validate_socket(table)
        case "duckdb":
            _need(table, {"path": "users.duckdb", "table": "users"})
            _check(table, {"connector": str, "path": str, "table": str})
        case "postgresql":
            _need(table, {"url": "postgresql://user@localhost/database", "table": "users"})
            _check(table, {"connector": str, "url": str, "table": str})
        case "python":
            if "function" not in table.options:
                _need(table, {"class": "module.Class"})
            if "source.monitor-interval" in table.options:
                _check(table, {"source.monitor-interval": parse_duration})
        case "print" | "blackhole":
            for name in table.options:
                if name != "connector":
                    message = f'table "{table.name}": option "{name}" does not exist for connector "{table.connector}"'
                    raise BindError(message, table.option_span(name))
        case other if other in _ELSEWHERE:
            raise UnsupportedError(
                f'connector "{other}"',
                table.option_span("connector", value=True),
                hint=f"existing connectors: {', '.join(CONNECTORS)}",
            )
        case other:
            raise BindError(
                f'table "{table.name}": connector "{other}" does not exist',
                table.option_span("connector", value=True),
                hint=missing("connector", other or "", CONNECTORS),
            )


def _waited_for(table: Table) -> Table:
    """Check the options that all tables have which can be read; return the table without them."""
    if table.connector not in (None, *SOURCES):
        return table
    known = {IDLE_TIMEOUT: parse_duration, MAX_AHEAD: parse_duration}
    _check(table, known, {k: v for k, v in table.options.items() if k in known})
    if MAX_AHEAD in table.options and table.watermark is None:
        message = f'table "{table.name}": option "{MAX_AHEAD}" needs a watermark'
        raise BindError(message, table.span, hint="Declare it: WATERMARK FOR ts AS ts - INTERVAL '5' SECOND.")
    return replace(table, options={k: v for k, v in table.options.items() if k not in known})


def _looked_up(table: Table) -> Table:
    """Check the options of tables that can be looked up; return the table without them."""
    if table.connector not in OUTSIDE:
        return table
    _check(table, OPTIONS, {k: v for k, v in table.options.items() if k in OPTIONS})
    return without_options(table)


def _validate_columns(table: Table) -> None:
    """Refuse metadata and partitions where there are none, and keys that do not exist."""
    for column in table.columns:
        if column.metadata is None:
            continue
        if table.connector != "filesystem":
            message = f'column "{column.name}": only tables with the connector "filesystem" have METADATA'
            raise BindError(message, table.span)
        if column.metadata not in METADATA:
            hint = missing("key", column.metadata, METADATA)
            raise BindError(
                f'column "{column.name}": metadata "{column.metadata}" does not exist', table.span, hint=hint
            )
    if table.partitioned_by and table.connector != "filesystem":
        hint = "Leave it out: state and tables are partitioned by sqlstream."
        raise UnsupportedError("PARTITIONED BY without the connector 'filesystem'", table.span, hint=hint)
    if table.partitioned_by and not table.stored:
        raise BindError(f'table "{table.name}" needs a column that is not in PARTITIONED BY', table.span)


def _validate_socket(table: Table) -> None:
    _need(table, {"hostname": "localhost", "port": "9999"})
    options = {k: v for k, v in table.options.items() if k in _SOCKET or "format" not in table.options}
    _check(table, _SOCKET, options)
    if "format" in table.options:
        if table.options["format"].lower() not in ("json", "csv"):
            message = f'table "{table.name}": a socket has the format "json" or "csv", or none'
            raise BindError(message, table.option_span("format", value=True))
        validate_format(table, _SOCKET)
    elif len(table.physical) != 1:
        hint = "Declare one STRING column, or set the format to 'json' or 'csv'."
        raise BindError(f'table "{table.name}" has {len(table.physical)} columns, a line is one', table.span, hint=hint)


def _need(table: Table, required: Mapping[str, str]) -> None:
    for name, example in required.items():
        if not table.options.get(name):
            hint = f"Write it into WITH (..): '{name}' = '{example}'."
            raise BindError(f'table "{table.name}" needs the option "{name}"', table.span, hint=hint)


def _check(table: Table, known: _Checks, options: Mapping[str, str] | None = None) -> None:
    for name, value in (table.options if options is None else options).items():
        if name not in known and table.connector == "python":
            continue
        if name not in known:
            message = f'table "{table.name}": option "{name}" does not exist for connector "{table.connector}"'
            raise BindError(message, table.option_span(name), hint=missing("option", name, known))
        try:
            known[name](value)
        except ValueError as error:
            raise BindError(f'table "{table.name}": option "{name}": {error}', table.span) from None


def is_bounded(table: Table) -> bool:
    """Whether reading the table comes to an end by itself; a socket ends when the other side does."""
    match table.connector:
        case "datagen":
            return Generator(table).total is not None
        case "nexmark":
            return nexmark.Settings.of(table).total is not None
        case "socket":
            return False
    return "source.monitor-interval" not in table.options


def usable(table: Table) -> Table:
    """Return a declared table ready for use; where what it needs is not installed, with that as its problem.

    So only those that use the table fail. Raises BindError for what is declared wrongly.
    """
    try:
        table = implemented(table)
        check_driver(table)
    except SqlStreamError as error:
        return replace(table, problem=error)
    return table


def check_usable(table: Table) -> None:
    """Raise what is wrong with a table that is declared well, such as a package that it needs and that is missing."""
    if table.problem is not None:
        raise table.problem


def check_source(table: Table, span: Span | None) -> None:
    """Raise unless the table can be read by a job."""
    check_usable(table)
    match table.connector:
        case None if table.primary_key:
            raise UnsupportedError(
                f'reading table "{table.name}" with a PRIMARY KEY in a job',
                span,
                hint="Leave out PRIMARY KEY; a job reads the rows in the order in which they were appended.",
            )
        case None | "filesystem" | "values" | "datagen" | "nexmark" | "socket":
            return
        case "python" if "class" in table.options and issubclass(kind(table), Source):
            return
        case "duckdb" | "postgresql" | "python" if "class" not in table.options:
            hint = f"Write JOIN {table.name} FOR SYSTEM_TIME AS OF o.p, where p AS PROCTIME() is a column of o."
            raise UnsupportedError(
                f'table "{table.name}" is a lookup table ({table.connector}): rows are looked up in it, and it is not read',
                span,
                hint=hint,
            )
        case other:
            raise BindError(f'table "{table.name}" is a sink ({other}): it is written, and cannot be read', span)


def check_lookup(table: Table, span: Span | None) -> None:
    """Raise unless rows of the table can be looked up."""
    check_usable(table)
    if table.connector not in OUTSIDE or (table.connector == "python" and "function" not in table.options):
        hint = f"Connectors that can: {', '.join(c for c in OUTSIDE if c)}; and tables of the warehouse."
        raise BindError(
            f'rows of table "{table.name}" with connector "{table.connector}" cannot be looked up', span, hint=hint
        )


def check_sink(table: Table, span: Span | None) -> None:
    """Raise unless the table can be written by a job."""
    check_usable(table)
    if table.has_changes:
        hint = "Write into a warehouse table (one without a connector), or into a table without that option."
        raise UnsupportedError(f'writing table "{table.name}", whose rows are read as changes', span, hint=hint)
    match table.connector:
        case "filesystem":
            check_path(table)
        case None | "print" | "blackhole":
            return
        case "python" if "class" in table.options and issubclass(kind(table), Sink):
            return
        case "python" | "duckdb" | "postgresql" if "class" not in table.options:
            message = f'table "{table.name}" is a lookup table ({table.connector}): it cannot be written'
            raise BindError(message, span)
        case other:
            raise BindError(f'table "{table.name}" is a source ({other}): it cannot be written', span)


def not_queried(table: Table) -> str:
    """Return why a declared table cannot be read by a query over state, as sentences."""
    match table.connector:
        case None:
            return "It is a table of the warehouse, into which no job has written yet."
        case "duckdb" | "postgresql" | "python" if "class" not in table.options:
            return f"It is a lookup table ({table.connector}): a job joins it, with FOR SYSTEM_TIME AS OF."
        case "print" | "blackhole":
            return f"It is a sink ({table.connector}) of which nothing is kept. Write into a table without a connector."
        case other:
            return f"It is declared with the connector {other}, whose rows only a job reads: query what that writes or keeps."
