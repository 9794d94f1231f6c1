"""The base classes of joins. All columns of the inputs have different names."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from sqlstream.duck.sql import unquoted
from sqlstream.errors import Span
from sqlstream.logical.plan.expressions import Expression, Schema, column_names
from sqlstream.logical.plan.node import Keys, Node
from sqlstream.logical.plan.settings import JoinSettings, NodeValues
from sqlstream.logical.plan.stateful import DropsLateRows, StatefulNode
from sqlstream.logical.plan.values import forms
from sqlstream.logical.plan.words import quoted_name
from sqlstream.units import NO_TIME, Duration

Kind = Literal["inner", "left", "right", "full", "semi", "anti"]
# For each input, pairs of a column's name in its relation and in the input; empty for an input that is a join itself.
OwnNames = tuple[tuple[tuple[str, str], ...], ...]
# The most unique keys of a join that are derived.
_MOST_KEYS = 16


@dataclass(frozen=True)
class Joining(StatefulNode):
    """The base class of joins: rows match if their keys are equal, none of them is NULL, and the condition is true.

    `keys` has the keys of each input, in the same order. Left, right and full joins also emit the rows of the left, the right or
    both inputs that have no match, with NULLs in the columns of the other input. Semi joins emit the rows of the first input
    that have a match, anti joins its rows that have none. `aliases` are the names of the inputs in the query.
    """

    inputs: tuple[Node, ...]
    name: str
    kind: Kind
    keys: tuple[tuple[Expression, ...], ...]
    condition: Expression | None
    aliases: tuple[str, ...]
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def shown(self) -> tuple[int, ...]:
        """The inputs whose columns are in the result."""
        return (0,) if self.kind in ("semi", "anti") else tuple(range(len(self.inputs)))

    @property
    def padded(self) -> tuple[int, ...]:
        """The inputs whose columns are NULL in rows without a match."""
        return {"left": (1,), "right": (0,), "full": (0, 1)}.get(self.kind, ())

    @property
    def always_there(self) -> tuple[int, ...]:
        """The inputs whose columns are in the result, and never NULL because of a missing match."""
        return tuple(index for index in self.shown if index not in self.padded)

    @property
    def children(self) -> tuple[Node, ...]:
        return self.inputs

    def _over(self, children: tuple[Node, ...]) -> Node:
        return replace(self, inputs=children)

    @property
    def label(self) -> str:
        return "JOIN" if self.kind == "inner" else f"{self.kind.upper()} JOIN"

    @property
    def description(self) -> str:
        pairs = [" = ".join(k.sql for k in pair) for pair in zip(*self.keys, strict=True)]
        where = f" where {self.condition.sql}" if self.condition else ""
        by = f"{self.kind} by {', '.join(pairs) or 'no key'}"
        return f"{self._join}{quoted_name(self.name)} {by}{self._matching_times}{where}"

    @property
    @abstractmethod
    def _join(self) -> str:
        """The kind of join in the plan's text."""

    @property
    @abstractmethod
    def _matching_times(self) -> str:
        """The condition on times in the plan's text, after the keys."""

    @property
    def key_text(self) -> str:
        pairs = [" = ".join(unquoted(k.sql) for k in pair) for pair in zip(*self.keys, strict=True)]
        return " and ".join([*pairs, *([unquoted(self.condition.sql)] if self.condition else [])])

    @property
    def key_columns(self) -> tuple[str, ...]:
        return column_names(self.keys[0])

    @property
    def keys_by_name(self) -> tuple[tuple[str, tuple[Expression, ...]], ...]:
        return tuple((pair[0].column or pair[0].sql, pair) for pair in zip(*self.keys, strict=True))

    @property
    def key_ttl(self) -> Duration:
        """0, since each input of a regular join has its own."""
        return NO_TIME

    @property
    def can_forget(self) -> bool:
        """Never as a whole: each input of a regular join has its own time to live."""
        return False

    @property
    def depends_on_expiry(self) -> bool:
        return self.forgets_keys

    @property
    def leaving_time(self) -> str | None:
        return None

    @property
    def has_processing_timers(self) -> bool:
        return False

    @cached_property
    def expressions(self) -> tuple[Expression, ...]:
        condition = (self.condition,) if self.condition else ()
        return (*(k for keys in self.keys for k in keys), *condition)

    @cached_property
    def schema(self) -> Schema:
        return tuple(f for index in self.shown for f in self.inputs[index].schema)

    def _values_of(self, settings: JoinSettings) -> NodeValues:
        keys = tuple(forms(pair) for pair in zip(*self.keys, strict=True))
        return NodeValues(self.node_kind, name=self.name, keys=keys, settings=settings)

    @property
    def batch_times(self) -> tuple[str, ...]:
        return ()

    @property
    def leaves_at_once(self) -> bool:
        return False

    @cached_property
    def unique_keys(self) -> Keys:
        """Unions of a unique key of each input; an input with at most one row per join key adds no columns."""
        if len(self.shown) == 1:
            return self.inputs[0].unique_keys
        if self.kind == "full":
            # A row of either side whose unique key is NULL may have no match: then both rows have NULL in all keys.
            return ()
        keys: Keys = (frozenset(),)
        for index, (below, equal) in enumerate(zip(self.inputs, self.keys, strict=True)):
            own = {k.column for k in equal}
            alone = any(names <= own for names in below.unique_keys)
            # In a right join, rows without a match need the key of the right input.
            if alone and index and self.kind in ("inner", "left"):
                continue
            keys = tuple(names | more for names in keys for more in below.unique_keys)[:_MOST_KEYS]
        return keys


class TimedJoin(Joining, DropsLateRows):
    """A join whose condition compares the event times of its two inputs, the columns `times`."""

    times: tuple[str, str]
    own_names: OwnNames

    @property
    def times_read(self) -> tuple[tuple[int, str], ...]:
        return tuple(enumerate(self.times))

    @property
    def emits_its_rows(self) -> bool:
        return False

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(alias or name for alias, name in zip(self.aliases, ("left", "right"), strict=True))

    def names_in_table(self, index: int) -> tuple[tuple[str, str], ...]:
        return self.own_names[index] if self.own_names else ()
