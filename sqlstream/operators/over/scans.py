"""Users' functions over all rows up to the current one: rows are taken into the accumulator of their partition in their order.

`scan` of the function tells the result after each row, and the accumulator after the last. So a batch costs what its rows cost,
however many came before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.aggregates.aggregate_call import row_of
from sqlstream.duck.internal_columns import INTERNAL, internal
from sqlstream.duck.sql import quote_name
from sqlstream.operators.over.calls import AFTER, ID, PLACE, OverCall

# The numbers of a partition's rows in a batch, in their order; and for each, how many of them are not behind it.
_IDS, _ENDS = internal("ids"), internal("ends")


@dataclass(frozen=True)
class Scans:
    """The calls; `columns` are stored of each partition: the accumulators."""

    calls: tuple[OverCall, ...]

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        """The number of each call, by its name: equal ones share an accumulator."""
        found: dict[object, int] = {}
        return {c.name: found.setdefault(c.call, len(found)) for c in self.calls}

    @cached_property
    def _distinct(self) -> dict[int, OverCall]:
        """A call of each number."""
        return {self._numbers[c.name]: c for c in self.calls}

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(_accumulator(n), _type(c)) for n, c in self._distinct.items())

    @property
    def held(self) -> Mapping[str, tuple[str, ...]]:
        """The name of the stored column of each call, by its name."""
        return {name: (_accumulator(number),) for name, number in self._numbers.items()}

    @property
    def made(self) -> list[str]:
        """The select items that make what is taken in from rows, of each alone: nothing of those that the call leaves out."""
        items = []
        for number, c in self._distinct.items():
            row = f"struct_pack(r := {row_of(c.call.arguments)})"
            row = f"CASE WHEN {c.call.filter} THEN {row} END" if c.call.filter else row
            items.append(f"any_value({row}) AS {_row(number)}")
        return items

    def scanned(self, partition: Sequence[str], merged: Sequence[str], rows: str) -> str:
        """Return the SELECT of a row for each partition, with further items, over rows that begin with what is kept."""
        by = f" GROUP BY {', '.join(partition)}" if partition else ""
        known = f"count({ID}) OVER (PARTITION BY {', '.join(partition) or 'true'} ORDER BY {PLACE} ROWS UNBOUNDED PRECEDING)"
        own = f"FILTER (WHERE {ID} IS NOT NULL)"
        items = [
            f"list({ID} ORDER BY {PLACE}) {own} AS {_IDS}",
            f"list(_known + {AFTER} ORDER BY {PLACE}) {own} AS {_ENDS}",
        ]
        for number, c in self._distinct.items():
            taken = f"coalesce(list({_row(number)} ORDER BY {PLACE}) {own}, [])"
            items.append(f"{c.call.step('scan', f'any_value({_accumulator(number)}), {taken}')} AS {_scan(number)}")
        listed = ", ".join([*partition, *merged, *items])
        return f"SELECT {listed} FROM (SELECT *, {known} AS _known FROM {rows}){by}"

    @property
    def totals(self) -> list[str]:
        """The select items of the stored columns over such rows."""
        return [f"struct_extract({_scan(n)}, 'accumulator') AS {_accumulator(n)}" for n in self._distinct]

    def results(self, scanned: str) -> str:
        """Return the SELECT of the results by the rows' number, over such rows."""
        items = []
        for c in self.calls:
            found = f"struct_extract({_scan(self._numbers[c.name])}, 'results')"
            found = f"list_select({found}, {_ENDS})" if c.frame.mode == "range" else found
            items.append(f"CAST(unnest({found}) AS {c.call.result_type}) AS {quote_name(c.name)}")
        return f"SELECT unnest({_IDS}) AS {ID}, {', '.join(items)} FROM {scanned}"

    def shown(self, taken: Collection[str]) -> Iterator[tuple[Column, str]]:
        """Yield the columns of a view over the stored columns, with their SQL: results, and accumulators under free names."""
        for c in self.calls:
            yield (
                Column(c.name, c.call.result_type),
                c.call.step("finish", _accumulator(self._numbers[c.name])),
            )
        for c in self.calls:
            column = Column(f"{c.name}_accumulator", _type(c))
            if column.name.lower() not in taken:
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
