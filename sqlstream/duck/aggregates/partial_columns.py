"""The columns that hold what aggregate calls amount to, so far."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from sqlstream.duck.aggregates.aggregate_call import kept_type
from sqlstream.duck.internal_columns import internal


class Strategy(Enum):
    """How a call runs: a `Partial` in plain SQL, a `Partial` of exported state, or `Values`."""

    PLAIN = "plain"
    STATE = "state"
    VALUES = "values"


# The name of the window over which a merge runs.
FRAME = internal("frame")


class Columns:
    """The columns of one call. Equal columns of several calls get one name, through `known`."""

    def __init__(self, prefix: str, known: dict[tuple[str, str, str], str], rows: str | None = None) -> None:
        self.prefix = prefix
        self.rows = rows
        self.used: dict[str, tuple[str, str, str, str]] = {}
        self._known = known

    def add(self, type_: str, made: str, merge: Callable[[str, str], str]) -> str:
        """Return the name of a column; `merge` writes what merges a column, with what follows the aggregate in it."""
        kept_type(type_)
        name = self._known.setdefault((type_, made, merge("?", "")), f"{self.prefix}_{len(self._known)}")
        self.used[name] = (type_, made, merge(name, ""), merge(name, f" OVER {FRAME}"))
        return name


# How a call runs, and the final expression over its columns, or over its values.
Built: TypeAlias = tuple[Strategy, str]
