"""Checks of a declared table against its connector: its options and columns, and how jobs and queries may use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from sqlstream.catalog import MAX_AHEAD, OP_COLUMN, Column, Table
from sqlstream.connectors import elasticsearch_names, flink_1_10, flink_lakes, flink_options, jdbc, lookup
from sqlstream.connectors.formats.registry import FORMATS
from sqlstream.connectors.guarantees import Guarantee
from sqlstream.connectors.guarantees import guarantee as line
from sqlstream.connectors.interface import Connector, SinkContext, TableSink, TableSource, WorkerSink
from sqlstream.connectors.options import (
    CONNECTOR,
    FORMAT,
    SCAN_OPTIONS,
    TableOption,
    check_required,
    check_value,
    no_such_option,
)
from sqlstream.connectors.options import named as by_name
from sqlstream.connectors.registry import (
    UnavailableConnector,
    built_in,
    connector_of,
    exists,
    is_built_in,
    names,
    source_of,
)
from sqlstream.connectors.registry import named as connector_named
from sqlstream.connectors.translation import UntranslatableTable
from sqlstream.errors import (
    BindError,
    Span,
    SqlStreamError,
    StatementWarning,
    UnsupportedError,
    UsageError,
    missing,
    nearest,
)


def validate(table: Table) -> None:
    """Raise BindError or UnsupportedError unless the table's options and columns fit its connector.

    A table whose connector's package cannot be imported passes.
    """
    try:
        connector = connector_of(table)
    except UnavailableConnector:
        # Only statements that use the table fail, see `usable`.
        return
    _validate_columns(table, connector)
    _check_options(table, connector)
    if MAX_AHEAD in table.options and connector.source_type is not None and table.watermark is None:
        message = f'table "{table.name}": option "{MAX_AHEAD}" needs a watermark'
        raise BindError(message, table.span, hint="Declare it: WATERMARK FOR ts AS ts - INTERVAL '5' SECOND.")
    connector.validate(table)


def translated_options(
    name: str, options: Mapping[str, str], span_of: Callable[[str], Span | None]
) -> dict[str, tuple[str, str]]:
    """Translate the options of a table `name` of Flink's `jdbc`, `iceberg` and so on; return other options unchanged.

    The result maps the name of an option to (its value, the option that it was translated from). `span_of` returns the position
    of an option in the statement. Raises UnsupportedError for a table that has no counterpart, and for options of Flink before
    1.11, which have other names in Flink, too.
    """
    try:
        match options.get("connector", "").lower():
            case "" if flink_1_10.TYPE in options:
                raise flink_1_10.refusal(options)
            case jdbc.JDBC:
                plain = jdbc.translated(options)
            case "iceberg":
                plain = flink_lakes.translated_iceberg(name, options)
            case "delta":
                plain = flink_lakes.translated_delta(options)
            case server if server in elasticsearch_names.NAMES:
                plain = elasticsearch_names.translated(options)
            case _:
                return {option: (value, option) for option, value in options.items()}
    except UntranslatableTable as error:
        raise UnsupportedError(error.message, span_of(error.option), hint=error.hint) from None
    return {option: (value, plain.origins[option]) for option, value in plain.options.items()}


def own_location(name: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with which a table `name` that takes `options` of another one is a table of its own, as in Flink."""
    return {"catalog-table": name} if flink_lakes.has_name_of_declaration(options) else {}


def options_today(options: Mapping[str, str]) -> dict[str, tuple[str, str]] | None:
    """Return the options of a table of Flink before 1.11 in words of today, as (value, former name); None for other tables."""
    if flink_1_10.TYPE not in options:
        return None
    values = flink_1_10.today(options)
    return {name: (values[name], origin) for origin, name in flink_1_10.rewritten(options).items()}


def without_flinks(table: Table) -> tuple[Table, tuple[StatementWarning, ...]]:
    """Return a table without the options of Flink that have no effect here, and a notice for each, see `flink_options`.

    A connector may take any options: then all of them are its own. A table whose connector does not exist is returned unchanged.
    """
    try:
        connector = connector_of(table)
    except SqlStreamError:
        return table, ()
    if connector.any_options:
        return table, ()
    of_formats = (option for name in connector.formats for option in _format_options(connector, name))
    return flink_options.accepted(table, [option.name for option in (*options_of(connector), *of_formats)])


def _validate_columns(table: Table, connector: Connector) -> None:
    """Raise BindError or UnsupportedError for METADATA columns or PARTITIONED BY that the connector does not have."""
    for column in table.columns:
        if column.metadata is None or column.metadata in connector.metadata:
            continue
        if not connector.metadata:
            having = " or ".join(f'"{name}"' for name in built_in() if connector_named(name).metadata)
            message = f'column "{column.name}": only tables with the connector {having} have METADATA'
            raise BindError(message, table.span)
        hint = missing("key", column.metadata, connector.metadata)
        raise BindError(f'column "{column.name}": metadata "{column.metadata}" does not exist', table.span, hint=hint)
    if table.partitioned_by and not connector.partitioned:
        hint = "Leave it out: state and tables are partitioned by sqlstream."
        having = " or ".join(f"'{name}'" for name in built_in() if connector_named(name).partitioned)
        raise UnsupportedError(f"PARTITIONED BY without the connector {having}", table.span, hint=hint)
    if table.partitioned_by and not table.stored:
        raise BindError(f'table "{table.name}" needs a column that is not in PARTITIONED BY', table.span)


