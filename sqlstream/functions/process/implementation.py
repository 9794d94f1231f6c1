"""What worker processes receive of a process function: the class by value, and the shapes of its input and output rows."""

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
    """A class with all that is needed to run it in a process that has none of the user's files.

    `rows` are the shapes of the rows that its tables' methods receive, `sides` the shapes of its side outputs. `hints` are the
    type hints of its states (of a map: of its keys, then its values; of an aggregating one: of its accumulator), `scalars` the
    hints of the parameters of its `__init__`. `aggregates` are the functions of its aggregating states. Errors show files
    relative to `root`. The methods in `yielding` yield rows of side outputs, too.
    """

    name: str
    made: type
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
        """Return the implementation for one call, whose `function` has the columns of each Row."""
        hints = dict(self.hints)
        for state in function.states:
            if any(map(is_row, hints[state.name])):
                row_class = named_row(types.struct_fields(state.type) or ())
                hints[state.name] = tuple(row_class if is_row(hint) else hint for hint in hints[state.name])
        sides = {side.name: self.sides[side.name].over(side.columns) for side in function.side_outputs}
        return replace(self, result=self.result.over(function.outputs), sides=sides, hints=hints)
