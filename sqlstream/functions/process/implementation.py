"""What travels to worker processes of a process function: the class by value, and how its methods take and give rows."""

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

    `rows` are the shapes of what its tables' methods get, `sides` those of its side outputs. `hints` are those of its states
    (of a map: of its keys, then its values; of an aggregating one: of its accumulator), `scalars` those of the parameters of its
    `__init__`. `aggregates` are the functions of its aggregating states. `root` is the folder relative to which files are shown.
    The methods in `yielding` yield rows of side outputs, too.
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
        """Return it as the function of a call has it, which says what columns a Row has."""
        hints = dict(self.hints)
        for state in function.states:
            if any(map(is_row, hints[state.name])):
                made = named_row(types.struct_fields(state.type) or ())
                hints[state.name] = tuple(made if is_row(hint) else hint for hint in hints[state.name])
        sides = {side.name: self.sides[side.name].over(side.columns) for side in function.side_outputs}
        return replace(self, result=self.result.over(function.outputs), sides=sides, hints=hints)
