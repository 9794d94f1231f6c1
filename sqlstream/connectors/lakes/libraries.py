"""The libraries of lakehouses, which are extras: imported when a table needs them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sqlstream.catalog import Table
from sqlstream.errors import Span, UsageError

# The library of each kind of lakehouse, by the connector and the extra that have its name, and what is imported of it.
_LIBRARIES = {"delta": ("deltalake",), "iceberg": ("pyiceberg", "pyiceberg.catalog", "pyiceberg.exceptions")}
LAKEHOUSES = tuple(_LIBRARIES)


def library(lakehouse: str, table: Table, span: Span | None = None, asks: str = "") -> Any:
    """Return the library of a lakehouse. Raises UsageError, with what of the table `asks` for it, when it is not installed."""
    name, *parts = _LIBRARIES[lakehouse]
    try:
        found = import_module(name)
        for part in parts:
            import_module(part)
    except ImportError as error:
        asks = asks or f'the connector "{lakehouse}"'
        message = f'table "{table.name}": {asks} needs {name}, which cannot be imported: {error}'
        raise UsageError(
            message, span or table.span, hint=f"Install it: pip install 'sqlstream[{lakehouse}]'."
        ) from error
    return found
