"""The inputs of a process function: what is read of a table argument, and the columns in which its rows arrive."""

from __future__ import annotations

from dataclasses import dataclass

from sqlstream.catalog import Column
from sqlstream.duck.sql import Relation, Select, quote_name, subquery
from sqlstream.duck.types import encoded
from sqlstream.storage.zsets import WEIGHT, WEIGHT_COLUMN, summed

# The event time of an arriving row in microseconds.
EVENT_TIME = Column("_time", "BIGINT")
# The watermark, in microseconds, that has passed a waiting row: its event time plus a microsecond.
UNTIL = Column("_until", "BIGINT")


@dataclass(frozen=True, slots=True)
class InputPlan:
    """An input of the operator: a table argument of the call.

    `name` names the part, `argument` the parameter. `key_names` and `keys` are the names of the keys, empty for expressions, and
    their SQL; `columns` are the columns that the function gets, with their SQL; `time` is the SQL of the event time (None: there
    is none). `order` are the columns of the source's order. With a `sort` rows wait for the watermark, and come in the order of
    time, then of further columns, each with its SQL and its direction (None: rows come as they arrive).
    """

    name: str
    argument: str
    key_names: tuple[str, ...]
    keys: tuple[str, ...]
    columns: tuple[tuple[Column, str], ...]
    time: str | None
    order: tuple[Column, ...]
    sort: tuple[tuple[Column, str, str], ...] | None = None
    # Whether the input is a changelog, whose rows have weights.
    changing: bool = False
    # Whether the rows are for all keys, and go to all buckets.
    broadcast: bool = False

    @property
    def waits(self) -> bool:
        """Whether rows wait in state until the watermark has passed them."""
        return self.sort is not None

    def arriving(self, keys: tuple[Column, ...]) -> tuple[Column, ...]:
        """Return the columns of arriving rows; `keys` are the key columns in state.

        They are the keys (not of a broadcast input), the columns as c0, .., the event time, if there is one, as EVENT_TIME or, of
        rows that wait, as UNTIL, the columns of `sort` as s0, .., of `order` as o0, .., and in a changelog the weight.
        """
        own = tuple(Column(f"c{i}", c.type) for i, (c, _) in enumerate(self.columns))
        sorted_by = tuple(Column(f"s{i}", c.type) for i, (c, _, _) in enumerate(self.sort or ()))
        order = tuple(Column(f"o{i}", c.type) for i, c in enumerate(self.order))
        time = UNTIL if self.waits else EVENT_TIME
        weight = (WEIGHT_COLUMN,) if self.changing else ()
        return (*(() if self.broadcast else keys), *own, *((time,) if self.time else ()), *sorted_by, *order, *weight)

    def select(self, keys: tuple[Column, ...]) -> Select:
        """Return the columns of `arriving`, computed over `_rows`.

        Equal rows of a changelog become one row, with the sum of their weights.
        """
        time = [f"epoch_us({self.time}){' + 1' if self.waits else ''}"] if self.time else []
        sqls = [*self.keys, *(sql for _, sql in self.columns), *time, *(sql for _, sql, _ in self.sort or ())]
        sqls += [c.name for c in self.order]
        sqls += [WEIGHT] if self.changing else []
        columns = self.arriving(keys)
        items = ", ".join(f"{sql} AS {quote_name(c.name)}" for sql, c in zip(sqls, columns, strict=True))
        where = f" WHERE {self.time} IS NOT NULL" if self.waits else ""
        rows = Relation(f"(SELECT {items} FROM _rows{where})")
        return encoded(columns, subquery(summed(columns[:-1], rows)) if self.changing else rows)