def options_of(connector: Connector) -> tuple[TableOption, ...]:
    """Return the options that all tables of a connector can have, whatever their format."""
    formats = (
        (replace(FORMAT, required=connector.needs_format, example=connector.formats[0]),) if connector.formats else ()
    )
    return (
        *connector.options,
        *formats,
        *(SCAN_OPTIONS if connector.source_type else ()),
        *(lookup.OPTIONS if connector.lookup_type else ()),
    )


def all_options(connector: Connector) -> tuple[TableOption, ...]:
    """Return the options that tables of a connector can have, and the options of all its formats."""
    of_formats = (option for name in connector.formats for option in _format_options(connector, name))
    return tuple(by_name([CONNECTOR, *options_of(connector), *of_formats]).values())


def _check_options(table: Table, connector: Connector) -> None:
    if table.connector is None:
        _check_warehouse_options(table, by_name(options_of(connector)))
        return
    of = f'connector "{connector.name}"'
    options = by_name([CONNECTOR, *options_of(connector), *connector.own_options(table)])
    every = {**options, **by_name(o for name in connector.formats for o in _format_options(connector, name))}
    try:
        check_required(table, options_of(connector))
    except BindError:
        for name in table.options:
            # The missing option may be there under a wrong name.
            if name not in every and not connector.any_options:
                raise no_such_option(table, name, sorted(every), of) from None
        raise
    if connector.formats and "format" in table.options:
        options = {**options, **by_name(_format_options(connector, _format(table, connector)))}
        of = f'format "{table.options["format"].lower()}"'
    for name, value in table.options.items():
        if name in options:
            check_value(table, options[name], value)
        elif not connector.any_options:
            raise no_such_option(table, name, options, of)


def _format_options(connector: Connector, name: str) -> Sequence[TableOption]:
    form, of_values = FORMATS[name], connector.of_values
    left_out = {*(() if connector.changelogs else (OP_COLUMN,)), *(form.of_files if of_values else ())}
    return [o for o in form.options if o.name not in left_out]


def _format(table: Table, connector: Connector) -> str:
    """Return the name of a table's format. Raises BindError unless its connector has this format."""
    name, at = table.options["format"].lower(), table.option_span("format", value=True)
    if name not in FORMATS:
        hint = missing("format", name, connector.formats)
        raise BindError(f'table "{table.name}": format "{name}" does not exist', at, hint=hint)
    if name not in connector.formats:
        hint = f"Formats that it has: {', '.join(connector.formats)}."
        message = f'table "{table.name}": connector "{connector.name}" has no format "{name}"'
        raise BindError(message, at, hint=hint if connector.needs_format else f"{hint[:-1]}, or none.")
    return name


def _check_warehouse_options(table: Table, options: Mapping[str, TableOption]) -> None:
    if typed := nearest("connector", list(table.options)):
        message = f'table "{table.name}": option "{typed}" does not exist'
        raise BindError(message, table.option_span(typed), hint='did you mean "connector"?')
    for name, value in table.options.items():
        if name not in options:
            raise BindError(
                f'table "{table.name}": option "{name}" needs a connector',
                table.option_span(name),
                hint=f"existing connectors: {', '.join(names())}; a table without one is kept in the warehouse",
            )
        check_value(table, options[name], value)


def inferred_columns(table: Table, project: str) -> Sequence[Column] | None:
    """Return the columns of a table that declares none; None if its connector is unknown or cannot infer them."""
    return connector_of(table).columns(table, project) if exists(table.connector) else None


def may_infer(table: Table) -> bool:
    """Whether `inferred_columns` may succeed at another time for a table that declares no columns."""
    try:
        return exists(table.connector) and connector_of(table).can_infer(table)
    except UnavailableConnector:
        return True


def no_columns(table: Table) -> BindError:
    """Return the error for a table that declares no columns, and whose connector cannot infer them."""
    kinds = " and for ".join(c.infers for c in map(connector_named, built_in()) if c.infers)
    hint = f"Declare them; they are inferred for {kinds} only."
    return BindError(f'table "{table.name}" has no columns', table.span, hint=hint)


def identifying_options(table: Table) -> Mapping[str, str]:
    """Return the options that identify a source table: if one of them changes, the job that reads the table is another job."""
    connector = connector_of(table)
    form = FORMATS.get(table.options.get("format", "").lower())
    mutable = {o.name for o in (*options_of(connector), *(form.options if form else ())) if o.mutable}
    return connector.identifying_options(table, {k: v for k, v in table.options.items() if k not in mutable})


def is_bounded(table: Table) -> bool:
    """Whether reading the table ends by itself. A socket is unbounded, although it ends when the other side closes it."""
    return source_of(table).bounded


