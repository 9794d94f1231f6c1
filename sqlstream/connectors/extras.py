"""Libraries that only extras of sqlstream install. They are imported when a table needs them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from sqlstream.catalog import Table
from sqlstream.distribution import install_command
from sqlstream.errors import Span, UsageError


def imported(
    table: Table, extra: str, modules: Sequence[str], *, called: str = "", asks: str = "", span: Span | None = None
) -> ModuleType:
    """Import the modules of a library, and return the first of them.

    Raises UsageError if one cannot be imported. `extra` is the extra of sqlstream that installs the library, `called` its name
    for users (by default the first module), and `asks` what needs it (by default the table's connector).
    """
    try:
        loaded_modules = [import_module(module) for module in modules]
    except ImportError as error:
        asks = asks or f'the connector "{table.connector}"'
        message = f'table "{table.name}": {asks} needs {called or modules[0]}, which cannot be imported: {error}'
        hint = f"Install it: {install_command(extra)}."
        raise UsageError(message, span or table.span, hint=hint) from error
    return loaded_modules[0]
