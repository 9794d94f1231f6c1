"""The arguments of the table functions `sqlstream.*`: positional and named ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import duckdb

from sqlstream.errors import QueryError, Span
from sqlstream.storage.snapshot import JobHistory
from sqlstream.warehouse.paths import Warehouse


@dataclass(frozen=True, slots=True)
class Given:
    """An argument of a call: its value, and its name if it is a named one."""

    name: str | None
    value: Any
    span: Span


class Maker(Protocol):
    """Creates the relation of a call, and returns the relation's name as SQL.

    The relation is in a new catalog of the connection, named `catalog`. `jobs` are the jobs of the warehouse by lower-case name,
    `span` is the place of the call. Raises QueryError; VersionGone; FileNotFoundError or DamageError when a file cannot be read.
    """

    def __call__(
        self,
        connection: duckdb.DuckDBPyConnection,
        catalog: str,
        warehouse: Warehouse,
        jobs: Mapping[str, JobHistory],
        given: Sequence[Given],
        span: Span,
    ) -> str: ...


def placed(given: Sequence[Given], names: Sequence[str], usage: str, span: Span) -> list[Given]:
    """Return the arguments in the order of their `names`. Raises QueryError with the hint `usage` if one is wrong or missing."""
    found: dict[str, Given] = {}
    for place, one in enumerate(given):
        name = (one.name or (names[place] if place < len(names) else "")).lower()
        if name not in names or name in found or one.value is None:
            raise QueryError(
                "this argument is one too many" if one.value is not None else "it is NULL", one.span, hint=usage
            )
        found[name] = one
    if len(found) < len(names):
        raise QueryError("an argument is missing", span, hint=usage)
    return [found[name] for name in names]
