"""What travels to worker processes of a process function: the class by value, and how its methods take and give rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlstream.functions.process.aggregating import Aggregator
from sqlstream.functions.process.shapes import ResultShape, RowShape


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
