"""The part of a process function that worker processes need: the class by value, and the shapes of input and output rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlstream.catalog import ProcessFunction
from sqlstream.functions import types
from sqlstream.functions.process.aggregating import Aggregator
from sqlstream.functions.process.shapes import ResultShape, RowShape, is_row, named_row


@dataclass(frozen=True, slots=True)
class Implementation:
    """A user's class with everything that a process without the user's files needs to run it.

    `rows` are the shapes of the rows that the methods of its tables receive, `sides` the shapes of its side outputs. `hints` are
    the type hints of its states: for a map the hints of keys and values, for an aggregating state the accumulator's. `scalars`
    are the hints of the parameters of `__init__`, `aggregates` the functions of aggregating states. Errors show files relative to
    `root`. `yielding` names the methods that also yield rows of side outputs.
    """

    name: str
    python_class: type
    rows: tuple[RowShape, ...]
    result: ResultShape
    sides: Mapping[str, ResultShape]
    hints: Mapping[str, tuple[Any, ...]]
    aggregates: Mapping[str, Aggregator]
    scalars: Mapping[str, Any]
    root: str
    location: str
    yielding: frozenset[str]

    def over(self, function: ProcessFunction) -> Implementation:
        """Return the implementation for one call: each Row has the columns that `function`, as the call declares it, gives it."""
        hints = dict(self.hints)
        for state in function.states:
            if any(map(is_row, hints[state.name])):
                row_class = named_row(types.struct_fields(state.type) or ())
                hints[state.name] = tuple(row_class if is_row(hint) else hint for hint in hints[state.name])
        sides = {side.name: self.sides[side.name].over(side.columns) for side in function.side_outputs}
        return replace(self, result=self.result.over(function.outputs), sides=sides, hints=hints)
