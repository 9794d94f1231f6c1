"""User-defined aggregates over a changelog: an accumulator per key, which adds rows and retracts them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.aggregates.aggregate_call import AggregateCall, row_of
from sqlstream.duck.sql import Relation, Relations, Select, all_of, same_columns, subquery
from sqlstream.duck.types import encoded
from sqlstream.operators.keys import Keys
from sqlstream.storage.zsets import WEIGHT, WEIGHT_COLUMN, summed

# How many rows an accumulator has.
_NUMBER = Column("number", "BIGINT")


def keeps_accumulator(call: AggregateCall) -> bool:
    """Return whether a call is of a user-defined aggregate that can retract rows, without DISTINCT and ORDER BY."""
    return call.python is not None and call.python.retracts and not call.distinct and not call.order_by


@dataclass(frozen=True)
class KeptAccumulator:
    """The state of a call of a user-defined aggregate that retracts: an accumulator per key, in a part of its own.

    Rows arrive with weights. Additions and retractions of equal rows in one batch cancel out and never reach the function. An
    accumulator is deleted when its number of rows is 0.
    """

    part: str
    keys: Keys
    call: AggregateCall

    @cached_property
    def _accumulator(self) -> Column:
        assert self.call.python is not None
        return Column("accumulator", self.call.python.accumulator)

    @cached_property
    def _values(self) -> tuple[Column, ...]:
        return tuple(Column(f"v{i}", type) for i, type in enumerate(self.call.argument_types))

    @cached_property
    def deltas(self) -> tuple[Column, ...]:
        """The columns of arriving rows: keys, arguments of the call, weight."""
        return (*self.keys.stored, *self._values, WEIGHT_COLUMN)

    @cached_property
    def stored(self) -> tuple[Column, ...]:
        """The columns of the state: keys, number of rows, accumulator."""
        return (*self.keys.stored, _NUMBER, self._accumulator)

    @property
    def arriving(self) -> Select:
        """What the upstream fragment computes over `_rows`: `deltas` of the rows that the function takes, encoded.

        Left out are rows that FILTER rejects, and those with NULL in an argument that the function does not take as NULL.
        """
        assert self.call.python is not None
        conditions = [f"({self.call.filter})"] if self.call.filter else []
        strict = zip(self.call.arguments, self.call.python.nullable, strict=True)
        conditions += [f"({argument}) IS NOT NULL" for argument, nullable in strict if not nullable]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        values = [f"{sql} AS {c.name}" for sql, c in zip(self.call.arguments, self._values, strict=True)]
        rows = Relation(f"(SELECT {', '.join([*self.keys.items, *values, WEIGHT])} FROM _rows{where})")
        return encoded(self.deltas, subquery(summed((*self.keys.stored, *self._values), rows)))

    def advance(self, old: Relation, delta: Relation) -> Select:
        """Return the new state with weight 1, from the old state and arrived rows."""
        keys = "".join(f"{k}, " for k in self.keys.names)
        by = f" GROUP BY {', '.join(self.keys.names)}" if self.keys.names else " HAVING count(*) > 0"
        row = row_of([c.name for c in self._values])
        net = subquery(summed((*self.keys.stored, *self._values), delta))
        each = f"SELECT {keys}{row} AS _row, {WEIGHT} > 0 AS _adds, unnest(range(abs({WEIGHT}))) FROM {net}"
        lists = ", ".join(
            f"coalesce(list(_row ORDER BY _row) FILTER ({which}), []) AS {name}"
            for which, name in (("_adds", "_added"), ("NOT _adds", "_gone"))
        )
        changed = f"(SELECT {keys}{lists} FROM ({each}){by})"
        same = same_columns("_old_", "_changed_", self.keys.names)
        # A retraction for a key that has expired has nothing to retract.
        gone = "CASE WHEN number IS NULL THEN [] ELSE _gone END" if self.keys.ttl else "_gone"
        all_keys = "".join(f"_changed_.{k}, " for k in self.keys.names)
        both = f"SELECT {all_keys}number, accumulator, _added, {gone} AS _taken"
        both += f" FROM {changed} _changed_ LEFT JOIN {old} _old_ ON {same}"
        after = f"SELECT *, coalesce(number, 0) + len(_added) - len(_taken) AS _after FROM ({both})"
        step = self.call.step("change", "accumulator, _added, _taken")
        rest = f"SELECT {keys}number, accumulator FROM {old} _old_ ANTI JOIN {changed} _changed_ ON {same}"
        new = f"{rest} UNION ALL SELECT {keys}_after, {step} FROM (SELECT * FROM ({after}) WHERE _after <> 0)"
        return Select(f"SELECT *, CAST(1 AS BIGINT) AS {WEIGHT} FROM ({new})")

    def joined(self, rows: Relation, relations: Relations) -> Relation:
        """Return `rows`, which have the keys, with the key's accumulator or NULL in a column named as the part."""
        own = ", ".join([*(f"{k} AS {self.part}_{k}" for k in self.keys.names), f"accumulator AS {self.part}"])
        same = all_of(f"{k} IS NOT DISTINCT FROM {self.part}_{k}" for k in self.keys.names)
        return Relation(f"{rows} LEFT JOIN (SELECT {own} FROM {relations[self.part]}) ON {same}")

    @property
    def final(self) -> str:
        """The SQL of the call's result over `joined` rows."""
        return self.call.step("finish", self.part)
