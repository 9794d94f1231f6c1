"""The libraries of lakehouses, which are optional dependencies: imported when a table needs them."""

from __future__ import annotations

from typing import Any

from sqlstream.catalog import Table
from sqlstream.connectors.extras import imported
from sqlstream.errors import Span

# The modules to import for each kind of lakehouse. The connector and the extra have the same name.
_LIBRARIES = {"delta": ("deltalake",), "iceberg": ("pyiceberg", "pyiceberg.catalog", "pyiceberg.exceptions")}
LAKEHOUSES = tuple(_LIBRARIES)


def library(lakehouse: str, table: Table, span: Span | None = None, asks: str = "") -> Any:
    """Return the library of a lakehouse, `delta` or `iceberg`.

    Raises UsageError if it is not installed; in the message, `asks` names what needs it, by default the connector.
    """
    asks = asks or f'the connector "{lakehouse}"'
    return imported(table, lakehouse, _LIBRARIES[lakehouse], asks=asks, span=span)
