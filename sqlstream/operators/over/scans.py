"""Users' aggregate functions with OVER, over all rows up to the current one.

State is one accumulator per partition and call. The step `scan` of a function adds rows to an accumulator in their order, and
returns the result after each row and the last accumulator. So the cost of a batch does not depend on how many rows came before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.aggregates.aggregate_call import row_of
from sqlstream.duck.internal_columns import INTERNAL, internal
from sqlstream.duck.sql import Relation, Select, quote_name
from sqlstream.operators.over.calls import AFTER, ID, POSITION, OverCall

# Two lists over a partition's new rows, in their order: their IDs, and for each how many of them stand up to its last peer.
_IDS, _ENDS = internal("ids"), internal("ends")


@dataclass(frozen=True)
class Scans:
    """Calls of users' aggregate functions. Equal calls share an accumulator."""

    calls: tuple[OverCall, ...]

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        """The number of each call's accumulator, by the call's name."""
        numbers: dict[object, int] = {}
        return {c.name: numbers.setdefault(c.call, len(numbers)) for c in self.calls}

    @cached_property
    def _distinct(self) -> dict[int, OverCall]:
        """One call for each accumulator, by its number."""
        return {self._numbers[c.name]: c for c in self.calls}

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The state columns: one for each accumulator."""
        return tuple(Column(_accumulator(n), _type(c)) for n, c in self._distinct.items())

    @property
    def held(self) -> Mapping[str, tuple[str, ...]]:
        """The name of each call's state column, in a tuple, by the call's name."""
        return {name: (_accumulator(number),) for name, number in self._numbers.items()}

    @property
    def row_items(self) -> list[str]:
        """The select items, aggregates for a SELECT that groups by ID, that wrap a row's arguments in a struct.

        A row that the call's FILTER excludes gives NULL.
        """
        items = []
        for number, c in self._distinct.items():
            row = f"struct_pack(r := {row_of(c.call.arguments)})"
            row = f"CASE WHEN {c.call.filter} THEN {row} END" if c.call.filter else row
            items.append(f"any_value({row}) AS {_row(number)}")
        return items

    def scanned(self, partition: Sequence[str], merged: Sequence[str], rows: Relation) -> Select:
        """Return one row per partition: its columns, the items `merged`, the IDs of its new rows, and their scans.

        `rows` is what `Running.totals` reads: a row with an ID is new, one without has the accumulators in state.
        """
        by = f" GROUP BY {', '.join(partition)}" if partition else ""
        count = f"count({ID}) OVER (PARTITION BY {', '.join(partition) or 'true'} ORDER BY {POSITION} ROWS UNBOUNDED PRECEDING)"
        own = f"FILTER (WHERE {ID} IS NOT NULL)"
        items = [
            f"list({ID} ORDER BY {POSITION}) {own} AS {_IDS}",
            f"list(_known + {AFTER} ORDER BY {POSITION}) {own} AS {_ENDS}",
        ]
        for number, c in self._distinct.items():
            row_list = f"coalesce(list({_row(number)} ORDER BY {POSITION}) {own}, [])"
            items.append(f"{c.call.step('scan', f'any_value({_accumulator(number)}), {row_list}')} AS {_scan(number)}")
        listed = ", ".join([*partition, *merged, *items])
        return Select(f"SELECT {listed} FROM (SELECT *, {count} AS _known FROM {rows}){by}")

    @property
    def totals(self) -> list[str]:
        """The select items of the state columns over rows of `scanned`."""
        return [f"struct_extract({_scan(n)}, 'accumulator') AS {_accumulator(n)}" for n in self._distinct]

    def results(self, scanned: Relation) -> Select:
        """Return ID and the results of all calls, a row for each new row; `scanned` are the rows of that method."""
        items = []
        for c in self.calls:
            values = f"struct_extract({_scan(self._numbers[c.name])}, 'results')"
            values = f"list_select({values}, {_ENDS})" if c.frame.mode == "range" else values
            items.append(f"CAST(unnest({values}) AS {c.call.result_type}) AS {quote_name(c.name)}")
        return Select(f"SELECT unnest({_IDS}) AS {ID}, {', '.join(items)} FROM {scanned}")

    def shown(self, used_names: Collection[str]) -> Iterator[tuple[Column, str]]:
        """Yield the columns of a view with their SQL over the state columns: the results so far, then the accumulators.

        An accumulator whose name is in `used_names`, in lower case, is left out.
        """
        for c in self.calls:
            yield (
                Column(c.name, c.call.result_type),
                c.call.step("finish", _accumulator(self._numbers[c.name])),
            )
        for c in self.calls:
            column = Column(f"{c.name}_accumulator", _type(c))
            if column.name.lower() not in used_names:
                yield column, _accumulator(self._numbers[c.name])


def _type(call: OverCall) -> str:
    assert call.call.python is not None
    return call.call.python.accumulator


def _accumulator(number: int) -> str:
    return f"{INTERNAL}a_{number}"


def _row(number: int) -> str:
    return f"{INTERNAL}r_{number}"


def _scan(number: int) -> str:
    return f"{INTERNAL}s_{number}"
