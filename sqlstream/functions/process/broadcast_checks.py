"""Checks of classes with broadcast tables, whose methods write the states that all keys share."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from types import FunctionType

from sqlstream.catalog import StateDeclaration, TableArgument
from sqlstream.errors import BindError
from sqlstream.functions import source_locations
from sqlstream.functions.process.api import ProcessOptions, table_options


def is_broadcast(process_class: type, method: str) -> bool:
    """Return whether a method of a class receives the rows of a broadcast table."""
    options = table_options(getattr(process_class, method))
    return options is not None and options.broadcast


def check_emitting(inner: FunctionType, hint: object, what: str, options: ProcessOptions, root: str) -> None:
    """Raise BindError if a method of a broadcast table emits rows although its class does not allow it, or its hint is None."""
    is_silent = hint in (None, type(None))
    if is_silent and not inspect.isgeneratorfunction(inner):
        return
    span = source_locations.definition(inner, root)
    if options.vectorized:
        hint_text = "Write -> None, and keep them in a state: rows of a key emit. A class that is not vectorized emits here, too."
        raise BindError(f"{what} emits rows of a broadcast table, but the class is vectorized", span, hint=hint_text)
    if options.changelog_mode:
        hint_text = "Write -> None. What a method yields that ctx.for_each_key(self.method) calls belongs to a key."
        message = f"{what} emits rows, but those of a broadcast table have no key, and the class emits changes"
        raise BindError(message, span, hint=hint_text)
    if is_silent:
        raise BindError(f"{what} yields rows, but its hint is None", span, hint="Write -> Iterator[Alert].")


def check_broadcast(
    process_class: type, what: str, tables: Sequence[TableArgument], states: Sequence[StateDeclaration], root: str = ""
) -> None:
    """Raise BindError unless broadcast tables and states fit together; errors call the class `what`."""
    root = root or os.getcwd()
    shared = [s for s in states if s.broadcast]
    broadcast = [t for t in tables if t.broadcast]
    for one in shared:
        span = source_locations.assignment(process_class, one.name, root)
        named = f'broadcast state "{one.name}" of {what}'
        if not broadcast:
            hint = "Write @table(broadcast=True) above the method that writes it."
            raise BindError(f"{named}: no table is broadcast", span, hint=hint)
        if one.refreshed_by == "read":
            hint = "Its time to live counts from the last write: each bucket reads its own copy."
            raise BindError(f'{named} has refresh="read"', span, hint=hint)
        if one.visible:
            hint = "An expired value is not seen: each bucket cleans up its own copy, at its own time."
            raise BindError(f'{named} has visibility="until_cleaned"', span, hint=hint)
    if not broadcast:
        return
    inner = source_locations.unwrapped(getattr(process_class, broadcast[0].method))
    span = source_locations.definition(inner, root) if inner is not None else None
    if len(broadcast) == len(tables):
        hint = "One table at least has keys, or is read row by row: @table without broadcast."
        raise BindError(f"all tables of {what} are broadcast", span, hint=hint)
