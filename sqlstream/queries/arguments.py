"""The arguments of the table functions `sqlstream.*`, by their places and by their names."""

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
    """The value of an argument, with its name if it has one."""

    name: str | None
    value: Any
    span: Span


class Maker(Protocol):
    """Creates the relation of a call in a catalog, which it attaches, and returns its name as SQL.

    Raises QueryError, VersionGone, and what reading of files raises.
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
    """Return the arguments of some names, which stand in their order or have their names. Raises QueryError."""
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
