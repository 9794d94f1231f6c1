"""The connectors that a table may name, and what each needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlstream.catalog import Table
from sqlstream.errors import BindError, Span, UnsupportedError, missing
from sqlstream.storage.formats import validate_options
from sqlstream.storage.units import parse_bytes, parse_duration

_WAREHOUSE_OPTIONS: Mapping[str, Callable[[str], object]] = {
    "source.monitor-interval": parse_duration,
    "source.max-bytes-per-batch": parse_bytes,
}
CONNECTORS = ("filesystem", "print", "blackhole")
# What Flink has beside them.
_ELSEWHERE = (
    "kafka",
    "upsert-kafka",
    "jdbc",
    "datagen",
    "socket",
    "nexmark",
    "kinesis",
    "elasticsearch",
    "hbase",
    "savepoint",
)


def validate(table: Table) -> None:
    """Raise BindError or UnsupportedError unless the table's options fit its connector."""
    match table.connector:
        case None:
            _validate_warehouse_table(table)
        case "filesystem":
            validate_options(table)
        case "print" | "blackhole":
            for name in table.options:
                if name != "connector":
                    message = f'table "{table.name}": option "{name}" does not exist for connector "{table.connector}"'
                    raise BindError(message, table.span)
        case other if other in _ELSEWHERE:
            raise UnsupportedError(
                f'connector "{other}"', table.span, hint=f"existing connectors: {', '.join(CONNECTORS)}"
            )
        case other:
            raise BindError(
                f'table "{table.name}": connector "{other}" does not exist',
                table.span,
                hint=missing("connector", other or "", CONNECTORS),
            )


def _validate_warehouse_table(table: Table) -> None:
    for name, value in table.options.items():
        if name not in _WAREHOUSE_OPTIONS:
            raise BindError(
                f'table "{table.name}": option "{name}" needs a connector',
                table.span,
                hint=f"existing connectors: {', '.join(CONNECTORS)}; a table without one is kept in the warehouse",
            )
        _check(table, name, value, _WAREHOUSE_OPTIONS)


def _check(table: Table, name: str, value: str, known: Mapping[str, Callable[[str], object]]) -> None:
    try:
        known[name](value)
    except ValueError as error:
        raise BindError(f'table "{table.name}": option "{name}": {error}', table.span) from None


def is_bounded(table: Table) -> bool:
    """Whether reading the table comes to an end."""
    return "source.monitor-interval" not in table.options


def check_source(table: Table, span: Span | None) -> None:
    """Raise unless the table can be read by a job."""
    match table.connector:
        case "filesystem":
            return
        case None if table.primary_key:
            raise UnsupportedError(
                f'reading table "{table.name}" with a PRIMARY KEY in a job',
                span,
                hint="Leave out PRIMARY KEY; a job reads the rows in the order in which they were appended.",
            )
        case None:
            return
        case other:
            raise BindError(f'table "{table.name}" with connector "{other}" cannot be read', span)
