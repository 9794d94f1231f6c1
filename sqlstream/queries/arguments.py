"""The arguments of the table functions `sqlstream.*`: positional and named ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import duckdb

from sqlstream.errors import QueryError, Span, missing
from sqlstream.storage.snapshot import JobHistory
from sqlstream.warehouse.paths import Warehouse


@dataclass(frozen=True, slots=True)
class CallArgument:
    """An argument of a call: its value, and its name if it is a named one."""

    name: str | None
    value: Any
    span: Span


class RelationFactory(Protocol):
    """Creates the relation of a call, and returns the relation's name as SQL.

    The relation is in a new catalog of the connection, named `catalog`. `jobs` are the jobs of the warehouse by lower-case name,
    `span` is the position of the call. Raises QueryError; VersionGone; FileNotFoundError or DamageError when a file cannot be
    read.
    """

    def __call__(
        self,
        connection: duckdb.DuckDBPyConnection,
        catalog: str,
        warehouse: Warehouse,
        jobs: Mapping[str, JobHistory],
        arguments: Sequence[CallArgument],
        span: Span,
        /,
    ) -> str: ...


def by_parameter(
    arguments: Sequence[CallArgument], names: Sequence[str], usage: str, span: Span, required: int | None = None
) -> list[CallArgument]:
    """Return the arguments in the order of their `names`, and check that the first `required` ones (default: all) are there.

    Raises QueryError with the existing names, or the hint `usage`, if one is wrong or missing.
    """
    all_names = f"The arguments are {', '.join(names)}."
    by_name: dict[str, CallArgument] = {}
    for index, one in enumerate(arguments):
        name = (one.name or (names[index] if index < len(names) else "")).lower()
        if one.name is not None and name not in names:
            hint = missing("argument", one.name, names)
            raise QueryError(f'there is no argument "{one.name}"', one.span, detail=all_names, hint=hint)
        if name not in names:
            raise QueryError("this argument is one too many", one.span, detail=all_names, hint=usage)
        if name in by_name:
            raise QueryError(f'argument "{name}" has two values', one.span, detail=all_names, hint=usage)
        if one.value is None:
            raise QueryError(f'argument "{name}" is NULL', one.span, detail=all_names, hint=usage)
        by_name[name] = one
    if absent := [name for name in names[:required] if name not in by_name]:
        raise QueryError(f'argument "{absent[0]}" is missing', span, detail=all_names, hint=usage)
    return [by_name[name] for name in names if name in by_name]
