"""The libraries of lakehouses, which are extras: imported when a table needs them."""

from __future__ import annotations

from typing import Any

from sqlstream.catalog import Table
from sqlstream.connectors.extras import imported
from sqlstream.errors import Span

# The library of each kind of lakehouse, by the connector and the extra that have its name, and what is imported of it.
_LIBRARIES = {"delta": ("deltalake",), "iceberg": ("pyiceberg", "pyiceberg.catalog", "pyiceberg.exceptions")}
LAKEHOUSES = tuple(_LIBRARIES)


def library(lakehouse: str, table: Table, span: Span | None = None, asks: str = "") -> Any:
    """Return the library of a lakehouse. Raises UsageError, with what of the table `asks` for it, when it is not installed."""
    asks = asks or f'the connector "{lakehouse}"'
    return imported(table, lakehouse, _LIBRARIES[lakehouse], asks=asks, span=span)
