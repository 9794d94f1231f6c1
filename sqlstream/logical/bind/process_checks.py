"""Checks of whole calls of process functions: keyed state without keys, repeated names of columns."""

from __future__ import annotations

from collections.abc import Sequence

from sqlstream.catalog import Column, ProcessFunction
from sqlstream.duck.types import INTEGERS, is_changed
from sqlstream.errors import BindError, Span
from sqlstream.logical.plan.expressions import Expression
from sqlstream.logical.plan.process import ROWTIME, Process

_RENAME = "Rename the field in Python, or the column in a subquery: TABLE (SELECT k AS key, .. FROM t)."
_TIMESTAMPS = {"TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP WITH TIME ZONE"}


def called(function: ProcessFunction) -> str:
    """Return the name of a process function in errors."""
    return f'process function "{function.name}"'


def alike(own: str, wanted: str) -> bool:
    """Return whether values of both types have the same Python class, so that a column needs no conversion for a row."""
    if own == wanted or {own, wanted} <= INTEGERS or {own, wanted} <= _TIMESTAMPS:
        return True
    return own.startswith("DECIMAL(") and wanted.startswith("DECIMAL(")


def check_state(function: ProcessFunction, keys: Sequence[Expression], span: Span) -> None:
    """Raise BindError if a call has no keys, but the function has keyed states, timers or upserts."""
    if keys:
        return
    what = "it emits the row of each key" if function.changelog_mode == "upsert" else None
    if function.keyed_states:
        what = f"it keeps {', '.join(s.name for s in function.keyed_states)} for each key"
    elif function.has_timers:
        what = "its timers are those of keys"
    if what is not None:
        hint = "Write TABLE t PARTITION BY k. For one key of all rows, make a column of it: SELECT 1 AS k, * FROM t."
        raise BindError(f"{called(function)} without PARTITION BY: {what}", span, hint=hint)


def check_names(node: Process, span: Span) -> None:
    """Raise BindError for two columns of one name in the result, or in the table of states of a function by bucket.

    A column that is emitted under the name of a key is allowed if it can be the key itself.
    """
    check_repeated(node, node.function.outputs, f"{called(node.function)}: its result", "a column that it emits", span)
    descriptions: dict[str, str] = {}
    for index, f in enumerate(node.schema):
        what = "a partition column" if index < len(node.key_names) else "a column that it emits"
        if f.name == ROWTIME and index == len(node.schema) - 1 and node.time_type:
            what = "the event time"
        if (before := descriptions.get(f.name.lower())) is not None:
            message = f'{called(node.function)}: its result has two columns "{f.name}", {before} and {what}'
            raise BindError(message, span, hint=_RENAME)
        descriptions[f.name.lower()] = what
    if node.function.vectorized != "bucket":
        return
    keys = {name.lower() for name in node.key_names}
    if (clash := next((s.name for s in node.function.keyed_states if s.name.lower() in keys), None)) is not None:
        hint = "Rename the state in Python, or the column in a subquery: TABLE (SELECT k AS key, .. FROM t)."
        message = f'its table of state has two columns "{clash}", a partition column and a state'
        raise BindError(f"{called(node.function)}: {message}", span, hint=hint)


def check_repeated(node: Process, emitted: Sequence[Column], described: str, what: str, span: Span) -> None:
    """Raise BindError for an emitted column that has the name of a key, but cannot be the key itself.

    `described` names the output in the error, `what` the column.
    """
    own = {c.name for c in node.function.beside(node.key_names, emitted)}
    keys = {name.lower(): key.type for name, key in zip(node.key_names, node.keys, strict=True)}
    for column in emitted:
        key = keys.get(column.name.lower())
        if key is not None and (column.name in own or not _is_same(key, column.type)):
            message = f'{described} has two columns "{column.name}", a partition column and {what}'
            raise BindError(message, span, hint=_RENAME)


def _is_same(key: str, emitted: str) -> bool:
    """Return whether an emitted value can be compared with a key, which is encoded as it is stored."""
    has_zone = ["TIME ZONE" in type for type in (key, emitted)]
    return alike(key, emitted) and not is_changed(key) and has_zone[0] == has_zone[1]
