"""The connectors that a table may name, and what each needs."""

from __future__ import annotations

from sqlstream.catalog import IDLE_TIMEOUT, Table
from sqlstream.errors import BindError, Span, UnsupportedError, missing, nearest
from sqlstream.storage.formats import validate_options
from sqlstream.storage.units import parse_duration

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
            _check_idle_timeout(table)
            names = [name for name in table.options if name != IDLE_TIMEOUT]
            if typed := nearest("connector", names):
                message = f'table "{table.name}": option "{typed}" does not exist'
                raise BindError(message, table.span, hint='did you mean "connector"?')
            for name in names:
                raise BindError(
                    f'table "{table.name}": option "{name}" needs a connector',
                    table.span,
                    hint=f"existing connectors: {', '.join(CONNECTORS)}; a table without options is kept in the warehouse",
                )
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


def _check_idle_timeout(table: Table) -> None:
    try:
        parse_duration(table.options.get(IDLE_TIMEOUT, "0"))
    except ValueError as error:
        raise BindError(f'table "{table.name}": option "{IDLE_TIMEOUT}": {error}', table.span) from None


def check_source(table: Table, span: Span | None) -> None:
    """Raise unless the table can be read by a job."""
    match table.connector:
        case "filesystem" | "values":
            return
        case None:
            raise UnsupportedError(
                f'reading the warehouse table "{table.name}" in a job',
                span,
                hint="Query it with sqlstream query, or write one query from the files to the result.",
            )
        case other:
            raise BindError(f'table "{table.name}" with connector "{other}" cannot be read', span)
