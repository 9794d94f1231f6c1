"""The columns of partial results of aggregate calls."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from sqlstream.duck.aggregates.aggregate_call import kept_type
from sqlstream.duck.internal_columns import internal


class Strategy(Enum):
    """How a call runs: as a `Partial` in plain SQL, a `Partial` of exported states, or `CollectedValues`."""

    PLAIN = "plain"
    STATE = "state"
    VALUES = "values"


# The name of the window over which a merge runs.
FRAME = internal("frame")


class Columns:
    """Collects the columns of one call, and gives them names.

    `shared_names` has the names of the columns so far, by type, SQL of the partial result, and SQL of the merge. Calls that get
    the same dictionary share equal columns, under one name. `rows` is a condition on stored rows, for a call that keeps its
    values. `used` maps the name of each column to four texts: its type, the SQL of the partial result over input rows, the SQL
    that merges partial results, and the same merge as a window function over FRAME.
    """

    def __init__(self, prefix: str, shared_names: dict[tuple[str, str, str], str], rows: str | None = None) -> None:
        self.prefix = prefix
        self.rows = rows
        self.used: dict[str, tuple[str, str, str, str]] = {}
        self._shared_names = shared_names

    def add(self, type_: str, partial: str, merge: Callable[[str, str], str]) -> str:
        """Add a column and return its name; an equal column is shared.

        `partial` is the SQL of the partial result over input rows. `merge` returns the SQL that merges the column of a name; its
        second argument follows the aggregate in it, empty or an OVER clause. Raises NotIncremental for a type that cannot be
        stored.
        """
        kept_type(type_)
        name = self._shared_names.setdefault(
            (type_, partial, merge("?", "")), f"{self.prefix}_{len(self._shared_names)}"
        )
        self.used[name] = (type_, partial, merge(name, ""), merge(name, f" OVER {FRAME}"))
        return name


# The strategy of a call, and the SQL of its result over its columns or its values.
Built: TypeAlias = tuple[Strategy, str]