def usable(table: Table) -> Table:
    """Return a declared table as its connector prepares it.

    An error of the connector becomes the table's `problem`, so that only statements that use the table fail. The error depends on
    the machine, even if it is about an option: on the packages, libraries, Python classes and certificates that are there.
    """
    try:
        return connector_of(table).prepare(table)
    except SqlStreamError as error:
        return replace(table, problem=error)


def check_usable(table: Table) -> None:
    """Raise the table's `problem`, such as a missing package, if it has one."""
    if table.problem is not None:
        raise table.problem


def check_source(table: Table, span: Span | None) -> None:
    """Raise a SqlStreamError unless a job can read the table; `span` is where its query names it."""
    check_usable(table)
    connector = connector_of(table)
    if (source := connector.source(table)) is not None:
        _check_answers(table, source, ("replay", "replay_reason", "rewinds", "slot"))
        source.check(span)
    elif connector.lookup(table) is not None:
        message = (
            f'table "{table.name}" is a lookup table ({table.connector}): rows are looked up in it, and it is not read'
        )
        hint = f"Write JOIN {table.name} FOR SYSTEM_TIME AS OF o.p, where p AS PROCTIME() is a column of o."
        raise UnsupportedError(message, span, hint=hint)
    else:
        raise BindError(f'table "{table.name}" is a sink ({table.connector}): it is written, and cannot be read', span)


def _check_answers(table: Table, end: TableSource | TableSink, required: Sequence[str]) -> None:
    """Raise UsageError if the class of a source or sink does not declare an attribute that has no safe default."""
    kind = type(end)
    if lacking := [name for name in required if not hasattr(kind, name)]:
        raise UsageError(
            f'connector "{table.connector}": class "{kind.__name__}" does not declare {", ".join(lacking)}',
            hint="Declare each as an attribute of the class. sqlstream.testing.check_connector says what a connector lacks.",
        )


def check_lookup(table: Table, span: Span | None) -> None:
    """Raise a SqlStreamError unless a job can look up rows of the table; `span` is where its query names it."""
    check_usable(table)
    if connector_of(table).lookup(table) is None:
        having = ", ".join(name for name in built_in() if connector_named(name).lookup_type)
        hint = f"Connectors that can: {having}; and tables of the warehouse."
        message = f'rows of table "{table.name}" with connector "{table.connector}" cannot be looked up'
        raise BindError(message, span, hint=hint)


def check_sink(table: Table, span: Span | None) -> None:
    """Raise a SqlStreamError unless a job can write the table; `span` is where its query names it."""
    check_usable(table)
    connector = connector_of(table)
    sink = connector.sink(table)
    if table.has_changes and not (sink is not None and sink.takes_changes):
        hint = "Write into a warehouse table (one without a connector), or into a table without that option."
        raise UnsupportedError(f'writing table "{table.name}", whose rows are read as changes', span, hint=hint)
    if sink is not None:
        _check_answers(table, sink, ("delivery", "delivery_reason"))
        sink.check(span)
    elif connector.source(table) is None and connector.lookup(table) is not None:
        message = f'table "{table.name}" is a lookup table ({table.connector}): it cannot be written'
        raise BindError(message, span)
    else:
        raise BindError(f'table "{table.name}" is a source ({table.connector}): it cannot be written', span)


def discard_written(connectors: Iterable[str], context: SinkContext) -> None:
    """Delete what a dropped job has written into one sink, whose records are in `context.records`.

    `connectors` are the names of the connectors that the sink may have had; unknown names are ignored.
    """
    for name in sorted(set(connectors) & {*names()}):
        sink = connector_named(name).sink_type
        if sink is not None and issubclass(sink, WorkerSink):
            sink.discard(context)


def is_queried(table: Table) -> bool:
    """Whether state queries can read a declared table directly. Connectors of other packages are not asked."""
    return is_built_in(table.connector) and connector_of(table).has_snapshots


def not_queried(table: Table) -> str:
    """Return, in sentences, why a state query cannot read a declared table."""
    if table.connector is None:
        return "It is a table of the warehouse, into which no job has written yet."
    # Connectors of other packages are not imported for a query.
    connector = connector_of(table) if is_built_in(table.connector) else None
    if connector is not None and connector.lookup(table) is not None:
        return f"It is a lookup table ({table.connector}): a job joins it, with FOR SYSTEM_TIME AS OF."
    if connector is not None and connector.source_type is None:
        return f"It is a sink ({table.connector}) of which nothing is kept. Write into a table without a connector."
    return f"It is declared with the connector {table.connector}, whose rows only a job reads: query what that writes or keeps."


def source_guarantee(table: Table) -> Guarantee:
    """Return the guarantee of a source table."""
    source = source_of(table)
    return Guarantee(source.replay.times, source.replay_reason, f"source {table.name}")


def guarantee(sources: Sequence[Table], sink: Table) -> str:
    """Return the guarantee of a job end to end, in a line, see `guarantees.guarantee`."""
    table_sink = connector_of(sink).sink(sink)
    assert table_sink is not None, sink.connector
    end = Guarantee(table_sink.delivery.times, table_sink.delivery_reason, f"sink {sink.name}")
    return line([*map(source_guarantee, sources), end])
